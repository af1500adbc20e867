"""`goldimask compare`, `goldimask demo`: many runs under one protocol, and what they show."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldimask.cli.options import AllowPlugins, JsonFlag, Overrides, out_option
from goldimask.console import emit, progress, say, table
from goldimask.errors import RunFailed

if TYPE_CHECKING:
    from goldimask.campaign.executors import Ended

app = typer.Typer()
SHOWN = ("main", "paired", "decoding", "frontier", "supervision")


@app.command()
def compare(
    campaign: Annotated[str, typer.Argument(help="A campaign: `lab`, or a YAML file.")],
    overrides: Overrides = None,
    preset: Annotated[
        str | None, typer.Option(help="smoke, standard, full, or another of the campaign's.")
    ] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", help="Processes, one thread each.")] = 1,
    out: Annotated[Path | None, out_option("Folder of the results.")] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Say what is done and what would run, and stop.")
    ] = False,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Train and compare every method on every backbone and seed.

    Every cell is an ordinary run, made by `goldimask train` and `goldimask eval`, and found again
    by its content: an interrupted command goes on where it stopped, and running it again only makes
    the tables. A cell that fails is reported and the others go on.

    Examples:

        goldimask compare lab --preset standard --jobs 2 -o runs/lab

        goldimask compare lab --preset smoke --plan
    """
    from goldimask.campaign.run import make_plan, run_campaign, write_results
    from goldimask.campaign.settings import load_campaign
    from goldimask.jobs import locked

    settings = load_campaign(campaign, preset, overrides or [])
    folder = out or Path(settings.output)
    with nullcontext() if plan else locked(folder):
        planned = make_plan(settings, folder)
        cells, done = len(planned.places), len(planned.done)
        say(f"{cells} cells, {done} done; {len(planned.jobs)} jobs to run")
        if plan:
            commands = [job.command for job in planned.jobs]
            if as_json:
                emit({"cells": cells, "done": done, "jobs": commands}, True)
            else:
                typer.echo("\n".join(commands))  # as one would type them, never folded
            return
        with progress("jobs", len(planned.jobs)) as advance:
            found = run_campaign(settings, folder, jobs, teller(advance))
        summary = write_results(settings, found, folder, preset)
    if as_json:
        emit(summary, True)
    else:
        typer.echo(human(summary, folder))  # as it is: a console would fold the wide tables
    if found.failed:
        raise RunFailed(f"{len(found.failed)} jobs failed; the same command tries them again")


def teller(advance: Callable[..., None]) -> Callable[[Ended, int, int], None]:
    """One line per finished job, with the time that is left."""
    began = time.monotonic()

    def tell(ended: Ended, done: int, total: int) -> None:
        left = (time.monotonic() - began) / done * (total - done) / 60
        how = f"failed: {ended.error}" if ended.error else f"{ended.seconds:.0f} s"
        say(f"{done}/{total} {ended.job.name}: {how}; about {left:.1f} min left")
        advance(1)

    return tell


def human(summary: dict[str, Any], folder: Path) -> str:
    """The main tables as Markdown, and where the rest is."""
    shown = [
        (folder / "tables" / f"{name}.md").read_text("utf-8")
        for name in next(iter(summary["tables"].values()), ())
        if name.split("-")[0] in SHOWN
    ]
    left = [*summary["left_out"], *summary["refused"].values()]
    return "\n".join([*shown, *left, f"tables, figures, summary.json: {folder}"])


@app.command()
def demo(
    out: Annotated[Path, out_option("Folder for runs, figures and the pages.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Seed of the noise, the order and the split.")] = 42,
    problems: Annotated[int, typer.Option(help="Test problems per task.")] = 40,
    steps: Annotated[int, typer.Option(help="Optimiser steps of each method.")] = 120,
    tau: Annotated[float, typer.Option(help="Confidence threshold of the parallel decoder.")] = 0.9,
    as_json: JsonFlag = False,
) -> None:
    """Fine-tune the embedded model in two ways and compare them.

    Trains Vanilla and GoldiMask-D on a CPU, offline, in a few minutes, and ends in a page that
    shows what the mask did. Running it again reuses what is there.
    """
    from goldimask.campaign.demo import demo as run
    from goldimask.jobs import locked

    words = [f"seeds=[{seed}]", f"judging.problems={problems}"]
    words += [f"judging.taus=[{tau}]", f"judging.main_tau={tau}"]
    words += [f"change.trainer.max_steps={steps}"] if steps != 120 else []
    with locked(out), progress("demo", 5) as advance:
        found = run(out, words, teller(advance), say)
    emit(found, as_json, results_table(found["results"], problems, tau))
    if not as_json:
        say(f"\npage: {found['page']}")
        say(f"report of the runs: {found['report']}")


def results_table(results: dict[str, Any], problems: int, tau: float) -> Any:
    """One row per model: accuracy per task, mean, decoding steps, held-out denoising loss."""
    tasks = list(results["base"]["tasks"])
    rows = [
        (
            name,
            *(f"{100 * r['tasks'][t]['accuracy']:.0f}" for t in tasks),
            f"{100 * r['accuracy']:.1f}",
            f"{r['steps']:.1f}",
            f"{r['heldout']:.3f}",
        )
        for name, r in results.items()
    ]
    title = f"Accuracy (%) on {problems} test problems a task, threshold {tau:g}; held-out loss"
    return table(title, ("model", *tasks, "mean", "steps", "loss"), rows)
