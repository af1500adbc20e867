"""`goldimask study ...`: the paper's studies and measurements on any backbone or run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from goldimask.cli.options import JsonFlag, numbers, out_option, words
from goldimask.console import emit, progress, say
from goldimask.errors import GoldimaskError

study_app = typer.Typer(no_args_is_help=True, help="Measure what models and methods do.")

Result = dict[str, Any]
Backbones = Annotated[
    list[str] | None, typer.Argument(metavar="[RUN...]", help="Backbones or runs; default tiny.")
]
Corpus = Annotated[str, typer.Option(help="A named corpus, or a file of prompts and responses.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds: 0, 1, ...")]
Examples = Annotated[int, typer.Option(min=8, help="Examples of the corpus.")]
Out = Annotated[Path | None, out_option("Keep data, tables and figure in a folder of this folder.")]


@study_app.command("budget")
def budget(
    runs: Backbones = None,
    corpus: Corpus = "tiny-sft",
    recipe: Annotated[str, typer.Option(help="What the runs are made from.")] = "tiny",
    lora: Annotated[
        bool, typer.Option("--lora", help="Tune the recipe's adapter instead of all weights.")
    ] = False,
    examples: Examples = 600,
    heldout: Annotated[int, typer.Option(min=2, help="Held-out examples.")] = 200,
    steps: Annotated[int, typer.Option(min=1, help="Optimiser steps.")] = 100,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per step.")] = 16,
    rate: Annotated[float, typer.Option(min=0.0, help="Learning rate.")] = 3e-4,
    k: Annotated[int, typer.Option("-k", min=1, help="Supervised positions per example.")] = 8,
    rules: Annotated[str, typer.Option(help="Rules, comma-separated; default all.")] = "",
    seeds: Seeds = 3,
    out: Out = None,
    as_json: JsonFlag = False,
) -> None:
    """Study 1: which targets should carry a limited supervision budget?

    Trains a run for every rule and seed, in OUT/runs; finished ones are used again.
    """
    from tempfile import TemporaryDirectory

    from goldimask.config import load_recipe, recipe_dict
    from goldimask.studies.budget import RULES, Tuning, study_budget

    base = load_recipe(recipe)
    tuning = Tuning(steps=steps, batch_size=batch_size, learning_rate=rate, lora=lora)
    options: dict[str, Any] = {
        "corpus": corpus,
        "examples": examples,
        "heldout": heldout,
        "k": k,
        "rules": words(rules) or list(RULES),
        "seeds": list(range(seeds)),
    }
    settings = {**options, "tuning": vars(tuning), "recipe": recipe_dict(base)}
    with TemporaryDirectory() as temporary:
        folder = out or Path(temporary)

        def measure(source: str) -> Result:
            return study_budget(source, base, folder, tuning=tuning, say=say, **options)

        each_model("budget", measure, settings, runs, examples + heldout, out, as_json)


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

    options = {"corpus": corpus, "examples": examples, "draws": draws, "seeds": list(range(seeds))}
    frozen_models("response", study_response, options, runs, out, as_json)


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

    options = {"corpus": corpus, "examples": examples, "sets": sets, "s0": s0}
    options["seeds"] = list(range(seeds))
    frozen_models("support", study_support, options, runs, out, as_json)


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

    options = {"corpus": corpus, "examples": examples, "seeds": list(range(seeds))}
    frozen_models("quality", study_quality, options, runs, out, as_json)


@study_app.command("eligibility")
def eligibility(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="The first is what others are held to.")
    ],
    data: Annotated[Path | None, typer.Option(help="A file of prompts and responses.")] = None,
    corpus: Annotated[str, typer.Option(help="A named corpus, without --data.")] = "tiny-sft",
    limit: Annotated[int, typer.Option(min=1, help="References.")] = 100,
    tau: Annotated[str, typer.Option(help="Thresholds.")] = "0.7,0.8,0.9,0.95",
    states: Annotated[int, typer.Option(min=1, help="States per reference.")] = 4,
    block: Annotated[int, typer.Option(min=1, help="Positions per block.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the states.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="States per model call.")] = 16,
    out: Out = None,
    as_json: JsonFlag = False,
) -> None:
    """Oracle-safe parallelism, threshold precision and their change, on fixed references."""
    from functools import partial

    from goldimask.backbones import load_backbone
    from goldimask.data.corpora import open_rows
    from goldimask.data.examples import to_pair
    from goldimask.studies.eligibility import study_eligibility
    from goldimask.studies.run import labels

    taus = numbers(tau, "--tau", float)
    if any(not 0 < t <= 1 for t in taus):
        raise GoldimaskError(f"--tau: expected confidences in (0, 1], got '{tau}'")
    source = (corpus, None) if data is None else (None, str(data))
    found = [to_pair(row) for row in open_rows(*source, limit=limit)]
    pairs = [(p.prompt, p.response) for p in found]
    models = labels(runs)
    options: dict[str, Any] = {"taus": taus, "per_example": states, "block": block, "seed": seed}

    def measure() -> Result:
        loaders = [(name, partial(load_backbone, run)) for name, run in models.items()]
        with progress("eligibility", len(models) * len(pairs) * states) as advance:
            return study_eligibility(
                loaders, pairs, batch_size=batch_size, advance=advance, **options
            )

    folder = None if out is None else out / "eligibility"
    result = kept("eligibility", measure, models, options, pairs, folder)
    show([result], result, as_json)


# --- what the commands share ---------------------------------------------------------------------


def frozen_models(
    study: str,
    function: Callable[..., Result],
    options: dict[str, Any],
    runs: list[str] | None,
    out: Path | None,
    as_json: bool,
) -> None:
    """A study that loads every model once and leaves it as it is."""
    from goldimask.backbones import load_backbone

    examples = options["examples"]

    def measure(source: str) -> Result:
        backbone = load_backbone(source, dtype="float32")
        with progress(study, examples * len(options["seeds"])) as advance:
            return function(backbone, advance=advance, **options)

    each_model(study, measure, options, runs, examples, out, as_json)


def each_model(
    study: str,
    measure: Callable[[str], Result],
    settings: dict[str, Any],
    runs: list[str] | None,
    rows: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Measure every model by itself; with `out`, each has its folder."""
    from goldimask.studies.examples import study_rows
    from goldimask.studies.run import labels
    from goldimask.tables import file_name

    data = study_rows(settings["corpus"], rows)
    results = []
    for name, source in labels(runs or ["tiny"]).items():

        def named(name: str = name, source: str = source) -> Result:
            return {**measure(source), "backbone": name}

        folder = None if out is None else out / f"{study}-{file_name(name)}"
        results.append(kept(study, named, {name: source}, settings, data, folder))
    show(results, {"results": results}, as_json)


def kept(
    study: str,
    measure: Callable[[], Result],
    models: dict[str, str],
    settings: dict[str, Any],
    data: Sequence[Any],
    folder: Path | None,
) -> Result:
    """A result, from its folder if it is to have one."""
    from goldimask.stats import finite
    from goldimask.studies.run import run_study, study_manifest

    if folder is None:
        return finite(measure())
    return run_study(folder, study_manifest(study, models, settings, data), measure, say)


def show(results: Sequence[Result], value: Result, as_json: bool) -> None:
    """The tables of all results, or their JSON."""
    from goldimask.studies.output import study_tables
    from goldimask.tables import terminal

    if as_json:
        emit(value, True)
    else:
        typer.echo("\n".join(terminal(table) for r in results for table in study_tables(r)))
