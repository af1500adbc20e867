"""`goldimask train`, `inspect`, `bench`: run a recipe, look at one of its steps, time its steps."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldimask.cli.options import AllowPlugins, Device, JsonFlag, Nproc, Overrides, words
from goldimask.console import emit, is_quiet, progress, say, suggest, table

if TYPE_CHECKING:
    from rich.table import Table

    from goldimask.config import Recipe
    from goldimask.train.launch import Launch

app = typer.Typer()


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a recipe.")],
    overrides: Overrides = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an unfinished run from its last checkpoint.")
    ] = False,
    allow_changes: Annotated[
        bool, typer.Option("--allow-changes", help="Resume although the recipe or data differ.")
    ] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Check the recipe, print it with an estimate, and stop."),
    ] = False,
    nproc: Nproc = None,
    launch: Annotated[
        str, typer.Option("--launch", help="How processes share the model: `ddp` or `fsdp2`.")
    ] = "ddp",
    card: Annotated[
        str | None, typer.Option("--card", help="Card of the estimate, such as 'H100'.")
    ] = None,
    show: Annotated[int, typer.Option("--show", min=0, help="Examples to print first.")] = 3,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Count unusable rows instead of stopping.")
    ] = False,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Fine-tune a backbone as a recipe says.

    Writes a run folder: the adapter or the weights, the recipe as resolved, a manifest, metrics.
    SIGTERM, SIGINT (Ctrl-C), SIGHUP, SIGUSR1 and SIGUSR2 save a checkpoint first (exit code 4).

    Examples:

        goldimask train tiny output=runs/first

        goldimask train tiny method.preset=vanilla seed=43 output=runs/vanilla-43

        goldimask train llada8b method.preset=gift data.corpus=s1k seed=43 --nproc 4 --dry-run
    """
    from goldimask.config import load_recipe

    changes = [*(overrides or []), *(["data.skip_bad_rows=true"] if skip_bad_rows else [])]
    resolved = load_recipe(recipe, changes)
    way = read_launch(launch)
    before = load_recipe(recipe).data.corpus if resolved.data.path else None
    if before is not None and resolved.data.corpus is None:
        say(
            f"data.path takes the place of the corpus '{before}' "
            f"(data.corpus={before}: read it in the format of that one)"
        )
    if dry_run:
        show_plan(resolved, nproc or 1, way, card, as_json)
    elif nproc is not None:
        from goldimask.registry import passed_on
        from goldimask.train.arguments import micro_batches
        from goldimask.train.launch import launch as start

        micro_batches(resolved.trainer, resolved.global_batch_size, nproc)
        flags = {"--resume": resume, "--allow-changes": allow_changes, "--json": as_json}
        flags |= {"--quiet": is_quiet()}
        chosen = [flag for flag, on in flags.items() if on] + passed_on()
        start(["train", recipe, *changes, "--show", str(show), *chosen], nproc, way)
    else:
        train_here(resolved, resume, allow_changes, show, as_json)


def read_launch(name: str) -> Launch:
    from goldimask.errors import GoldimaskError, nearest

    if name == "ddp" or name == "fsdp2":
        return name
    raise GoldimaskError(f"--launch: unknown '{name}'; {nearest(name, ('ddp', 'fsdp2'))}")


def train_here(
    resolved: Recipe, resume: bool, allow_changes: bool, show: int, as_json: bool
) -> None:
    """Train in this process, which may be one of several."""

    from goldimask.processes import rank
    from goldimask.train.launch import report_failure
    from goldimask.train.run import train as run

    try:
        summary = run(
            resolved,
            resume=resume,
            allow_changes=allow_changes,
            show=show,
            say=say,
        )
    except Exception as error:
        if report_failure(error):  # the process that started this one tells the user
            raise SystemExit(getattr(error, "exit_code", 1)) from None
        raise
    if rank() == 0:
        emit(summary, as_json, finished(summary, resolved))
        if not as_json:
            suggest(*after_training(resolved))


