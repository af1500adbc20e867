"""The index and the page "Reproduce" name only what exists: files, tests, verbs, campaigns."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [(ROOT / "docs" / name).read_text("utf-8") for name in ("paper-index.md", "reproduce.md")]
CODE = [
    " ".join(x.split())
    for page in PAGES
    for block in re.split(r"^```.*\n", page.replace("\\\n", ""), flags=re.MULTILINE)
    for x in (re.findall(r"`([^`]+)`", block) or block.splitlines())
]
FILES = sorted({x.partition("::")[0] for x in CODE if re.match(r"(src|tests|docs)/", x)})
TESTS = sorted({x for x in CODE if x.startswith("tests/") and "::" in x})
COMMANDS = sorted({x for x in CODE if x.startswith("goldimask ")})


@pytest.mark.parametrize("name", FILES)
def test_named_files_exist(name: str) -> None:
    assert (ROOT / name).is_file()


@pytest.mark.parametrize("name", TESTS)
def test_named_tests_exist(name: str) -> None:
    file, _, function = name.partition("::")
    assert re.search(rf"^def {function}\(", (ROOT / file).read_text("utf-8"), re.MULTILINE)


@pytest.mark.parametrize("line", COMMANDS)
def test_named_commands_have_these_options(line: str) -> None:
    from goldimask.cli.app import load

    words = shlex.split(line)[1:]
    command = load(words.pop(0))
    inner = getattr(command, "commands", {})  # of a verb with verbs of its own
    command = inner[words.pop(0)] if inner else command
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("-")} <= known


def test_the_papers_campaigns_are_named_and_exist() -> None:
    from goldimask.config import packaged_recipes

    named = {line.split()[2] for line in COMMANDS if line.startswith("goldimask compare paper")}
    there = {name for name in packaged_recipes() if name.startswith("paper")}
    if not there:
        pytest.skip("the campaigns of the paper are not in this tree yet")
    assert named == there


def test_named_methods_and_recipes_exist() -> None:
    from goldimask.config import load_recipe
    from goldimask.presets import PRESETS

    for line in COMMANDS:
        words = shlex.split(line)
        if words[1] == "train":
            load_recipe(words[2], [w for w in words[3:] if "=" in w])
    named = [x for x in CODE if re.match(r"(goldimask-|random-|static-|lift-)", x)]
    assert named and all(name in PRESETS for name in named)
