"""docs/paper-index.md names only what exists: files, tests, presets, verbs and their options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = re.findall(r"`([^`]+)`", (ROOT / "docs/paper-index.md").read_text("utf-8"))
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


def test_named_methods_and_recipes_exist() -> None:
    from goldimask.config import load_recipe
    from goldimask.presets import PRESETS

    for line in COMMANDS:
        words = shlex.split(line)
        if words[1] == "train":
            load_recipe(words[2], [w for w in words[3:] if "=" in w])
    named = [x for x in CODE if re.match(r"(goldimask-|random-|static-|lift-)", x)]
    assert named and all(name in PRESETS for name in named)
