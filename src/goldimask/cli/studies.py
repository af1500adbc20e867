"""`goldimask study ...`: the paper's studies and measurements on any backbone or run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from goldimask.cli.measuring import (
    Result,
    Where,
    each_model,
    frozen_models,
    kept,
    parse,
    parse_layers,
    show,
)
from goldimask.cli.options import AllowPlugins, Device, Dtype, JsonFlag, numbers, out_option, words
from goldimask.console import emit, progress, say, table
from goldimask.errors import GoldimaskError

study_app = typer.Typer(no_args_is_help=True, help="Measure what models and methods do.")

Backbones = Annotated[
    list[str] | None, typer.Argument(metavar="[RUN...]", help="Backbones or runs; default tiny.")
]
Corpus = Annotated[str, typer.Option(help="A named corpus, or a file of prompts and responses.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many seeds: 0, 1, ...")]
Examples = Annotated[int, typer.Option(min=8, help="Examples of the corpus.")]
Batch = Annotated[int, typer.Option(min=1, help="Examples per model call.")]
TurnEnd = Annotated[bool, typer.Option(help="Is the end of a turn a target? The paper: no.")]
Shard = Annotated[
    str, typer.Option(help="i/n: measure every n-th part from i; the last shard merges all.")
]
TableFile = Annotated[
    Path | None, typer.Option("--table", help="Write the measured curve here, for a recipe.")
]
Out = Annotated[Path | None, out_option("Keep data, tables and figure in a folder of this folder.")]


@study_app.command("budget")
def budget(
    runs: Backbones = None,
    paper: Annotated[
        bool, typer.Option("--paper", help="Everything as in the paper, unless options differ.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the settings and stop.")
    ] = False,
    corpus: Annotated[str | None, typer.Option(help="A named corpus or a file.")] = None,
    recipe: Annotated[str | None, typer.Option(help="What the runs are made from.")] = None,
    lora: Annotated[
        bool | None, typer.Option("--lora/--all-weights", help="What is tuned.")
    ] = None,
    first: Annotated[int | None, typer.Option(min=0, help="First training row.")] = None,
    examples: Annotated[int | None, typer.Option(min=1, help="Training rows.")] = None,
    heldout: Annotated[int | None, typer.Option(min=2, help="Held-out rows, the first.")] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="Optimiser steps.")] = None,
    at: Annotated[
        str | None, typer.Option(help="Earlier steps that are measured too, such as 100.")
    ] = None,
    batch_size: Annotated[int | None, typer.Option(min=1, help="Examples per step.")] = None,
    rate: Annotated[float | None, typer.Option(min=0.0, help="Learning rate.")] = None,
    k: Annotated[int | None, typer.Option("-k", min=1, help="Supervised positions.")] = None,
    rules: Annotated[
        str | None, typer.Option(help="Rules: uniform,p(1-p)^3,0.1-0.5,all; a band is a rule.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many seeds: 0, 1, ...")] = None,
    device: Device = None,
    dtype: Dtype = None,
    shard: Shard = "",
    out: Out = None,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Study 1: which targets should carry a limited supervision budget?

    Trains a run for every rule and seed, in OUT/runs; finished ones are used again. Without
    --paper it is the smaller study of the tiny models.

    Examples:

        goldimask study budget -o runs/studies

        goldimask study budget --paper --dry-run

        goldimask study budget llada-1.5 --paper -o runs/study1 --shard 0/4
    """
    from dataclasses import replace
    from tempfile import TemporaryDirectory

    from goldimask.config import load_recipe, recipe_dict
    from goldimask.studies.budget import (
        LAB,
        PAPER,
        PAPER_MODELS,
        plan_facts,
        study_budget,
        study_recipe,
    )

    given: dict[str, Any] = {
        "corpus": corpus,
        "recipe": recipe,
        "lora": lora,
        "first": first,
        "examples": examples,
        "heldout": heldout,
        "steps": steps,
        "at": None if at is None else numbers(at, "--at", int),
        "batch_size": batch_size,
        "rate": rate,
        "k": k,
        "rules": None if rules is None else tuple(words(rules)),
        "seeds": seeds,
    }
    plan = replace(PAPER if paper else LAB, **{n: v for n, v in given.items() if v is not None})
    models = runs or (list(PAPER_MODELS) if paper else None)
    base = load_recipe(plan.recipe)
    shared = study_recipe(base, base.backbone.name, plan, dtype, device)
    if dry_run:
        facts = plan_facts(plan, shared, models or ["tiny"])
        return emit(facts, as_json, table("Study 1", ("setting", "value"), facts.items(), left=2))
    settings = {**vars(plan), "recipe": {**recipe_dict(shared), "output": "", "backbone": ""}}
    precision = None if shared.backbone.dtype == "auto" else shared.backbone.dtype
    with TemporaryDirectory() as temporary:
        folder = out or Path(temporary)

        def measure(source: str, gather: Any) -> Result:
            own = study_recipe(base, source, plan, dtype, device)
            return study_budget(source, plan, own, folder, device=device, gather=gather, say=say)

        where = Where(out, as_json, device, precision, parse(shard, out))
        each_model("budget", measure, settings, models, plan.rows[1], where)


