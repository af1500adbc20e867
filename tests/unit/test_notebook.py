"""The notebook runs, cell by cell, as it is printed, and holds no outputs.

Its cells are plain Python, so that neither jupyter nor a kernel is needed to run them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first_steps.ipynb"


def cells() -> list[str]:
    found = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    assert len({cell["id"] for cell in found}) == len(found)
    assert not any(cell.get("outputs") for cell in found)
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == "code"]


def test_cells_are_plain_python() -> None:
    for code in cells():
        compile(code, "cell", "exec")


@pytest.mark.real
def test_the_notebook_runs_to_its_plot(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPLBACKEND", "agg")
    names: dict = {}
    for number, code in enumerate(cells()):
        exec(compile(code, f"cell {number}", "exec"), names)
    said = capsys.readouterr().out
    assert "[" in said.split("\n\n", 1)[1] and "<" in said  # something was revealed and asked for
    assert len(names["losses"]) == 50 and all(math.isfinite(x) for x in names["losses"])
    assert [len(d.tokens) for d in names["after"]] == [len(d.tokens) for d in names["before"]]
    first, last = (
        line.get_ydata() for axes in (names["left"], names["right"]) for line in axes.lines
    )
    assert list(first) == names["losses"] and list(last) == names["revealed"]
