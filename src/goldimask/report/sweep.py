"""The sweep as the paper shows it: accuracy against steps, and the table of step reductions.

One panel per task and length; markers are the thresholds from left (loose) to right (tight), lines
connect measured settings. Candidates are solid, baselines dashed. Upper left is better.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from goldimask.eval.thresholds import Point, reductions
from goldimask.files import write_bytes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKERS = "osD^vPX"


def figure(points: Sequence[Point]) -> Any:
    """A matplotlib figure; nothing is shown or written."""
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys((p.task, p.length) for p in points))
    runs = list(dict.fromkeys(p.run for p in points))
    drawn = Figure(figsize=(1.2 + 3.2 * len(panels), 3.2), layout="constrained")
    axes = drawn.subplots(1, len(panels), squeeze=False)[0]
    for axis, (task, length) in zip(axes, panels, strict=True):
        for i, run in enumerate(runs):
            line = sorted(
                (p for p in points if (p.run, p.task, p.length) == (run, task, length)),
                key=lambda p: p.tau,
            )
            if not line:
                continue
            axis.plot(
                [p.steps for p in line],
                [100 * p.accuracy for p in line],
                color=COLOURS[i % len(COLOURS)],
                marker=MARKERS[i % len(MARKERS)],
                linestyle="--" if line[0].baseline else "-",
                markersize=4.5,
                linewidth=1.3,
                label=run,
            )
        axis.set_title(f"{task}, L = {length}", fontsize=9)
        axis.set_xlabel("mean steps per example", fontsize=8)
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25, linewidth=0.5)
    axes[0].set_ylabel("accuracy (%)", fontsize=8)
    handles, labels = axes[0].get_legend_handles_labels()
    drawn.legend(handles, labels, loc="outside right upper", fontsize=7, frameon=False)
    return drawn


def write_figure(points: Sequence[Point], folder: Path | str) -> list[Path]:
    """`sweep.pdf` and `sweep.png`, the same bytes for the same points."""
    drawn = figure(points)
    out = []
    for suffix, options in (
        ("pdf", {"metadata": {"CreationDate": None, "ModDate": None}}),
        ("png", {"dpi": 200, "metadata": {"Software": None}}),
    ):
        buffer = io.BytesIO()
        drawn.savefig(buffer, format=suffix, **options)
        out.append(write_bytes(Path(folder) / f"sweep.{suffix}", buffer.getvalue()))
    return out


def point_rows(points: Sequence[Point]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of all settings."""
    columns = ("run", "task", "L", "tau", "accuracy %", "steps", "n")
    return columns, [
        (
            p.run + ("" if p.baseline else " *"),
            p.task,
            str(p.length),
            f"{p.tau:g}",
            f"{100 * p.accuracy:.1f}",
            f"{p.steps:.1f}",
            str(p.n),
        )
        for p in points
    ]


def reduction_rows(points: Sequence[Point]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Columns and rows of the step reductions."""
    columns = ("run", "task", "L", "tau", "steps", "saved %", "points", "against")
    return columns, [
        (
            r.run,
            r.task,
            str(r.length),
            f"{r.tau:g}",
            f"{r.steps:.1f}",
            f"{100 * r.reduction:+.1f}",
            f"{r.accuracy_difference:+.1f}",
            f"{r.against} ({r.steps_baseline:.1f})",
        )
        for r in reductions(points)
    ]


def markdown(points: Sequence[Point]) -> str:
    """Both tables as Markdown."""
    parts = []
    for title, (columns, rows) in (
        ("Accuracy and steps (* candidate)", point_rows(points)),
        ("Steps against the most accurate baseline per threshold", reduction_rows(points)),
    ):
        if rows:
            lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
            lines += [" | ".join(row) for row in rows]
            parts.append(f"### {title}\n\n" + "\n".join(f"| {x} |" for x in lines))
    return "\n\n".join(parts) + "\n"
