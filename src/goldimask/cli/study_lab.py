"""`goldimask study budget | response | support | quality`: the paper's studies on any backbone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from goldimask.cli.app import JsonFlag
from goldimask.cli.study import study_app
from goldimask.console import emit, progress, say
from goldimask.errors import GoldimaskError

Backbones = Annotated[
    list[str] | None, typer.Argument(metavar="[RUN...]", help="Backbones or runs; default tiny.")
]
Corpus = Annotated[str, typer.Option(help="A named corpus, or a file of prompts and responses.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds: 0, 1, ...")]
Out = Annotated[Path | None, typer.Option("-o", "--out", help="Folder for data and figures.")]
Examples = Annotated[int, typer.Option(min=8, help="Examples of the corpus.")]


@study_app.command("budget")
def budget(
    runs: Backbones = None,
    corpus: Corpus = "tiny-sft",
    examples: Examples = 600,
    heldout: Annotated[int, typer.Option(min=2, help="Held-out examples.")] = 200,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps.")] = 100,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per step.")] = 16,
    rate: Annotated[float, typer.Option(help="Learning rate.")] = 3e-4,
    k: Annotated[int, typer.Option("-k", min=1, help="Supervised positions per example.")] = 8,
    rules: Annotated[str, typer.Option(help="Rules, comma-separated; default all.")] = "",
    seeds: Seeds = 3,
    out: Out = None,
    as_json: JsonFlag = False,
) -> None:
    """Study 1: which targets should carry a limited supervision budget?"""
    from goldimask.studies.budget import RULES, study_budget
    from goldimask.studies.schedule import Tuning

    chosen = tuple(x for x in rules.split(",") if x) or tuple(RULES)
    tuning = Tuning(steps=steps, batch_size=batch_size, learning_rate=rate)
    study = partial(
        study_budget, corpus=corpus, examples=examples, heldout=heldout, k=k, tuning=tuning,
        rules=chosen, seeds=range(seeds),
    )  # fmt: skip
    run("budget", study, runs, len(chosen) * seeds, out, as_json)


@study_app.command("response")
def response(
    runs: Backbones = None,
    corpus: Corpus = "tiny-sft",
    examples: Examples = 300,
    draws: Annotated[int, typer.Option(min=1, help="Nested masks per example and seed.")] = 4,
    seeds: Seeds = 3,
    out: Out = None,
    as_json: JsonFlag = False,
) -> None:
    """Study 2: which targets respond to context?"""
    from goldimask.studies.response import study_response

    study = partial(
        study_response, corpus=corpus, examples=examples, draws=draws, seeds=range(seeds)
    )
    run("response", study, runs, examples * seeds, out, as_json)


@study_app.command("support")
def support(
    runs: Backbones = None,
    corpus: Corpus = "tiny-sft",
    examples: Examples = 128,
    sets: Annotated[int, typer.Option(min=2, help="Reveal sets per example.")] = 8,
    s0: Annotated[float, typer.Option(help="Scale of the saturating response.")] = 0.05,
    seeds: Seeds = 1,
    out: Out = None,
    as_json: JsonFlag = False,
) -> None:
    """Study 3: does support saturate, and which block's attention measures it?"""
    from goldimask.studies.support import study_support

    study = partial(
        study_support, corpus=corpus, examples=examples, sets=sets, s0=s0, seeds=range(seeds)
    )
    run("support", study, runs, examples * seeds, out, as_json)


@study_app.command("quality")
def quality(
    runs: Backbones = None,
    corpus: Corpus = "tiny-sft",
    examples: Examples = 160,
    seeds: Seeds = 1,
    out: Out = None,
    as_json: JsonFlag = False,
) -> None:
    """F, realised gain and priority of the kept targets, per selector and attention block."""
    from goldimask.studies.quality import study_quality

    study = partial(study_quality, corpus=corpus, examples=examples, seeds=range(seeds))
    run("quality", study, runs, examples * seeds, out, as_json)


def run(
    name: str,
    study: Callable[..., dict[str, Any]],
    runs: list[str] | None,
    total: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure every backbone, write data, tables and the figure, print the tables."""
    from dataclasses import replace

    from goldimask import tables
    from goldimask.backbones import load_backbone
    from goldimask.jobs import provenance
    from goldimask.stats import finite
    from goldimask.studies.output import study_figure, study_tables

    names = runs or ["tiny"]
    if len(set(names)) < len(names):
        raise GoldimaskError("RUN: the same backbone is given twice")
    results = []
    with progress(name, total * len(names)) as advance:
        for each in names:
            load = partial(load_backbone, each, dtype="float32")
            results.append(finite(study(load, advance=advance)))
    found = study_tables(results)
    if len(found) > 1:
        found = [replace(t, name=f"{name}-{i}") for i, t in enumerate(found)]
    if out is not None:
        from goldimask.figures import write
        from goldimask.files import write_json

        write_json(out / f"{name}.json", {"made": provenance(), "results": results})
        for table in found:
            tables.write(table, out)
        say(f"written: {out}, {', '.join(p.name for p in write(study_figure(results), out))}")
    if as_json:
        emit({"results": results}, True)
    else:
        typer.echo("\n".join(map(tables.terminal, found)))
