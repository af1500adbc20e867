"""`goldimask report RUN... -o report.html`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, say


@app.command()
def report(
    sources: Annotated[
        list[str],
        typer.Argument(metavar="RUN...", help="Run folders; also study JSON files."),
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="The page to write.")] = Path(
        "report.html"
    ),
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Report",
    md: Annotated[bool, typer.Option("--md", help="Also write the report as Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Also write a LaTeX document.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare runs on one page: recipes, curves, cost, scores, samples.

    The first run is the one the others are compared with. Every figure is also written as PDF and
    PNG, every table as CSV and LaTeX, into a folder beside the page.

    Examples:

        goldimask report runs/vanilla runs/goldimask-d -o report.html

        goldimask report runs/* -o report.html --md --latex
    """
    from goldimask.files import write_text
    from goldimask.report.run_report import (
        latex_document,
        make_report,
        markdown,
        write_files,
        write_html,
    )
    from goldimask.report.runs import read_sources

    runs, extras = read_sources(sources)
    made = make_report(runs, extras, title)
    files = write_files(made, out.with_name(f"{out.stem}_files"))
    page = write_html(made, out, files)
    also = []
    if md:
        also.append(write_text(out.with_suffix(".md"), markdown(made, files, out)))
    if latex:
        also.append(write_text(out.with_suffix(".tex"), latex_document(made, files, out)))
    result = {
        "page": str(page),
        "runs": [r.name for r in runs],
        "tables": [t.name for t in made.tables],
        "figures": [f.name for f in made.figures],
        "files": [str(f) for f in (*files, *also)],
    }
    lines = [f"page: {page} ({page.stat().st_size / 1000:.0f} KB), {len(files)} files beside it"]
    lines += [f"also: {path}" for path in also] + list(made.notes)
    if as_json:
        emit(result, True)
    else:
        for line in lines:
            say(line)
