"""`goldimask report`: tables and a page from any run folders."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from goldimask.cli.options import JsonFlag, out_option, words
from goldimask.console import emit, say

if TYPE_CHECKING:
    from goldimask.tables import Table

PAGE = Path("report.html")
SHOWN = ("main", "fixed", "code", "aime", "mcnemar")  # printed, unless tables are named
app = typer.Typer()


@app.command()
def report(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="[NAME=]RUN...",
            help="Run, evaluation or campaign folders, with labels if you like; also studies.",
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
        typer.Option(
            help="Fine-tuned baselines, comma-separated (all but GoldiMask and controls)."
        ),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(help="Untuned models, comma-separated (what was not trained here)."),
    ] = None,
    tables: Annotated[
        str, typer.Option(help="Kinds of tables, comma-separated: main, paired, ...; or all.")
    ] = "all",
    figures: Annotated[
        str, typer.Option(help="Kinds of figures: steps, paired, training; or all.")
    ] = "all",
    rows: Annotated[
        str | None, typer.Option(help="Rows of the results tables, comma-separated (all).")
    ] = None,
    tau: Annotated[
        float | None,
        typer.Option(help="Threshold whose results are shown, where several were evaluated."),
    ] = None,
    allow_incomplete: Annotated[
        bool, typer.Option("--allow-incomplete", help="Show unfinished evaluations, marked.")
    ] = False,
    form: Annotated[
        str, typer.Option("--format", help="Print as terminal, markdown, latex, csv or json.")
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
    duplicates are refused with the list. The page explores all runs; each figure is also written
    as PDF and PNG, each table as CSV, Markdown, LaTeX and JSON, into a folder beside it. Ways of
    decoding are shown apart; with several thresholds there is a figure of accuracy against steps.
    The folder of a campaign gets its tables, figures and page inside.

    Examples:

        goldimask report runs/vanilla runs/goldimask-d -o report.html --md --latex

        goldimask report runs/*-s42 runs/*-s43 runs/*-s44 --format latex

        goldimask report base=evals/llada-8b-instruct "no cap=runs/x" runs/y

        goldimask report runs/lab --tables main,components
    """
    from goldimask.errors import GoldimaskError, nearest
    from goldimask.files import write_text
    from goldimask.jobs import locked
    from goldimask.report.campaign_report import write_campaign
    from goldimask.report.comparison import Choices
    from goldimask.report.paper import TABLES
    from goldimask.report.runs_page import latex_document, markdown, write_files, write_html
    from goldimask.report.runs_report import make_report
    from goldimask.report.sources import CAMPAIGN, read_sources
    from goldimask.tables import WRITERS

    if form and form not in WRITERS:
        raise GoldimaskError(f"--format: '{form}'; {nearest(form, WRITERS)}")
    chosen = Choices(length, names(baselines), names(base), allow_incomplete, names(rows), tau)
    kinds, drawn = words(tables), words(figures)
    folder = Path(sources[0])
    if len(sources) == 1 and (folder / CAMPAIGN).is_file() and not (form or out):
        with locked(folder / PAGE):
            asked = ([] if kinds == ["all"] else kinds, [] if drawn == ["all"] else drawn)
            marked = replace(chosen, allow_incomplete=True)
            found = write_campaign(folder, *asked, marked, "" if title == "Report" else title)
        count = sum(map(len, found["tables"].values()))
        say(f"page: {found['page']}; {count} tables of {found['done']} of {found['cells']} cells")
        for line in (*found["refused"].values(), *found["notes"]):
            say(line)
        if as_json:
            emit(found, True)
        return
    page = out or (None if form else PAGE)
    with nullcontext() if page is None else locked(page):
        runs, studies = read_sources(sources)
        made = make_report(runs, studies, title, chosen, kinds, drawn)
        files: list[Path] = []
        if page is not None:
            files = write_files(made, page.with_name(f"{page.stem}_files"))
            write_html([made], page, files)
            say(f"page: {page} ({page.stat().st_size / 1000:.0f} KB), {len(files)} files beside it")
            if md:
                files.append(write_text(page.with_suffix(".md"), markdown(made, files, page)))
            if latex:
                files.append(
                    write_text(page.with_suffix(".tex"), latex_document(made, files, page))
                )
    for note in made.notes:
        say(note)
    kept = [t for t in made.tables if t.name.split("-")[0] in (SHOWN if "all" in kinds else TABLES)]
    if lost := [k for k in kinds if k != "all" and not made_of(k, made.tables)]:
        say(f"--tables: the folders hold nothing for {', '.join(lost)}")
    if as_json:
        result = {
            "page": None if page is None else str(page),
            "runs": [r.label for r in runs],
            "tables": [t.name for t in made.tables],
            "figures": [f.name for f in made.figures],
            "files": [str(f) for f in files],
            "comparisons": [c.as_dict() for c in made.comparisons],
        }
        emit(result, True)
    else:
        typer.echo("\n".join(map(WRITERS[form or "terminal"][1], kept)), nl=False)


def made_of(kind: str, made: Sequence[Table]) -> bool:
    """Whether any table is of a kind."""
    return any(t.name == kind or t.name.startswith(f"{kind}-") for t in made)


def names(text: str | None) -> tuple[str, ...] | None:
    """`a,b` -> (a, b); nothing given -> None."""
    return None if text is None else tuple(words(text))
