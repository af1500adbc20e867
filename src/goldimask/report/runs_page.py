"""A report written: the page, each figure and table as files, Markdown, LaTeX."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from goldimask import figures, tables
from goldimask.figures import Chart, Figure
from goldimask.report.page import section, write_page
from goldimask.report.page import significant as sig
from goldimask.report.runs_report import Report
from goldimask.tables import Table

POINTS = 400  # of one line on a page


def write_files(report: Report, folder: Path) -> list[Path]:
    """Each figure as PDF and PNG, each table as CSV and LaTeX; no two write the same file."""
    taken: Counter[str] = Counter()
    files: list[Path] = []
    for figure in (*report.training, *report.figures):
        files += figures.write(replace(figure, name=free_name(figure.name, taken)), folder)
    taken.clear()
    for table in report.tables:
        name = free_name(table.name, taken)
        files += tables.write(replace(table, name=name), folder, ("csv", "latex"))
    return files


def free_name(name: str, taken: Counter[str]) -> str:
    """The name, or `name-2` where another one makes the same file name."""
    stem = tables.file_name(name).lower()
    taken[stem] += 1
    return name if taken[stem] == 1 else free_name(f"{name}-{taken[stem]}", taken)


def write_html(report: Report, path: Path, files: Sequence[Path] = ()) -> Path:
    """The page, with links to the files beside it and to the runs' own pages."""
    parts = [table_section(t) for t in report.tables[:1]]
    if report.training:
        parts.append(figures_section("Training", report.training))
    parts += [table_section(t) for t in report.tables[1:]]
    if report.figures:
        parts.append(figures_section("Accuracy, steps and studies", report.figures))
    if report.samples:
        data = {"samples": list(report.samples)}
        note = "The first correct and wrong answers of every run and task."
        if report.unshown:
            note += f" {report.unshown} more are in the runs' eval folders."
        parts.append(section("samples", "Samples", data, note))
    if report.notes:
        parts.append(section("prose", "Notes", {"paragraphs": list(report.notes)}))
    for title, paths in (("Pages", report.pages), ("Files", files)):
        if paths:
            parts.append(section("links", title, {"links": [link(p, path) for p in paths]}))
    return write_page(path, report.title, parts)


def table_section(table: Table) -> dict[str, Any]:
    """Numbers stay numbers, so that the page can sort by them."""
    rows = [
        [
            sig(x, 6)
            if isinstance(x, float)
            else x
            if isinstance(x, str | int | None)
            else tables.shown(x)
            for x in row
        ]
        for row in table.rows
    ]
    data = {"caption": "", "columns": list(table.columns), "rows": rows, "left": table.left}
    return section("table", table.title, data, table.note)


def figures_section(title: str, drawn: Sequence[Figure]) -> dict[str, Any]:
    """Charts of a page; long lines are thinned to what can be seen."""
    charts = [
        {
            "name": chart.title if len(figure.charts) == 1 else f"{figure.title}: {chart.title}",
            "x": chart.x,
            "y": chart.y,
            "markers": any(line.look != "line" for line in chart.lines),
            "lines": [{"name": x.name, "points": thinned(x.points)} for x in chart.lines],
        }
        for figure in drawn
        for chart in figure.charts
        if isinstance(chart, Chart)
    ]
    return section("curves", title, {"charts": charts})


def thinned(points: Sequence[tuple[float, float]]) -> list[list[float]]:
    step = max(1, -(-len(points) // POINTS))
    kept = list(points[::step])
    if points and kept[-1] != points[-1]:
        kept.append(points[-1])
    return [[sig(float(x), 6), sig(float(y), 5)] for x, y in kept]


def link(target: Path, page: Path) -> dict[str, str]:
    """A relative address, so that a moved folder keeps working."""
    relative = os.path.relpath(target.resolve(), page.resolve().parent)
    return {"href": quote(Path(relative).as_posix()), "text": relative}


def markdown(report: Report, files: Sequence[Path], path: Path) -> str:
    """Tables in full, figures as images."""
    images = [f for f in files if f.suffix == ".png"]
    shown = [f"![{f.stem}]({link(f, path)['href']})" for f in images]
    titled = [f"### {t.title}\n\n{tables.markdown(t)}" for t in report.tables]
    parts = [f"# {report.title}", *titled, *shown, *report.notes]
    return "\n\n".join(p.strip() for p in parts) + "\n"


def latex_document(report: Report, files: Sequence[Path], path: Path) -> str:
    """A document that compiles: every table, every figure."""
    images = [link(f, path)["href"] for f in files if f.suffix == ".pdf"]
    shown = [rf"\includegraphics[width=.7\linewidth]{{{i}}}\par\medskip" for i in images]
    return "\n".join(
        [
            *(r"\documentclass{article}", r"\usepackage{booktabs,graphicx}"),
            *(rf"\title{{{tables.tex(report.title)}}}", r"\begin{document}", r"\maketitle"),
            *(tables.latex(t) for t in report.tables),
            *(r"\begin{center}", *shown, r"\end{center}", r"\end{document}", ""),
        ]
    )
