"""A report written: the page, each figure and table as files, Markdown, LaTeX."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from goldimask import figures, tables
from goldimask.figures import Chart, Figure
from goldimask.report.cells import (
    Entry,
    answers_section,
    cells_section,
    curves_section,
    entries_of,
    link,
    thinned,
)
from goldimask.report.page import section, write_page
from goldimask.report.page import significant as sig
from goldimask.report.runs_report import CURVES, Report
from goldimask.tables import Panel, Table

OPEN = 12  # tables that a page shows unfolded; of more, only the first ones
FIRST = ("main", "code", "aime")


def write_files(report: Report, folder: Path, drawn: Path | None = None) -> list[Path]:
    """Each figure as PDF and PNG, each table in every format; no two write the same file."""
    taken: Counter[str] = Counter()
    files: list[Path] = []
    for figure in report.figures:
        name = free_name(figure.name, taken)
        files += figures.write(replace(figure, name=name), drawn or folder)
    taken.clear()
    for table in report.tables:
        files += tables.write(replace(table, name=free_name(table.name, taken)), folder)
    return files


def free_name(name: str, taken: Counter[str]) -> str:
    """The name, or `name-2` where another one makes the same file name."""
    stem = tables.file_name(name).lower()
    taken[stem] += 1
    return name if taken[stem] == 1 else free_name(f"{name}-{taken[stem]}", taken)


def write_html(
    reports: Sequence[Report],
    path: Path,
    files: Sequence[Path] = (),
    entries: Sequence[Entry] | None = None,
    others: Sequence[Path] = (),
) -> Path:
    """The page, with links to the files beside it and to the runs' own pages.

    Several reports are the parts of a campaign; the first one's title is the page's.
    """
    whole = reports[0]
    every = entries_of(whole.sources) if entries is None else list(entries)
    parts: list[dict[str, Any] | None] = []
    if every:
        parts += [cells_section(whole, every, path), curves_section(every)]
    for report in reports if len(reports) == 1 else reports[1:]:
        heading = "Tables" if report is whole else report.title
        if report.tables:
            few = sum(len(r.tables) for r in reports) <= OPEN
            data = [table_data(t) | {"open": few or t.name in FIRST} for t in report.tables]
            parts.append(section("tables", heading, {"tables": data}))
        drawn = [f for f in report.figures if f.name not in CURVES and f.lines]
        if drawn:
            end = "" if report is whole else f", {report.title}"
            parts.append(figures_section(f"Accuracy, steps and studies{end}", drawn))
    parts.append(answers_section(whole, every))
    if whole.notes:
        parts.append(section("prose", "Notes", {"paragraphs": list(whole.notes)}))
    for title, paths in (("Pages", others), ("Files", files)):
        if paths:
            parts.append(section("links", title, {"links": [link(p, path) for p in paths]}))
    return write_page(path, whole.title, [p for p in parts if p])


def table_data(table: Table) -> dict[str, Any]:
    """Numbers stay numbers; a row of one cell is the head of a panel."""

    def cell(x: tables.Cell) -> Any:
        if isinstance(x, float):
            return sig(x, 6)
        return x if isinstance(x, str | int | None) else tables.shown(x)

    rows = [
        [row[0].title] if isinstance(row[0], Panel) else [cell(x) for x in row]
        for row in table.rows
    ]
    head = {"title": table.title, "note": table.note, "caption": ""}
    return {**head, "columns": list(table.columns), "rows": rows, "left": table.left}


def figures_section(title: str, drawn: Sequence[Figure]) -> dict[str, Any]:
    """Charts of a page; long lines are thinned to what can be seen."""
    charts = [
        {
            "name": chart.title if len(figure.charts) == 1 else f"{figure.title}: {chart.title}",
            "x": chart.x,
            "y": chart.y,
            "markers": any(line.look != "line" for line in chart.lines),
            "lines": [
                {
                    "name": x.name,
                    "points": [[sig(a, 6), sig(b, 5)] for a, b in thinned(x.points)],
                }
                for x in chart.lines
            ],
        }
        for figure in drawn
        for chart in figure.charts
        if isinstance(chart, Chart)
    ]
    return section("curves", title, {"charts": charts})


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
            *(rf"{tables.latex(t)}\clearpage" for t in report.tables),  # else too many would float
            *(r"\begin{center}", *shown, r"\end{center}", r"\end{document}", ""),
        ]
    )
