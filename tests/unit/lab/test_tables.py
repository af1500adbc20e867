"""Tables and intervals from records whose differences are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from goldimask.campaign.classes import CLASSES
from goldimask.campaign.paired import (
    Difference,
    difference,
    draws,
    frontier,
    grid_of,
    mean,
    relative,
)
from goldimask.campaign.scores import Board, board, pool

from goldimask.campaign.output import fill, write_output
from goldimask.campaign.settings import Cell, JudgingSection, Lab, cells, shard
from goldimask.campaign.tables import sheets, strongest
from goldimask.errors import GoldimaskError

PROBLEMS = 60
TASKS = ("tiny-sort", "tiny-sudoku")


def lab(**changes) -> Lab:
    judging = JudgingSection(problems=PROBLEMS, taus=(0.7, 0.9), tasks=TASKS)
    rows = ("base", "vanilla", "cart", "goldimask-d", "goldimask-d-c2")
    return Lab(**{"rows": rows, "judging": judging, "seeds": (0, 1), **changes})


def verdicts(share: float, steps: int, first: int, every: int) -> dict:
    """Problem i is right when it is among the first `share` of all problems."""
    mine = range(first, PROBLEMS, every)
    return {
        "first": first,
        "every": every,
        "correct": "".join("1" if i < share * PROBLEMS else "0" for i in mine),
        "steps": [steps] * len(mine),
        "unparsable": 0,
    }


SHARES = {"base": 0.3, "vanilla": 0.4, "cart": 0.5, "goldimask-d": 0.6, "goldimask-d-c2": 0.45}
STEPS = {"base": 10, "vanilla": 20, "cart": 20, "goldimask-d": 15, "goldimask-d-c2": 18}


KINDS = {k: {"candidates": 0.25, "targets": 0.3, "weight": 0.2} for k in CLASSES}


def record(cell: Cell, wanted: Lab) -> dict:
    share = shard(wanted, cell.seed)
    tuned = cell.row != "base"
    tasks = {
        f"{tau:g}": {
            t: verdicts(SHARES[cell.row] + (tau - 0.9), STEPS[cell.row] - (tau < 0.8) * 5, *share)
            for t in TASKS
        }
        for tau in wanted.judging.taus
    }
    return {
        "cell": vars(cell),
        "training": {"metrics": {"n_eff_ratio": 0.5}, "classes": KINDS} if tuned else None,
        "heldout": {"nll": 0.3 + cell.seed / 100, "confident": 0.8, "lost": 0.01, "targets": 9},
        "tasks": tasks,
        "cpu_seconds": {"all": 1.0, "decoding": 0.5},
    }


def records(wanted: Lab) -> dict:
    return {cell: record(cell, wanted) for cell in cells(wanted)}


@pytest.mark.parametrize("spread", [False, True])
def test_known_differences_come_out(spread: bool) -> None:
    judging = JudgingSection(problems=PROBLEMS, taus=(0.7, 0.9), tasks=TASKS, spread=spread)
    wanted = lab(judging=judging)
    assert len(cells(wanted)) == (10 if spread else 9)
    found = board(wanted, records(wanted), "tiny", {"vanilla": 1.0, "goldimask-d": 1.35})
    assert found is not None and strongest(found) == "cart" and found.left_out == []
    weights = found.weights()
    apart = difference(found.grid("vanilla", 0.9), found.grid("goldimask-d", 0.9), weights)
    assert apart["average"].value == pytest.approx(0.2)
    assert apart["average"].above and apart["average"].low < 0.2 < apart["average"].high
    steps = relative(
        found.grid("vanilla", 0.9, "steps"), found.grid("goldimask-d", 0.9, "steps"), weights
    )
    assert (steps.value, steps.low, steps.high) == pytest.approx((-0.25, -0.25, -0.25))


def test_every_table_and_format_is_written(tmp_path: Path) -> None:
    wanted = lab()
    found = board(wanted, records(wanted), "tiny", {"goldimask-d": 1.35})
    assert found is not None
    summary = write_output(wanted, [found], tmp_path, {"commit": "abc", "command": "x"})
    names = summary["tables"]
    assert {"main-tiny", "paired-tiny", "decoding-tiny", "frontier-tiny", "cap-tiny"} <= set(names)
    for name in names:
        for suffix in ("csv", "md", "tex"):
            assert (tmp_path / "tables" / f"{name}.{suffix}").stat().st_size > 0
    main = (tmp_path / "tables" / "main-tiny.md").read_text()
    assert "| vs. cart | ↑ 20.0% | ↑ 20.0% | ↑ 20.0% |" in main
    assert "| **60.0 ± 0.0** |" in main.replace("goldimask-d | ", "").replace("| |", "|")
    assert "| base | 30.0 |" in main  # one model, no deviation
    paired = (tmp_path / "tables" / "paired-tiny.md").read_text()
    assert "goldimask-d - vanilla | +20.0 [" in paired and "goldimask-d - cart | +10.0 [" in paired
    ablations = (tmp_path / "tables" / "ablations-tiny.md").read_text()
    assert "goldimask-d-c2 - goldimask-d | -15.0 [" in ablations
    assert ablations.count(" - goldimask-d |") == 1 and "+20.0 [" in ablations  # steps 15 -> 18
    decoding = (tmp_path / "tables" / "decoding-tiny.md").read_text()
    assert "0.3050 ± 0.0071" in decoding and "1.35" in decoding
    for figure in ("sweep-tiny", "paired-tiny"):
        assert (tmp_path / "figures" / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
        assert (tmp_path / "figures" / f"{figure}.png").is_file()
    aims = (tmp_path / "tables" / "aims.md").read_text().splitlines()
    own = next(line for line in aims if line.startswith("| tiny: goldimask-d |"))
    assert own.endswith("| accuracy, steps |") and "-25.0 [-25.0, -25.0]" in own
    assert "accuracy" not in next(x for x in aims if x.startswith("| tiny: goldimask-d-c2"))
    goal = summary["backbones"]["tiny"]["aim"]
    assert goal["goldimask-d"]["accuracy_reached"] and goal["goldimask-d"]["steps_reached"]
    assert not goal["goldimask-d-c2"]["accuracy_reached"]  # below cart


def test_backbones_are_pooled(tmp_path: Path) -> None:
    """Equal backbones change no value; backbones that differ widen the interval."""
    wanted = lab(backbones=("tiny", "tiny-b"))
    found = [board(wanted, records(wanted), name) for name in wanted.backbones]
    one, other = (b for b in found if b is not None)
    both = pool([one, other])
    assert both is not None and both.rows == one.rows

    def apart(b: Board) -> Difference:
        first, second = (b.grid(row, 0.9) for row in ("vanilla", "goldimask-d"))
        return difference(first, second, b.weights())["average"]

    assert apart(both).value == pytest.approx(apart(one).value) == pytest.approx(0.2)
    same = apart(both)
    for record_of_seed in other.records["goldimask-d"]:
        for found_task in record_of_seed["tasks"]["0.9"].values():
            found_task["correct"] = "1" * len(found_task["correct"])
    wide = apart(both)
    assert wide.value == pytest.approx((0.2 + apart(other).value) / 2)
    assert wide.low == pytest.approx(0.2, abs=0.1) and wide.high - wide.low > 0.3
    assert wide.high - wide.low > same.high - same.low
    summary = write_output(wanted, [one, other], tmp_path, {})
    assert "paired-all" in summary["tables"] and "goldimask-d" in summary["all"]["aim"]
    text = (tmp_path / "tables" / "paired-all.md").read_text()
    assert "all (tiny, tiny-b)" in text and "problems, seeds and backbones" in text
    assert "| all: goldimask-d |" in (tmp_path / "tables" / "aims.md").read_text()
    assert (tmp_path / "figures" / "paired-all.png").is_file()
    assert pool([one]) is None


def test_a_seed_that_is_not_complete_is_left_out_and_named() -> None:
    wanted = lab()
    some = records(wanted)
    del some[Cell("tiny", "cart", 1)]
    found = board(wanted, some, "tiny")
    assert found is not None and found.seeds == (0,)
    assert found.left_out == ["seed 1: not all rows are done"]
    assert [len(r) for r in found.records.values()] == [1] * 5
    assert board(wanted, {}, "tiny") is None


def test_tables_need_their_rows() -> None:
    wanted = lab(rows=("vanilla", "cart"))
    found = board(wanted, records(wanted), "tiny")
    assert found is not None
    assert {s.name for s in sheets(found)} == {
        "main-tiny",
        "decoding-tiny",
        "paired-tiny",
        "frontier-tiny",
        "supervision-tiny",
    }


def test_bootstrap_agrees_with_the_standard_error() -> None:
    rng = np.random.default_rng(0)
    one = {"t": (rng.random((1, 400)) < 0.5).astype(float)}
    two = {"t": (rng.random((1, 400)) < 0.6).astype(float)}
    found = difference(one, two, draws(one))["average"]
    error = float((two["t"] - one["t"]).std(ddof=1) / 20)
    assert found.value == pytest.approx(mean(two) - mean(one))
    assert (found.high - found.low) / (2 * 1.96 * error) == pytest.approx(1.0, abs=0.1)


def test_seeds_widen_the_interval() -> None:
    """Differences that vary by seed alone are uncertain however many problems there are."""
    one = {"t": np.zeros((4, 300))}
    two = {"t": np.repeat(np.array([[0.0], [0.1], [0.2], [0.3]]), 300, 1)}
    found = difference(one, two, draws(one))["t"]
    assert found.value == pytest.approx(0.15) and found.high - found.low > 0.15


def test_frontier_interpolates_and_says_when_it_cannot() -> None:
    def flat(value: float) -> dict:
        return {"t": np.full((1, 10), value)}

    vanilla = {0.7: (flat(0.4), flat(10.0)), 0.9: (flat(0.6), flat(20.0))}
    weights = draws(flat(0.0), 50)
    found = frontier(vanilla, (flat(0.55), flat(15.0)), weights)
    assert isinstance(found, Difference)
    assert (found.value, found.low, found.high) == pytest.approx((0.05, 0.05, 0.05))
    assert frontier(vanilla, (flat(0.55), flat(9.0)), weights) is None


def test_unequal_problems_are_refused() -> None:
    part = {"t": {"first": 0, "every": 2, "correct": "11", "steps": [1, 1]}}
    other = {"t": {"first": 1, "every": 2, "correct": "11", "steps": [1, 1]}}
    a, b = (grid_of([x], 4, "correct") for x in (part, other))
    with pytest.raises(GoldimaskError, match="same problems"):
        difference(a, b, draws(a))


def test_tables_are_put_into_a_document(tmp_path: Path) -> None:
    (tmp_path / "run" / "tables").mkdir(parents=True)
    (tmp_path / "run" / "tables" / "main.md").write_text("| a |\n")
    page = tmp_path / "page.md"
    page.write_text("x\n<!-- lab: run/tables/main -->\nold\n<!-- end -->\ny\n")
    assert fill(page, tmp_path) == 1
    text = "x\n<!-- lab: run/tables/main -->\n| a |\n<!-- end -->\ny\n"
    assert page.read_text() == text
    assert fill(page, tmp_path) == 1 and page.read_text() == text
    page.write_text("<!-- lab: run/nothing -->\n<!-- end -->\n")
    with pytest.raises(GoldimaskError, match="no table"):
        fill(page, tmp_path)


def test_thresholds_are_compared_on_common_problems() -> None:
    """At the loose threshold only the first 20 problems are judged, all of them right."""
    judging = JudgingSection(problems=PROBLEMS, taus=(0.7, 0.9), tasks=TASKS, sweep_problems=20)
    wanted = lab(judging=judging, seeds=(0,))
    some = records(wanted)
    for one in some.values():
        for part in one["tasks"]["0.7"].values():
            part.update(correct="1" * 20, steps=part["steps"][:20])
    found = board(wanted, some, "tiny")
    assert found is not None and found.common == 20 and found.problems == 60
    assert mean(found.grid("vanilla", 0.9)) == pytest.approx(0.4)
    assert mean(found.shared("vanilla", 0.9)) == pytest.approx(1.0)  # the first 24 are right
    made = {s.name: s for s in sheets(found)}
    assert "20 problems per task" in made["frontier-tiny"].note
    row = next(r for r in made["decoding-tiny"].rows if r[0] == "vanilla")
    assert row[1:5] == ("100.0", "15.00", "100.0", "20.00")
    assert "60 problems per task" in made["main-tiny"].note
