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
    known = {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
    assert {word for word in words if word.startswith("-")} <= known


def test_every_numbered_thing_of_the_paper_is_there() -> None:
    """Ten equations, 27 lines of Algorithm 1, four propositions, fourteen tables, four figures."""
    index, reproduce = PAGES
    named = ",".join(re.findall(r"eq\. ([\d, ]+)", index + reproduce))
    assert {int(x) for x in re.findall(r"\d+", named)} == set(range(1, 11))
    spans = re.findall(r"^\| (\d+)(?:-(\d+))? \|", index, re.MULTILINE)
    lines = [n for first, last in spans for n in range(int(first), int(last or first) + 1)]
    assert lines == list(range(1, 28))
    assert all(f"Proposition {n}" in index for n in range(1, 5)) and "Corollary 1" in index
    first = " ".join(re.findall(r"^\| ([^|]+) \|.*\|$", reproduce, re.MULTILINE))
    # the thirteen that need commands; the fourteenth, of maximizers, has a section of the index
    tables = (
        *("main results", "fixed lengths", "second corpus", "code generation", "contributions"),
        *("priority", "loss weighting", "all maximizers", "AIME24", "training time"),
        *("Study 1", "Study 2", "Study 3"),
    )
    figures = ("overview of a step", "GSM8K and MATH-500", "Countdown and Sudoku", "λ and φ")
    assert [x for x in (*tables, *figures) if x not in first] == []


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
