"""A figure as data, drawn by matplotlib as PDF and PNG; pages draw the same data as inline SVG.

One palette (safe for colour-blind readers, the same on pages): a method keeps the colour of its
family everywhere, the GoldiMask rows one of them; lines of one colour differ in dash and marker.
Names of no known family take the other colours in order. Files carry no dates, so that the same
data gives the same bytes.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from goldimask.files import write_bytes
from goldimask.tables import file_name
from goldimask.thresholds import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

PALETTE = ("#0072b2", "#d55e00", "#009e73", "#aa5c8c", "#8a6d00", "#56707f", "#767676")
FAMILIES = {  # of methods -> place in the palette; the last colour is that of controls
    "vanilla": 0,
    "goldimask": 1,
    "lift": 2,
    "gift": 3,
    "cart": 4,
    "agdo": 5,
    "base": 6,
    "random": 6,
    "static": 6,
    "uniform": 6,
}
DASHES = ("-", "--", ":", "-.")
MARKERS = "osD^vPX"
FORMATS: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None, "ModDate": None}},
    "png": {"dpi": 160, "metadata": {"Software": None}},
}
WIDE = 3  # charts side by side, unless a figure says otherwise
LONG = 40  # characters of a title, beyond which its panel has a line of its own
INSIDE = 4  # names that a legend inside of a chart leaves room for


@dataclass(frozen=True)
class Line:
    """Points of one name; `within` holds (low, high) of each, a band or the bars of dots."""

    name: str
    points: tuple[tuple[float, float], ...]
    family: str = ""  # the method that names its colour, where its own name does not
    look: Literal["line", "dots", "both"] = "line"
    within: tuple[tuple[float, float], ...] = ()
    dashed: bool | None = None  # None: told apart from other lines of its colour


@dataclass(frozen=True)
class Chart:
    """Lines over two axes."""

    title: str
    x: str
    y: str
    lines: tuple[Line, ...]
    zero: bool = False  # a thin line at y = 0


@dataclass(frozen=True)
class Bar:
    """A value with its interval."""

    name: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Intervals:
    """Values with intervals, one below the other, against a line at zero."""

    title: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Figure:
    """Charts with a name (of their files) and a title; those that share names share a legend."""

    name: str
    title: str
    charts: tuple[Chart, ...] | tuple[Intervals, ...]
    wide: int = WIDE  # charts side by side

    @property
    def lines(self) -> list[Line]:
        return [line for c in self.charts if isinstance(c, Chart) for line in c.lines]


@dataclass(frozen=True)
class Style:
    place: int  # in the palette
    dash: str
    marker: str

    @property
    def colour(self) -> str:
        return PALETTE[self.place]


def styles(lines: Iterable[Line]) -> dict[str, Style]:
    """How each name looks, in every chart that has it."""
    families = {line.name: line.family or line.name for line in lines}
    taken = {known(family) for family in families.values()}
    free = [place for place in range(len(PALETTE) - 1) if place not in taken] or [0]
    strangers = list(dict.fromkeys(f for f in families.values() if known(f) is None))
    used: dict[int, int] = {}
    out = {}
    for name, family in families.items():
        place = known(family)
        if place is None:
            place = free[strangers.index(family) % len(free)]
        count = used[place] = used.get(place, -1) + 1
        out[name] = Style(
            place, DASHES[count % len(DASHES)], MARKERS[(place + count) % len(MARKERS)]
        )
    return out


def known(name: str) -> int | None:
    """The palette's place of a method: `goldimask-d-c2` is a GoldiMask, `gift@1e-4` is GIFT."""
    return FAMILIES.get(re.split("[-@*]", name.lower())[0])


def steps_figure(
    points: Sequence[Point], name: str = "steps", families: Mapping[str, str] | None = None
) -> Figure:
    """Accuracy against decoding steps (paper, Figures 2 and 3) of one decoder.

    A chart per task and length (a line of charts) and panel (side by side). Markers are the
    thresholds, from loose (left) to tight; baselines are dashed. Upper left is better. `families`
    names the method of a row whose name does not.
    """
    families = families or {}
    panels = list(dict.fromkeys(p.panel for p in points))
    charts = []
    for task, length in dict.fromkeys((p.task, p.length) for p in points):
        for panel in panels:
            mine = [p for p in points if (p.task, p.length, p.panel) == (task, length, panel)]
            lines = []
            for run in dict.fromkeys(p.run for p in mine):
                line = sorted((p for p in mine if p.run == run), key=lambda p: p.tau)
                places = tuple((p.steps, 100 * p.accuracy) for p in line)
                look = (families.get(run, ""), "both")
                lines.append(Line(run, places, *look, dashed=line[0].baseline))
            title = f"{task}, L = {length}" if length else task
            title = f"{panel}: {title}" if len(panels) > 1 else title
            charts.append(Chart(title, "mean steps per example", "accuracy (%)", tuple(lines)))
    wide = len(panels) if len(panels) > 1 else WIDE
    return Figure(name, "Accuracy against decoding steps", tuple(charts), wide)


# --- drawing -------------------------------------------------------------------------------------