def finished(summary: dict[str, Any], resolved: Recipe) -> Table:
    """What came of a run, in words."""
    keys = ("output", "method", "steps", "examples", "seed", "data_hash")
    rows = [(key.replace("_", " "), summary[key]) for key in keys]
    rows.insert(4, ("held-out examples", summary["validation_examples"]))

    def loss(which: str) -> str:
        error = summary.get(f"eval_loss_{which}_se")
        return f"{summary[f'eval_loss_{which}']:.4g}" + (f" ± {error:.2g}" if error else "")

    best = summary.get("eval_loss_best_step")
    if best is not None:
        if resolved.trainer.get("eval_on_start"):
            rows.append(("held-out loss before training", loss("first")))
        rows.append((f"lowest held-out loss (step {best})", loss("best")))
        rows.append(("held-out loss at the end", loss("last")))
    lowest = best is not None and resolved.trainer.get("load_best_model_at_end", True)
    rows.append(("what is kept", f"step {best}, the lowest" if lowest else "the last step"))
    return table("Finished", ("", ""), rows)


def after_training(resolved: Recipe) -> list[str]:
    """Commands that fit the data of a run: generated tasks, or questions of one's own."""
    run, corpus = shlex.quote(resolved.output), resolved.data.corpus or ""
    tasks = "tiny-chain,tiny-sort" if corpus.startswith("tiny") else "file:QUESTIONS.jsonl"
    lines = [f"goldimask eval {run} --tasks {tasks}", f'goldimask decode {run} "..." --show']
    return [
        *lines,
        f"goldimask report {run}",
        f"goldimask merge {run} --to {shlex.quote(resolved.output + '-merged')}",
    ]


def show_plan(
    resolved: Recipe, processes: int, launch: Launch, card: str | None, as_json: bool
) -> None:
    """Print the resolved recipe with what it would take."""
    from rich.console import Group
    from rich.text import Text

    from goldimask.config import recipe_dict, recipe_yaml
    from goldimask.train.estimate import estimate

    found = estimate(resolved, processes, launch, card)
    shown = Group(Text(recipe_yaml(resolved)), facts("Plan", found))
    emit({**recipe_dict(resolved), "plan": found}, as_json, shown)


def facts(title: str, found: dict[str, Any]) -> Table:
    rows = [(k.replace("_", " "), v) for k, v in found.items() if v is not None]
    return table(title, ("", ""), rows)


