"""A figure once, drawn two ways: inline SVG on a page, PDF and PNG by matplotlib.

Lines differ in colour (Okabe and Ito's palette, safe for colour-blind readers) and in dash or
marker. Files carry no dates, so the same data gives the same bytes.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldimask.files import write_bytes
from goldimask.report.page import section
from goldimask.report.page import significant as sig

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#000000")
DASHES: tuple[Any, ...] = ("-", "-", "--", "--", ":", ":")
MARKERS = "osD^vPX"
POINTS = 400  # of one line on a page


@dataclass(frozen=True)
class Line:
    name: str
    points: tuple[tuple[float, float], ...]
    style: int | None = None  # the place of its run, where a figure lacks some of the runs


@dataclass(frozen=True)
class Figure:
    """Lines over two axes, with a name (of its files) and a title."""

    name: str
    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    markers: bool = False


def write_figure(figure: Figure, folder: Path) -> list[Path]:
    """`NAME.pdf` and `NAME.png`."""
    from matplotlib.figure import Figure as Drawing

    drawn = Drawing(figsize=(4.6, 3.0), layout="constrained")
    axis = drawn.subplots()
    for place, line in enumerate(figure.lines):
        i = place if line.style is None else line.style
        axis.plot(
            [p[0] for p in line.points],
            [p[1] for p in line.points],
            color=COLOURS[i % len(COLOURS)],
            linestyle=DASHES[i % len(DASHES)],
            marker=MARKERS[i % len(MARKERS)] if figure.markers else None,
            markersize=4,
            linewidth=1.4,
            label=literal(line.name),
        )
    axis.set_xlabel(literal(figure.x))
    axis.set_ylabel(literal("" if figure.y == figure.title else figure.y))
    axis.set_title(literal(figure.title), fontsize=10, loc="left")
    axis.grid(alpha=0.25, linewidth=0.5)
    axis.legend(frameon=False, fontsize=8)
    out = []
    formats: dict[str, dict[str, Any]] = {
        "pdf": {"metadata": {"CreationDate": None, "ModDate": None}},
        "png": {"dpi": 180, "metadata": {"Software": None}},
    }
    for suffix, options in formats.items():
        buffer = io.BytesIO()
        drawn.savefig(buffer, format=suffix, **options)
        out.append(write_bytes(folder / f"{figure.name}.{suffix}", buffer.getvalue()))
    return out


def literal(text: str) -> str:
    """Names as they are: matplotlib would read `$` as mathematics and hide a leading `_`."""
    text = text.replace("$", r"\$")
    return f"\u200a{text}" if text.startswith("_") else text


def figures_section(title: str, figures: Sequence[Figure], note: str = "") -> dict[str, Any]:
    """Charts of a page; long lines are thinned to what can be seen."""
    charts = [
        {
            "name": f.title,
            "x": f.x,
            "y": f.y,
            "markers": f.markers,
            "lines": [{"name": x.name, "points": thinned(x.points)} for x in f.lines],
        }
        for f in figures
    ]
    return section("curves", title, {"charts": charts}, note)


def thinned(points: Sequence[tuple[float, float]]) -> list[list[float]]:
    step = max(1, -(-len(points) // POINTS))
    kept = list(points[::step])
    if points and kept[-1] != points[-1]:
        kept.append(points[-1])
    return [[sig(float(x), 6), sig(float(y), 5)] for x, y in kept]