def write(figure: Figure, folder: Path) -> list[Path]:
    """`NAME.pdf` and `NAME.png`."""
    return save(draw(figure), folder / file_name(figure.name))


def save(drawing: Drawing, path: Path) -> list[Path]:
    """`PATH.pdf` and `PATH.png`."""
    out = []
    for suffix, options in FORMATS.items():
        buffer = io.BytesIO()
        drawing.savefig(buffer, format=suffix, **options)
        out.append(write_bytes(path.with_name(f"{path.name}.{suffix}"), buffer.getvalue()))
    return out


def draw(figure: Figure) -> Drawing:
    """The figure by matplotlib; nothing is shown or written."""
    from matplotlib.figure import Figure as Drawing

    wide = min(figure.wide, len(figure.charts))
    high = -(-len(figure.charts) // wide)
    looks = styles(figure.lines)
    apart = disjoint(figure)
    outside = bool(looks) and not apart and (len(figure.charts) > 1 or len(looks) > INSIDE)
    legend = 1.6 if outside else 0.0
    tall = max((len(c.bars) * 0.24 for c in figure.charts if isinstance(c, Intervals)), default=2.1)
    size = ((4.4 if wide == 1 else 3.1 * wide) + legend, (0.8 + tall) * high)
    drawing = Drawing(figsize=size, layout="constrained")
    axes = drawing.subplots(high, wide, squeeze=False, sharey=not figure.lines).ravel()
    for axis in axes[len(figure.charts) :]:
        axis.set_axis_off()
    for axis, chart in zip(axes, figure.charts, strict=False):
        title = chart.title if len(chart.title) < LONG else chart.title.replace(": ", "\n", 1)
        axis.set_title(literal(title), fontsize=9, loc="left")
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25, linewidth=0.5, axis="both" if isinstance(chart, Chart) else "x")
        axis.spines[["top", "right"]].set_visible(False)
        if isinstance(chart, Chart):
            draw_lines(axis, chart, looks)
        else:
            draw_intervals(axis, chart)
    handles: dict[str, Any] = {}
    for i, axis in enumerate(axes):
        if i % wide and axis.get_ylabel() == axes[i - i % wide].get_ylabel():
            axis.set_ylabel("")  # as at the left of its row
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
        if apart:
            axis.legend(fontsize=7, frameon=False)
    if apart:
        return drawing
    if outside:
        place: Any = "outside right upper"  # unknown to matplotlib's type hints
        drawing.legend(handles.values(), handles.keys(), loc=place, fontsize=7, frameon=False)
    elif len(handles) > 1:
        axes[0].legend(handles.values(), handles.keys(), fontsize=7, frameon=False)
    return drawing


def disjoint(figure: Figure) -> bool:
    """Charts of which no two share a name: each has a legend of its own."""
    names = [{line.name for line in c.lines} for c in figure.charts if isinstance(c, Chart)]
    return len(names) > 1 and len(set().union(*names)) == sum(map(len, names))


def draw_lines(axis: Axes, chart: Chart, looks: dict[str, Style]) -> None:
    """Lines with bands, dots with bars; a name is in the legend once."""
    named = set()
    for line in chart.lines:
        look = looks[line.name]
        dash = look.dash if line.dashed is None else ("--" if line.dashed else "-")
        x, y = [p[0] for p in line.points], [p[1] for p in line.points]
        low, high = [w[0] for w in line.within], [w[1] for w in line.within]
        if line.within and line.look == "dots":
            axis.vlines(x, low, high, color=look.colour, linewidth=1.2)
        elif line.within:
            axis.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)
        axis.plot(
            x,
            y,
            color=look.colour,
            linestyle="" if line.look == "dots" else dash,
            marker="" if line.look == "line" and len(x) > 1 else look.marker,
            markersize=4,
            linewidth=1.3,
            label=None if line.name in named else literal(line.name),
        )
        named.add(line.name)
    if all(float(x).is_integer() for line in chart.lines for x, _ in line.points):
        axis.locator_params(axis="x", integer=True)
    if chart.zero:
        axis.axhline(0, color="black", linewidth=0.6)
    axis.set_xlabel(literal(chart.x), fontsize=8)
    axis.set_ylabel(literal("" if chart.y == chart.title else chart.y), fontsize=8)


def draw_intervals(axis: Axes, chart: Intervals) -> None:
    for i, bar in enumerate(chart.bars):
        place = known(bar.name)
        colour = PALETTE[-1 if place is None else place]
        axis.plot([bar.low, bar.high], [i, i], color=colour, linewidth=1.6)
        axis.plot([bar.value], [i], "o", color=colour, markersize=4)
    axis.axvline(0, color="black", linewidth=0.7)
    axis.set_yticks(range(len(chart.bars)), [literal(b.name) for b in chart.bars], fontsize=7)
    axis.set_ylim(len(chart.bars) - 0.5, -0.5)
    axis.locator_params(axis="x", nbins=6)  # labels of small numbers are wide


def literal(text: str) -> str:
    """Names as they are: matplotlib would read `$` as mathematics and hide a leading `_`."""
    text = text.replace("$", r"\$")
    return f"\u200a{text}" if text.startswith("_") else text
