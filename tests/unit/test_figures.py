"""Figures: the palette, the same bytes for the same data, nothing read as markup."""

from __future__ import annotations

from pathlib import Path

from goldimask.figures import (
    FAMILIES,
    PALETTE,
    Bar,
    Chart,
    Figure,
    Intervals,
    Line,
    draw,
    known,
    literal,
    steps_figure,
    styles,
    write,
)
from goldimask.presets import MAIN
from goldimask.thresholds import Point


def line(name: str, family: str = "", **options) -> Line:
    return Line(name, ((0.0, 1.0), (1.0, 2.0)), family, **options)


def test_a_method_keeps_the_colour_of_its_family():
    assert all(known(name) is not None for name in MAIN)
    assert known("goldimask-d-c2") == known("goldimask-a") != known("vanilla")
    alone = styles([line("vanilla")])["vanilla"]
    among = styles([line("lift-2"), line("x"), line("vanilla")])["vanilla"]
    assert alone.colour == among.colour == PALETTE[FAMILIES["vanilla"]]


def test_lines_of_one_colour_can_be_told_apart():
    found = styles([line("run 1", "goldimask-d"), line("run 2", "goldimask-d"), line("other")])
    one, two, other = found.values()
    assert one.colour == two.colour != other.colour
    assert one.dash != two.dash and one.marker != two.marker
    many = styles([line(f"s{i}") for i in range(6)])
    assert len({s.colour for s in many.values()}) == 6


def test_accuracy_against_steps():
    at = lambda run, tau, base: Point(run, "t", 64, tau, tau / 2, 20 * tau, 5, base)  # noqa: E731
    figure = steps_figure([at("vanilla", 0.9, True), at("vanilla", 0.7, True), at("g", 0.9, False)])
    (chart,) = figure.charts
    assert isinstance(chart, Chart)
    assert chart.title == "t, L = 64" and [x.dashed for x in chart.lines] == [True, False]
    assert chart.lines[0].points == ((14.0, 35.0), (18.0, 45.0))


def test_backbones_are_panels():
    """Two tasks of two backbones: a line of charts per task, a chart per backbone."""
    found = [
        Point("g", task, 64, tau, 0.5, 20 * tau, 5, False, panel=panel)
        for panel in ("LLaDA", "Dream")
        for task in ("t", "u")
        for tau in (0.7, 0.9)
    ]
    figure = steps_figure(found)
    assert [c.title for c in figure.charts] == [
        *("LLaDA: t, L = 64", "Dream: t, L = 64", "LLaDA: u, L = 64", "Dream: u, L = 64"),
    ]
    assert figure.wide == 2 and len(figure.charts[0].lines[0].points) == 2


def test_files_are_the_same_bytes(tmp_path: Path):
    within = ((0.5, 1.5), (1.0, 3.0))
    lines = (line("_a $x$", within=within), line("b", look="dots", within=within))
    figure = Figure("a/b", "t", (Chart("one", "x", "y", lines), Chart("two", "x", "y", lines[:1])))
    first, again = write(figure, tmp_path / "1"), write(figure, tmp_path / "2")
    assert [p.name for p in first] == ["a-b.pdf", "a-b.png"]
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]
    assert first[0].read_bytes().startswith(b"%PDF")


def test_each_name_is_in_the_legend_once():
    chart = Chart("one", "x", "y", (line("a"), line("a", look="dots"), line("b")))
    (legend,) = (axis.get_legend() for axis in draw(Figure("n", "t", (chart,))).axes)
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["a", "b"]


def test_charts_of_other_names_have_legends_and_labels_of_their_own():
    """The paper's priorities and supports: nothing of one chart is in the other."""
    one, two = Chart("one", "x", "y", (line("a"), line("b"))), Chart("two", "x", "z", (line("c"),))
    drawing = draw(Figure("n", "t", (one, two)))
    legends = [axis.get_legend() for axis in drawing.axes]
    assert [[t.get_text() for t in x.get_texts()] for x in legends if x] == [["a", "b"], ["c"]]
    assert [axis.get_ylabel() for axis in drawing.axes] == ["y", "z"]
    shared = draw(Figure("n", "t", (one, Chart("two", "x", "y", (line("c"), line("a"))))))
    (legend,) = shared.legends
    assert [t.get_text() for t in legend.get_texts()] == ["a", "b", "c"]
    assert [axis.get_ylabel() for axis in shared.axes] == ["y", ""]


def test_intervals_stand_in_the_order_given():
    bars = (Bar("cart", -0.5, -1.0, 0.2), Bar("goldimask-d", 2.0, 1.0, 3.0))
    drawing = draw(Figure("n", "t", (Intervals("points", bars), Intervals("steps", bars))))
    axis = drawing.axes[0]
    assert [t.get_text() for t in axis.get_yticklabels()] == ["cart", "goldimask-d"]
    assert axis.get_ylim() == (1.5, -0.5)


def test_names_are_shown_as_they_are():
    assert literal("$a$") == r"\$a\$" and literal("_a").endswith("_a") and literal("_a") != "_a"
