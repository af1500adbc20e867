"""What a campaign ends in: tables, figures, one summary.

tables/*.{csv,md,tex}   figures/*.{pdf,png}   report.md   summary.json
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goldimask import figures, tables
from goldimask.bootstrap import Difference, difference, mean, relative
from goldimask.campaign.board import Board, pool, short
from goldimask.campaign.settings import BASE, BASELINES, Campaign, campaign_dict
from goldimask.campaign.tables import paired_table, references, strongest
from goldimask.campaign.tables import tables as board_tables
from goldimask.figures import Bar, Figure, Intervals, steps_figure
from goldimask.files import write_json, write_text
from goldimask.stats import finite
from goldimask.tables import Table
from goldimask.thresholds import Point


def write_output(
    campaign: Campaign, boards: Sequence[Board], folder: Path, facts: dict[str, Any]
) -> dict[str, Any]:
    """Tables, figures, report and summary; returns the summary."""
    made: list[Table] = [table for board in boards for table in board_tables(board)]
    drawn: list[Figure] = [figure for board in boards for figure in board_figures(board)]
    together = pool(boards)
    if together is not None and "vanilla" in together.rows and len(together.rows) > 1:
        title = "Paired differences over all backbones"
        made.append(paired_table(together, "paired", title, references(together)))
        drawn += board_figures(together)
    for table in made:
        tables.write(table, folder / "tables")
    for figure in drawn:
        figures.write(figure, folder / "figures")
    summary = {
        **facts,
        "campaign": campaign_dict(campaign),
        "backbones": {board.backbone: results(board) for board in boards},
        "all": None if together is None else against_vanilla(together),
        "tables": [table.name for table in made],
        "figures": [figure.name for figure in drawn],
    }
    summary = finite(summary)
    write_json(folder / "summary.json", summary)
    write_text(folder / "report.md", report(made, summary))
    return summary


def report(made: Sequence[Table], summary: dict[str, Any]) -> str:
    """All tables on one page."""
    head = f"# Comparison\n\n    {summary.get('command', '')}\n\ncommit {summary.get('commit')}\n"
    return "\n".join([head, *(f"## {t.title}\n\n{tables.markdown(t)}" for t in made)])


def results(board: Board) -> dict[str, Any]:
    """Figures of one backbone."""
    rows = {
        row: {
            "accuracy": {f"{t:g}": mean(board.grid(row, t)) for t in board.taus},
            "steps": {f"{t:g}": mean(board.grid(row, t, "steps")) for t in board.taus},
            "cost": board.costs.get(row),
        }
        for row in board.rows
    }
    return {
        "seeds": list(board.seeds),
        "problems": board.problems,
        "rows": rows,
        "strongest_baseline": strongest(board),
        "against_vanilla": against_vanilla(board),
        "left_out": board.left_out,
    }


def against_vanilla(board: Board) -> dict[str, dict[str, list[float]]]:
    """Row -> average accuracy and steps against Vanilla, as [value, low, high]."""
    if "vanilla" not in board.rows:
        return {}
    found = {row: gaps(board, row) for row in board.rows if row != "vanilla"}
    return {
        row: {"accuracy": plain(accuracy), "steps": plain(steps)}
        for row, (accuracy, steps) in found.items()
    }


def gaps(board: Board, row: str) -> tuple[Difference, Difference]:
    """(accuracy, steps) of a row against Vanilla at the main threshold."""
    tau, weights = board.main_tau, board.weights()
    accuracy = difference(board.grid("vanilla", tau), board.grid(row, tau), weights)["average"]
    before, after = (board.grid(r, tau, "steps") for r in ("vanilla", row))
    return accuracy, relative(before, after, weights)


def plain(d: Difference) -> list[float]:
    return [d.value, d.low, d.high]


def board_figures(board: Board) -> list[Figure]:
    """Accuracy against steps (paper, Figure 2), and the differences against Vanilla."""
    out = []
    if len(board.taus) > 1:
        out.append(steps_figure(step_points(board), f"steps-{board.backbone}"))
    rows = [r for r in board.rows if r not in ("vanilla", BASE)]
    if "vanilla" in board.rows and rows:
        found = {row: gaps(board, row) for row in rows}
        kinds = ("accuracy (points), against Vanilla", "decoding steps (%), against Vanilla")
        charts = tuple(
            Intervals(
                kind,
                tuple(
                    Bar(row, 100 * d[i].value, 100 * d[i].low, 100 * d[i].high)
                    for row, d in found.items()
                ),
            )
            for i, kind in enumerate(kinds)
        )
        out.append(Figure(f"paired-{board.backbone}", "Against Vanilla", charts))
    return out


def step_points(board: Board) -> list[Point]:
    """The average first, then every task."""
    out = []
    for row in board.rows:
        baseline = row in (*BASELINES, BASE) or row.startswith("random")
        for tau in board.taus:
            correct, steps = board.shared(row, tau), board.shared(row, tau, "steps")
            one = {"average": (correct, steps)} | {
                task: ({task: correct[task]}, {task: steps[task]}) for task in correct
            }
            for task, (c, s) in one.items():
                place = (row, short(task), 0, tau, mean(c), mean(s))
                out.append(Point(*place, n=board.common, baseline=baseline))
    return out