@app.command()
def inspect(
    source: Annotated[
        str, typer.Argument(metavar="RECIPE|RUN", help="A recipe, or a run folder (its weights).")
    ],
    overrides: Overrides = None,
    example: Annotated[
        int | None,
        typer.Option(help="Number of the training example, from 0. [the first with a reveal]"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Seed of the draws; the recipe's when left out.")
    ] = None,
    epoch: Annotated[int, typer.Option(help="Epoch of the draws.")] = 0,
    t: Annotated[
        float | None, typer.Option("--t", help="Noise level; the one drawn when left out.")
    ] = None,
    methods: Annotated[
        str, typer.Option(help="Methods to compare, by commas; the paper's nine when left out.")
    ] = "",
    html: Annotated[
        Path | None, typer.Option("--html", help="Write the interactive page to this file.")
    ] = None,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Show one training step: what is masked, revealed, weighted.

    Every method sees the same random draws. Without `--html` the step is printed; the page adds a
    slider over the noise level, the order of choice, attention and curves.

    Examples:

        goldimask inspect tiny --example 7 --t 0.4

        goldimask inspect runs/first --example 7 --methods vanilla,goldimask-r --html step.html
    """
    from goldimask.report.inspect import (
        METHODS,
        chosen_methods,
        drawn_level,
        inspect_page,
        inspect_steps,
        levels_around,
        open_subject,
    )
    from goldimask.report.terminal import step_view

    subject = open_subject(source, overrides or [], example, seed, epoch, t)
    picked = chosen_methods(subject.recipe.method, words(methods) or list(METHODS))
    seed = subject.recipe.seed if seed is None else seed
    level = drawn_level(subject.example, seed, epoch) if t is None else t
    levels = levels_around(level) if html else [level]
    records = inspect_steps(subject.backbone, subject.example, picked, seed, levels, epoch)
    if html:
        inspect_page(html, records, subject)
        say(f"page: {html} ({html.stat().st_size / 1000:.0f} KB)")
    result = {"example": subject.index, "seed": seed, "html": str(html) if html else None}
    emit({**result, "records": records}, as_json, None if as_json else step_view(records))


@app.command()
def bench(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a recipe.")] = "tiny",
    overrides: Overrides = None,
    methods: Annotated[
        str, typer.Option(help="Names separated by commas, `main`, or `all` presets.")
    ] = "all",
    rounds: Annotated[int, typer.Option(min=1, help="Times are the minimum over rounds.")] = 12,
    batches: Annotated[int, typer.Option(min=1, help="Different batches.")] = 1,
    accumulate: Annotated[int, typer.Option(min=1, help="Micro-batches of a step.")] = 1,
    quick: Annotated[
        bool, typer.Option("--quick", help="The methods of the paper's table, few rounds.")
    ] = False,
    device: Device = None,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Time a training step of every method against Vanilla.

    Backbone, adapter, data and micro-batch are the recipe's; the steps run where the model is. The
    limit is what the extra forward passes alone would cost; shares are of the method's own step.

    Examples:

        goldimask bench tiny --quick

        goldimask bench llada8b backbone.path=models/LLaDA-8B-Instruct --methods main
    """
    from goldimask.config import load_recipe
    from goldimask.presets import MAIN, PRESETS
    from goldimask.train.arguments import micro_batches
    from goldimask.train.cost import step_costs
    from goldimask.train.prepare import prepare

    if quick:
        methods, rounds, batches = ("main" if methods == "all" else methods), min(rounds, 4), 1
    groups = {"all": PRESETS.names(), "main": list(MAIN)}
    names = groups.get(methods) or words(methods)
    for name in names:
        PRESETS.entry(name, "--methods")  # a mistake is found before a model is loaded
    resolved = load_recipe(recipe, overrides or [])
    each, _ = micro_batches(resolved.trainer, resolved.global_batch_size, 1)
    ready = prepare(resolved, device)
    layer = resolved.method.attention_layer
    total = (rounds + 1) * batches * len(dict.fromkeys(("vanilla", *names)))
    with progress("bench", total) as advance:
        result = step_costs(
            ready.backbone,
            ready.data.train,
            names,
            rounds,
            each,
            batches,
            accumulate,
            attention_layer="last" if layer in (None, "probe") else layer,
            group_by_length=resolved.data.group_by_length,
            advance=advance,
        )
    emit({"recipe": recipe, **result}, as_json, cost_table(result))


def cost_table(result: dict[str, Any]) -> Table:
    """One row per method; times are relative to Vanilla's, phases are shares of the step."""
    groups = {
        "probe": ("probe",),
        "choose": ("corrupt", "select", "weigh"),
        "train": ("train",),
        "back": ("backward",),
        "opt.": ("optimiser",),
    }
    rows = [
        (
            name,
            f"{r['ratio']:.2f}",
            f"{r['limit']:.2f}",
            *(f"{sum(r['shares'][p] for p in phases):.0%}" for phases in groups.values()),
        )
        for name, r in result["methods"].items()
    ]
    columns = ("method", "time", "limit", *groups)
    title = (
        f"{result['clock']} time of a step relative to Vanilla "
        f"({result['vanilla_seconds'] * 1e3:.0f} ms), {result['backbone']}, "
        f"batch {result['batch_size']}, minimum of {result['rounds']}; {result['hardware']}"
    )
    return table(title, columns, rows)
