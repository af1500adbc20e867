"""Figures of a comparison: accuracy against steps (paper, Figure 2), and the paired differences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from goldimask.campaign.paired import difference, mean, relative
from goldimask.campaign.scores import Board, short
from goldimask.campaign.settings import BASE, BASELINES
from goldimask.eval.thresholds import Point
from goldimask.studies.figures import save


def sweep_points(board: Board) -> list[Point]:
    """Average first, then every task."""
    out = []
    for row in board.rows:
        for tau in board.taus:
            correct, steps = board.shared(row, tau), board.shared(row, tau, "steps")
            baseline = row in (*BASELINES, BASE) or row.startswith("random")
            for task in ("average", *correct):
                one = correct if task == "average" else {task: correct[task]}
                two = steps if task == "average" else {task: steps[task]}
                out.append(
                    Point(
                        *(row, short(task), 0, tau, mean(one), mean(two)),
                        board.common,
                        baseline,
                    )
                )
    return out


def write_figures(board: Board, folder: Path) -> list[Path]:
    """`sweep-BACKBONE` and `paired-BACKBONE`, as PDF and PNG."""
    name = board.backbone
    drawn = {}
    if len(board.taus) > 1:
        drawn[f"sweep-{name}"] = sweep_figure(sweep_points(board))
    if "vanilla" in board.rows and len(board.rows) > 1:
        drawn[f"paired-{name}"] = paired_figure(board)
    return [p for stem, figure in drawn.items() for p in save(figure, folder, stem)]


def sweep_figure(points: list[Point]) -> Any:
    """One panel per task; candidates solid, baselines dashed."""
    from matplotlib.figure import Figure

    from goldimask.report.sweep import COLOURS, MARKERS

    panels = list(dict.fromkeys(p.task for p in points))
    runs = list(dict.fromkeys(p.run for p in points))
    wide = min(3, len(panels))
    high = -(-len(panels) // wide)
    figure = Figure(figsize=(1.8 + 3.0 * wide, 2.7 * high), layout="constrained")
    axes = figure.subplots(high, wide, squeeze=False).ravel()
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis, task in zip(axes, panels, strict=False):
        for i, run in enumerate(runs):
            line = sorted(
                (p for p in points if (p.run, p.task) == (run, task)), key=lambda p: p.tau
            )
            axis.plot(
                [p.steps for p in line],
                [100 * p.accuracy for p in line],
                color=COLOURS[i % len(COLOURS)],
                marker=MARKERS[(i + i // len(COLOURS)) % len(MARKERS)],
                linestyle="--" if line[0].baseline else "-",
                markersize=4,
                linewidth=1.2,
                label=run,
            )
        axis.set_title(task, fontsize=9)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25, linewidth=0.5)
        axis.set_xlabel("mean steps per example", fontsize=7)
        axis.set_ylabel("accuracy (%)", fontsize=7)
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=7, frameon=False)
    return figure


def paired_figure(board: Board) -> Any:
    """Average accuracy and steps against Vanilla, with intervals."""
    from matplotlib.figure import Figure

    tau, weights = board.main_tau, board.weights()
    rows = [r for r in board.rows if r not in ("vanilla", BASE)]
    accuracy = [difference(board.grid("vanilla", tau), board.grid(r, tau), weights)["average"]
                for r in rows]  # fmt: skip
    steps = [
        relative(board.grid("vanilla", tau, "steps"), board.grid(r, tau, "steps"), weights)
        for r in rows
    ]
    figure = Figure(figsize=(7.6, 1.0 + 0.26 * max(1, len(rows))), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    titles = ("accuracy (points)", "decoding steps (%)")
    for axis, found, title in zip(axes, (accuracy, steps), titles, strict=True):
        for i, (row, d) in enumerate(zip(rows, found, strict=True)):
            own = row not in BASELINES and not row.startswith("random")
            colour = "#d55e00" if own else "#555555"
            axis.plot([100 * d.low, 100 * d.high], [i, i], color=colour, linewidth=1.6)
            axis.plot([100 * d.value], [i], "o", color=colour, markersize=4)
        axis.axvline(0, color="black", linewidth=0.7)
        axis.set_title(f"{title}, against Vanilla", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25, axis="x", linewidth=0.5)
    axes[0].set_yticks(range(len(rows)), rows, fontsize=7)
    axes[0].invert_yaxis()
    return figure
