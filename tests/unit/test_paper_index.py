"""docs/paper-index.md names only what exists: files, tests, presets, verbs and their options."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/paper-index.md").read_text("utf-8")
CODE = re.findall(r"`([^`]+)`", PAGE)
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
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    assert {word for word in words if word.startswith("-")} <= known


def test_every_numbered_thing_of_the_paper_is_there() -> None:
    """Ten equations, 27 lines of Algorithm 1, four propositions, fourteen tables, four figures."""
    named = ",".join(re.findall(r"eq\. ([\d, ]+)", PAGE))
    assert {int(x) for x in re.findall(r"\d+", named)} == set(range(1, 11))
    spans = re.findall(r"^\| (\d+)(?:-(\d+))? \|", PAGE, re.MULTILINE)
    lines = [n for first, last in spans for n in range(int(first), int(last or first) + 1)]
    assert lines == list(range(1, 28))
    assert all(f"Proposition {n}" in PAGE for n in range(1, 5)) and "Corollary 1" in PAGE
    tables = PAGE.partition("## Tables")[2].partition("## Figures")[0]
    figures = PAGE.partition("## Figures")[2].partition("## Deviations")[0]
    rows = [re.findall(r"^\| (?!table|figure)\w.*\|$", x, re.MULTILINE) for x in (tables, figures)]
    # the thirteen that need commands; the fourteenth, of maximizers, has a section of its own
    assert list(map(len, rows)) == [13, 5]  # and the diagnostics that the paper only describes


def test_named_methods_and_recipes_exist() -> None:
    from goldimask.config import load_recipe
    from goldimask.presets import PRESETS

    for line in COMMANDS:
        words = shlex.split(line)
        if words[1] == "train":
            load_recipe(words[2], [w for w in words[3:] if "=" in w])
    named = [x for x in CODE if re.match(r"(goldimask-|random-|static-|lift-)", x)]
    assert named and all(name in PRESETS for name in named)
