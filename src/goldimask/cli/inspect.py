"""`goldimask inspect RECIPE|RUN`: look at one training step."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, say


@app.command()
def inspect(
    source: Annotated[
        str, typer.Argument(metavar="RECIPE|RUN", help="A recipe, or a run folder (its weights).")
    ],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Overrides of the recipe."),
    ] = None,
    example: Annotated[int, typer.Option(help="Number of the training example, from 0.")] = 0,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the draws; the recipe's when left out.")
    ] = None,
    epoch: Annotated[int, typer.Option(help="Epoch of the draws.")] = 0,
    t: Annotated[
        float | None, typer.Option("--t", help="Noise level; the one drawn when left out.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(help="Methods to compare, by commas; the paper's nine when left out."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the interactive page to this file.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Show one training step: what is masked, revealed in which order, weighted how.

    Every method sees the same random draws. Without `--html` the step is printed; the page adds a
    slider over the noise level, the order of choice, attention and curves.

    Examples:

        goldimask inspect tiny --example 7 --t 0.4

        goldimask inspect runs/first --example 7 --methods vanilla,goldimask-r --html step.html
    """
    from goldimask.report.inspection import (
        METHODS,
        chosen_methods,
        drawn_level,
        inspect_page,
        inspect_steps,
        levels_around,
        open_subject,
    )

    subject = open_subject(source, overrides or [], example)
    names = [n.strip() for n in methods.split(",") if n.strip()] if methods else list(METHODS)
    picked = chosen_methods(subject.recipe.method, names)
    seed = subject.recipe.seed if seed is None else seed
    level = drawn_level(subject.example, seed, epoch) if t is None else t
    levels = levels_around(level) if html else [level]
    records = inspect_steps(subject.backbone, subject.example, picked, seed, levels, epoch)
    if html:
        inspect_page(html, records, subject)
        if not as_json:
            say(f"page: [bold]{html}[/bold] ({html.stat().st_size / 1000:.0f} KB)")
    result = {"example": example, "seed": seed, "html": str(html) if html else None}
    from goldimask.report.terminal import step_view

    emit({**result, "records": records}, as_json, None if as_json else step_view(records))
