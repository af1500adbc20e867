"""`goldimask report`: tables and a page from any run folders."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from goldimask.cli.options import JsonFlag, out_option, words
from goldimask.console import emit, say

PAGE = Path("report.html")
app = typer.Typer()


@app.command()
def report(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]RUN...",
            help="Run or evaluation folders, with labels if you like; also results of studies.",
        ),
    ],
    out: Annotated[
        Path | None, out_option("The page to write (report.html; none with --format).")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the report.")] = "Report",
    length: Annotated[
        str,
        typer.Option(help="Of each task: fixed, best (selected on test), both, or a number."),
    ] = "both",
    baselines: Annotated[
        str | None,
        typer.Option(help="Fine-tuned baselines, comma-separated (every method but GoldiMask's)."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="Untuned models, comma-separated (what was not trained here)."),
    ] = None,
    allow_incomplete: Annotated[
        bool, typer.Option("--allow-incomplete", help="Show unfinished evaluations, marked.")
    ] = False,
    form: Annotated[
        str, typer.Option("--format", help="Print the results as terminal, markdown, latex or csv.")
    ] = "",
    md: Annotated[bool, typer.Option("--md", help="Also write the report as Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Also write a LaTeX document.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Compare runs in tables, paired tests, figures and a page.

    Prints mean and SD over seeds with the relative change against the strongest baseline, and
    pairs methods on the problems both answered (bootstrap interval of the difference, exact
    McNemar test). Method, seed, backbone and corpus are read from the folders; backbones and
    corpora are panels. Other protocols, versions or problems, unfinished evaluations and
    duplicates are refused with the list. The page shows everything; each figure is also written as
    PDF and PNG, each table as CSV and LaTeX, into a folder beside it. Ways of decoding are shown
    apart; with several thresholds there is a figure of accuracy against steps.

    Examples:

        goldimask report runs/vanilla runs/goldimask-d -o report.html --md --latex

        goldimask report runs/*-s42 runs/*-s43 runs/*-s44 --format latex

        goldimask report base=evals/llada-8b-instruct "no cap=runs/x" runs/y
    """
    from goldimask.errors import GoldimaskError, nearest
    from goldimask.files import write_text
    from goldimask.jobs import locked
    from goldimask.report.comparison import Choices, long_table, pair_tables, result_tables
    from goldimask.report.runs_page import latex_document, markdown, write_files, write_html
    from goldimask.report.runs_report import make_report
    from goldimask.report.sources import read_sources
    from goldimask.tables import WRITERS

    if form and form not in WRITERS:
        raise GoldimaskError(f"--format: '{form}'; {nearest(form, WRITERS)}")
    page = out or (None if form else PAGE)
    with nullcontext() if page is None else locked(page):
        runs, studies = read_sources(sources)
        chosen = Choices(length, names(baselines), names(base), allow_incomplete)
        made = make_report(runs, studies, title, chosen)
        files: list[Path] = []
        if page is not None:
            files = write_files(made, page.with_name(f"{page.stem}_files"))
            write_html(made, page, files)
            say(f"page: {page} ({page.stat().st_size / 1000:.0f} KB), {len(files)} files beside it")
            if md:
                files.append(write_text(page.with_suffix(".md"), markdown(made, files, page)))
            if latex:
                files.append(
                    write_text(page.with_suffix(".tex"), latex_document(made, files, page))
                )
    for note in made.notes:
        say(note)
    if as_json:
        result = {
            "page": None if page is None else str(page),
            "runs": [r.label for r in runs],
            "tables": [t.name for t in made.tables],
            "figures": [f.name for f in (*made.training, *made.figures)],
            "files": [str(f) for f in files],
            "comparisons": [c.as_dict() for c in made.comparisons],
        }
        emit(result, True)
    else:
        found = made.comparisons
        if form == "csv":
            shown = [long_table(found)]
        elif form in ("markdown", "latex"):
            shown = result_tables(found)
        else:
            shown = [*result_tables(found), *pair_tables(found)]
        write = WRITERS[form or "terminal"][1]
        typer.echo("\n".join(map(write, shown)), nl=False)


def names(text: str | None) -> tuple[str, ...] | None:
    """`a,b` -> (a, b); nothing given -> None."""
    return None if text is None else tuple(words(text))
