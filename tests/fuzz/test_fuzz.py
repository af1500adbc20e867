"""A short fuzz of every border with a fixed seed; `make fuzz` runs the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.borders import BORDERS, TINY, Generations
from fuzz.drive import run

CASES = {"rows": 40, "recipes": 60, "model folders": 12, "run folders": 60}
CASES |= {"tables and pages": 100, "chat templates": 12}


@pytest.mark.parametrize("kind", BORDERS, ids=lambda kind: kind.name)
def test_only_errors_that_say_what_is_wrong(
    kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("goldimask.backbones.template.SECONDS", 0.3)
    found = run(kind(tmp_path), 0, CASES[kind.name], seed=7, budget=6.0)
    assert found["cases"] > 0 and not found["wrong"], found["wrong"][0]


@pytest.mark.parametrize("task", ["gsm8k", "countdown", "sudoku", *TINY])
def test_judges_survive_any_text(task: str, tmp_path: Path) -> None:
    found = run(Generations(tmp_path, task), 0, 20, seed=7, budget=3.0)
    assert found["cases"] > 0 and not found["wrong"], found["wrong"][0]
