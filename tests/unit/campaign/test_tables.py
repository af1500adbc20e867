"""Tables and figures from answers whose differences are known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fill import fill
from goldimask.bootstrap import Difference, difference, mean, relative
from goldimask.campaign.board import Board, board, pool
from goldimask.campaign.grid import Finished
from goldimask.campaign.output import write_output
from goldimask.campaign.settings import (
    Campaign,
    Cell,
    JudgingSection,
    cells,
    problems_at,
    shard,
)
from goldimask.campaign.tables import strongest, tables
from goldimask.records import Decoding, Outcome

PROBLEMS = 60
TASKS = ("tiny-sort", "tiny-sudoku")
SHARES = {"base": 0.3, "vanilla": 0.4, "cart": 0.5, "goldimask-d": 0.6, "goldimask-d-c2": 0.45}
STEPS = {"base": 10, "vanilla": 20, "cart": 20, "goldimask-d": 15, "goldimask-d-c2": 18}
KINDS = {k: {"candidates": 0.25, "targets": 0.3, "weight": 0.2} for k in ("words", "wrong")}


def campaign(**changes) -> Campaign:
    judging = JudgingSection(problems=PROBLEMS, taus=(0.7, 0.9), tasks=TASKS)
    rows = ("base", "vanilla", "cart", "goldimask-d", "goldimask-d-c2")
    return Campaign(**{"rows": rows, "judging": judging, "seeds": (0, 1), **changes})


def answer(task: str, tau: float, index: int, correct: bool, steps: int) -> Outcome:
    return Outcome(
        task=task,
        version="1",
        protocol="fixed",
        item=f"p{index}",
        index=index,
        length=64,
        seed=0,
        decoding=Decoding(decoder="threshold", options={"tau": tau, "block": 32}),
        prompt="",
        output="",
        extracted="",
        correct=correct,
        detail="",
        hits=0.0,
        of=0.0,
        steps=steps,
        seconds=0.1,
    )


def finished(cell: Cell, wanted: Campaign, share: float | None = None) -> Finished:
    """Problem i is right when it is among the first `share` of all problems."""
    first, every = shard(wanted, cell.seed)
    outcomes = tuple(
        answer(
            task,
            tau,
            i,
            i < round(((SHARES[cell.row] if share is None else share) + tau - 0.9) * PROBLEMS),
            STEPS[cell.row] - (tau < 0.8) * 5,
        )
        for tau in wanted.judging.taus
        for task in TASKS
        for i in range(first, problems_at(wanted.judging, tau), every)
    )
    if cell.row == "base":
        return Finished(outcomes, {})
    loss = 0.3 + cell.seed / 100
    facts = {"eval_loss_first": 0.5, "eval_loss_last": loss, "classes": KINDS}
    return Finished(outcomes, {**facts, "metrics": {"n_eff_ratio": 0.5}})


def all_finished(wanted: Campaign) -> dict[Cell, Finished]:
    return {cell: finished(cell, wanted) for cell in cells(wanted)}


def made_board(wanted: Campaign, backbone: str = "tiny", **costs: float) -> Board:
    found = board(wanted, all_finished(wanted), backbone, costs)
    assert found is not None
    return found


@pytest.mark.parametrize("spread", [False, True])
def test_known_differences_come_out(spread: bool) -> None:
    judging = JudgingSection(problems=PROBLEMS, taus=(0.7, 0.9), tasks=TASKS, spread=spread)
    wanted = campaign(judging=judging)
    assert len(cells(wanted)) == (10 if spread else 9)
    found = made_board(wanted)
    assert strongest(found) == "cart" and found.left_out == []
    weights = found.weights()
    apart = difference(found.grid("vanilla", 0.9), found.grid("goldimask-d", 0.9), weights)
    assert apart["average"].value == pytest.approx(0.2)
    assert apart["average"].above and apart["average"].low < 0.2 < apart["average"].high
    steps = relative(
        found.grid("vanilla", 0.9, "steps"), found.grid("goldimask-d", 0.9, "steps"), weights
    )
    assert (steps.value, steps.low, steps.high) == pytest.approx((-0.25, -0.25, -0.25))


def test_every_table_and_format_is_written(tmp_path: Path) -> None:
    wanted = campaign()
    found = board(wanted, all_finished(wanted), "tiny", {"goldimask-d": 1.35})
    assert found is not None
    summary = write_output(wanted, [found], tmp_path, {"commit": "abc", "command": "x"})
    names = summary["tables"]
    assert {"main-tiny", "paired-tiny", "decoding-tiny", "frontier-tiny", "cap-tiny"} <= set(names)
    for name in names:
        for suffix in ("csv", "md", "tex"):
            assert (tmp_path / "tables" / f"{name}.{suffix}").stat().st_size > 0
    main = (tmp_path / "tables" / "main-tiny.md").read_text()
    assert "| vs. cart | ↑ 20.0% | ↑ 20.0% | ↑ 20.0% |" in main
    assert "| goldimask-d | **60.0 ± 0.0** |" in main
    assert "| base | 30.0 |" in main  # one model, no deviation
    paired = (tmp_path / "tables" / "paired-tiny.md").read_text()
    assert "goldimask-d - vanilla | +20.0 [" in paired and "goldimask-d - cart | +10.0 [" in paired
    ablations = (tmp_path / "tables" / "ablations-tiny.md").read_text()
    assert "goldimask-d-c2 - goldimask-d | -15.0 [" in ablations
    assert ablations.count(" - goldimask-d |") == 1 and "+20.0 [" in ablations  # steps 15 -> 18
    decoding = (tmp_path / "tables" / "decoding-tiny.md").read_text()
    assert "0.3050 ± 0.0071" in decoding and "1.35" in decoding and "0.50 |" in decoding
    supervision = (tmp_path / "tables" / "supervision-tiny.md").read_text()
    assert "| vanilla | 30.0 | 20.0 | 30.0 | 20.0 |" in supervision
    for figure in ("steps-tiny", "paired-tiny"):
        assert (tmp_path / "figures" / f"{figure}.pdf").read_bytes().startswith(b"%PDF")
        assert (tmp_path / "figures" / f"{figure}.png").is_file()
    own = summary["backbones"]["tiny"]["against_vanilla"]["goldimask-d"]
    assert own["accuracy"][0] == pytest.approx(0.2) and own["steps"][0] == pytest.approx(-0.25)


def test_backbones_are_pooled(tmp_path: Path) -> None:
    """Equal backbones change no value; backbones that differ widen the interval."""
    wanted = campaign(backbones=("tiny", "tiny-b"))
    one, other = (made_board(wanted, name) for name in wanted.backbones)
    both = pool([one, other])
    assert both is not None and both.rows == one.rows

    def apart(b: Board) -> Difference:
        first, second = (b.grid(row, 0.9) for row in ("vanilla", "goldimask-d"))
        return difference(first, second, b.weights())["average"]

    same = apart(both)
    assert same.value == pytest.approx(apart(one).value) == pytest.approx(0.2)
    better = [finished(Cell("tiny-b", "goldimask-d", s), wanted, 1.0) for s in (0, 1)]
    other = replace(other, cells={**other.cells, "goldimask-d": better}, made={})
    both = pool([one, other])
    assert both is not None
    wide = apart(both)
    assert wide.value == pytest.approx((0.2 + apart(other).value) / 2)
    assert wide.low == pytest.approx(0.2, abs=0.1) and wide.high - wide.low > 0.3
    assert wide.high - wide.low > same.high - same.low
    summary = write_output(wanted, [one, other], tmp_path, {})
    assert "paired-all" in summary["tables"] and "goldimask-d" in summary["all"]
    text = (tmp_path / "tables" / "paired-all.md").read_text()
    assert "all (tiny, tiny-b)" in text and "problems, seeds and backbones" in text
    assert (tmp_path / "figures" / "paired-all.png").is_file()
    assert pool([one]) is None


def test_a_seed_that_is_not_complete_is_left_out_and_named() -> None:
    wanted = campaign()
    some = all_finished(wanted)
    del some[Cell("tiny", "cart", 1)]
    found = board(wanted, some, "tiny")
    assert found is not None and found.seeds == (0,)
    assert found.left_out == ["seed 1: not all rows are done"]
    assert [len(r) for r in found.cells.values()] == [1] * 5
    assert board(wanted, {}, "tiny") is None


def test_tables_need_their_rows() -> None:
    found = made_board(campaign(rows=("vanilla", "cart")))
    kinds = ("main", "decoding", "paired", "frontier", "supervision")
    assert {t.name for t in tables(found)} == {f"{kind}-tiny" for kind in kinds}


def test_thresholds_are_compared_on_common_problems() -> None:
    """At the loose threshold only the first 20 problems are judged."""
    judging = JudgingSection(problems=PROBLEMS, taus=(0.7, 0.9), tasks=TASKS, sweep_problems=20)
    found = made_board(campaign(judging=judging, seeds=(0,)))
    assert found.common == 20 and found.problems == 60
    assert mean(found.grid("vanilla", 0.9)) == pytest.approx(0.4)
    assert mean(found.shared("vanilla", 0.9)) == pytest.approx(1.0)  # the first 24 are right
    made = {t.name: t for t in tables(found)}
    assert "20 problems per task" in made["frontier-tiny"].note
    row = next(r for r in made["decoding-tiny"].rows if r[0] == "vanilla")
    assert row[1:5] == ("60.0", "15.00", "100.0", "20.00")
    assert "60 problems per task" in made["main-tiny"].note


def test_tables_are_put_into_a_document(tmp_path: Path) -> None:
    (tmp_path / "run" / "tables").mkdir(parents=True)
    (tmp_path / "run" / "tables" / "main.md").write_text("| a |\n")
    page = tmp_path / "page.md"
    page.write_text("x\n<!-- lab: run/tables/main -->\nold\n<!-- end -->\ny\n")
    text = "x\n<!-- lab: run/tables/main -->\n| a |\n<!-- end -->\ny\n"
    for _ in range(2):
        assert fill(page, tmp_path) == 1 and page.read_text() == text