@study_app.command("response")
def response(
    runs: Backbones = None,
    corpus: Corpus = "tiny-sft",
    examples: Examples = 300,
    draws: Annotated[int, typer.Option(min=1, help="Nested masks per example and seed.")] = 4,
    seeds: Seeds = 3,
    turn_end: TurnEnd = True,
    to: TableFile = None,
    batch_size: Batch = 16,
    device: Device = None,
    dtype: Dtype = None,
    shard: Shard = "",
    out: Out = None,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Study 2: which targets respond to context?

    With --table the measured response becomes a priority for any recipe:
    `method.select.priority={kind: table, file: lambda.json}`, and `method.weigh.priority` likewise.
    """
    from goldimask.studies.response import study_response

    options = {"corpus": corpus, "examples": examples, "draws": draws, "seeds": list(range(seeds))}
    options |= {"turn_end": turn_end, "batch_size": batch_size}
    where = Where(out, as_json, device, dtype, parse(shard, out), to)
    frozen_models("response", study_response, options, runs, where)


@study_app.command("support")
def support(
    runs: Backbones = None,
    corpus: Corpus = "tiny-sft",
    examples: Examples = 128,
    sets: Annotated[int, typer.Option(min=2, help="Reveal sets per example.")] = 8,
    s0: Annotated[float, typer.Option(help="Scale of the saturating response.")] = 0.05,
    layer: Annotated[
        str, typer.Option(help="Blocks: last, an index, a share of the depth, or several; all.")
    ] = "all",
    seeds: Seeds = 1,
    turn_end: TurnEnd = True,
    to: TableFile = None,
    batch_size: Batch = 16,
    device: Device = None,
    dtype: Dtype = None,
    shard: Shard = "",
    out: Out = None,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Study 3: does support saturate, and which block's attention measures it?

    With --table the support measured on the last block named (of `all`: the final one) becomes
    one for any recipe: `method.select.support={kind: table, file: phi.json}`.
    """
    from goldimask.studies.support import study_support

    options: dict[str, Any] = {"corpus": corpus, "examples": examples, "sets": sets, "s0": s0}
    options |= {"seeds": list(range(seeds)), "layers": parse_layers(layer)}
    options |= {"turn_end": turn_end, "batch_size": batch_size}
    where = Where(out, as_json, device, dtype, parse(shard, out), to)
    frozen_models("support", study_support, options, runs, where)


@study_app.command("quality")
def quality(
    runs: Backbones = None,
    corpus: Corpus = "tiny-sft",
    examples: Examples = 160,
    seeds: Seeds = 1,
    turn_end: TurnEnd = True,
    batch_size: Batch = 16,
    device: Device = None,
    dtype: Dtype = None,
    shard: Shard = "",
    out: Out = None,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """F, realised gain and priority of the kept targets, per selector and attention block."""
    from goldimask.studies.quality import study_quality

    options = {"corpus": corpus, "examples": examples, "seeds": list(range(seeds))}
    options |= {"turn_end": turn_end, "batch_size": batch_size}
    where = Where(out, as_json, device, dtype, parse(shard, out))
    frozen_models("quality", study_quality, options, runs, where)


@study_app.command("benefit")
def benefit(
    runs: Backbones = None,
    corpus: Corpus = "tiny-sft",
    examples: Examples = 200,
    reveals: Annotated[int, typer.Option(min=4, help="Tokens shown alone, an example.")] = 24,
    seeds: Seeds = 1,
    turn_end: TurnEnd = True,
    batch_size: Batch = 16,
    device: Device = None,
    dtype: Dtype = None,
    shard: Shard = "",
    out: Out = None,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """What is a revealed token worth to the others, and do attention and p foretell it?"""
    from goldimask.studies.benefit import study_benefit

    options = {"corpus": corpus, "examples": examples, "reveals": reveals}
    options |= {"seeds": list(range(seeds)), "turn_end": turn_end, "batch_size": batch_size}
    where = Where(out, as_json, device, dtype, parse(shard, out))
    frozen_models("benefit", study_benefit, options, runs, where)


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
    device: Device = None,
    dtype: Dtype = None,
    shard: Shard = "",
    out: Out = None,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Oracle-safe parallelism, threshold precision and their change, on fixed references."""
    from functools import partial

    from goldimask.backbones import load_backbone
    from goldimask.data.corpora import open_rows
    from goldimask.data.shapes import to_pair
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
    options["batch_size"] = batch_size

    def measure(gather: Any) -> Result:
        load = partial(load_backbone, device=device, dtype=dtype)
        loaders = [(name, partial(load, run)) for name, run in models.items()]
        with progress("eligibility", len(models) * len(pairs) * states) as advance:
            return study_eligibility(loaders, pairs, gather=gather, advance=advance, **options)

    where = Where(out, as_json, device, dtype, parse(shard, out))
    folder = None if out is None else out / "eligibility"
    result = kept("eligibility", measure, models, options, pairs, folder, where)
    if result is not None:
        show([result], result, as_json)


@study_app.command("curves")
def curves(
    tables: Annotated[
        list[Path] | None, typer.Argument(metavar="[TABLE...]", help="Tables to show beside them.")
    ] = None,
    out: Annotated[Path, out_option("Folder of the figure.")] = Path("."),
    as_json: JsonFlag = False,
) -> None:
    """The figure of the paper's priorities and supports, with measured tables beside them."""
    from goldimask.figures import write
    from goldimask.studies.curves import curves_figure
    from goldimask.tabulated import read_file

    measured = [(kind, t.name, t.x, t.y) for kind, t in map(read_file, tables or [])]
    files = [str(path) for path in write(curves_figure(measured), out)]
    emit({"files": files}, as_json, "\n".join(files))
