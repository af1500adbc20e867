"""`goldimask compare`, `goldimask demo`: many runs under one protocol, and what they show."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldimask.cli.options import AllowCode, AllowPlugins, JsonFlag, Overrides, out_option
from goldimask.console import emit, progress, say, table
from goldimask.errors import GoldimaskError, RunFailed

if TYPE_CHECKING:
    from goldimask.campaign.executors import Ended
    from goldimask.campaign.settings import Campaign

app = typer.Typer()
SHOWN = ("main", "code", "aime", "paired", "decoding", "frontier", "supervision", "time")


@app.command()
def compare(
    campaign: Annotated[str, typer.Argument(help="A campaign: `lab`, `paper`, or a YAML file.")],
    overrides: Overrides = None,
    preset: Annotated[
        str | None, typer.Option(help="smoke, standard, full, or another of the campaign's.")
    ] = None,
    on: Annotated[str, typer.Option("--on", help="Who runs the jobs: local or slurm.")] = "local",
    jobs: Annotated[
        int | None, typer.Option("-j", "--jobs", help="Jobs at once: one per device, or 1.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option("--gpus", min=1, help="Devices of a cell [1].")
    ] = None,
    slurm: Annotated[
        Path | None, typer.Option("--slurm", help="Partition, account, time ... as YAML.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Cells by name, such as '*_gift_s42'.")] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed jobs again.")] = False,
    plan: Annotated[
        bool, typer.Option("--plan", help="Cells, hours, disk, what is done; run nothing.")
    ] = False,
    status: Annotated[
        bool, typer.Option("--status", help="What is queued, running, failed, done.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the commands that would run, and stop.")
    ] = False,
    tables: Annotated[
        bool, typer.Option("--tables", help="Tables of what is finished; run nothing.")
    ] = False,
    card: Annotated[
        str | None, typer.Option("--card", help="Card of the plan's hours, such as 'H100'.")
    ] = None,
    out: Annotated[Path | None, out_option("Folder of the results.")] = None,
    allow_code_execution: AllowCode = False,
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Train and compare every method on every backbone, corpus and seed.

    Every cell is an ordinary run, made by `goldimask train` and `goldimask eval`, and found again
    by its content: an interrupted command goes on where it stopped, and running it again only makes
    the tables. A cell that fails is reported and the others go on. Exit code: 0 all is done (or
    given to Slurm), 3 something failed, 4 stopped with checkpoints.

    Examples:

        goldimask compare lab --preset standard --jobs 2 -o runs/lab

        goldimask compare paper --plan

        goldimask compare paper-table1 --on slurm --slurm cluster.yaml
    """
    from goldimask.campaign.reading import load_parts

    if on not in ("local", "slurm"):
        raise GoldimaskError(f"--on: '{on}' is neither local nor slurm")
    parts = load_parts(campaign, preset, overrides or [])
    folder = out or Path(parts[0].output)
    if plan:
        show_plan(parts, folder, card, as_json)
        return
    if status:
        show_status(parts, folder, as_json)
        return
    if dry_run:
        show_commands(parts, folder, only, allow_code_execution, gpus or 1, as_json)
        return
    from goldimask.campaign.run import Progress, make_plan, refuse_code, run_campaign, write_results

    made = make_plan(parts, folder, only, allow_code_execution, gpus or 1)
    say(f"{len(made.places)} cells, {len(made.done)} done; {len(made.jobs)} jobs to run")
    found = Progress()
    if not tables:
        refuse_code(made, allow_code_execution)
        if on == "slurm":
            from goldimask.campaign.slurm import read_settings, submit

            again = words_of(campaign, overrides, preset, only, folder, allow_plugins)
            sent = submit(made, folder, read_settings(slurm, gpus), again, retry)
            emit(
                sent, as_json, f"{len(sent['submitted'])} cells given to Slurm; --status shows them"
            )
            return
        slots: Any = jobs or 1
        if made.jobs:
            from goldimask.campaign.executors import own_slots

            slots = own_slots(jobs, gpus or 1)
        with progress("jobs", len(made.jobs)) as advance:
            found = run_campaign(parts, folder, slots, teller(advance), made, retry)
    summary = write_results(parts, folder, made.places, found)
    if as_json:
        emit(summary, True)
    else:
        typer.echo(human(summary, folder))  # as it is: a console would fold the wide tables
    if lost := {**found.before, **found.failed}:
        name, error = next(iter(lost.items()))
        raise RunFailed(
            f"{len(lost)} jobs failed, such as {name}: {error}; --retry runs them again"
        )


def words_of(
    campaign: str,
    overrides: Sequence[str] | None,
    preset: str | None,
    only: str | None,
    folder: Path,
    plugins: bool,
) -> list[str]:
    """The command that makes the tables of this campaign."""
    given = {"--preset": preset, "--only": only, "--out": str(folder)}
    words = ["compare", campaign, *(overrides or []), "--tables"]
    words += [x for option, value in given.items() if value for x in (option, value)]
    return [*words, *["--allow-plugins"] * plugins]


def show_plan(parts: Sequence[Campaign], folder: Path, card: str | None, as_json: bool) -> None:
    from goldimask.campaign.plan import make_estimate

    found = make_estimate(parts, folder, card)
    if as_json:
        emit(found, True)
        return
    rows = [
        (
            part["name"],
            part["cells"],
            part["trainings"]["all"],
            part["trainings"]["done"],
            f"{part['hours']:,.0f}",
            " ".join([*part["tables"], *(f"({x})" for x in part["figures"])]),
        )
        for part in found["parts"]
    ]
    columns = ("part", "cells", "trainings", "done", "hours", "tables (figures)")
    emit(found, False, table(f"{found['campaign']}: {found['folder']}", columns, rows))
    runs, asked = found["trainings"], found["evaluations"]
    typer.echo(
        f"{runs['all']} trainings ({runs['done']} done, {runs['unfinished']} unfinished), "
        f"{asked['all']} evaluations ({asked['missing']} missing) of {asked['answers']:,} answers; "
        f"cells that parts share are counted once"
    )
    for kind, unit in (("gpu", "GPU"), ("core", "CPU core")):
        whole, left = found[f"{kind}_hours"], found[f"{kind}_hours_left"]
        if whole:
            typer.echo(f"{whole:,.1f} {unit}-hours, {left:,.1f} of them left")
    typer.echo(f"{found['disk_gb']:,.1f} GB; hours by: {'; '.join(found['sources'])}")
    for name, why in found["not_here"].items():
        typer.echo(f"not keyed yet: {name}, {why}")


def show_status(parts: Sequence[Campaign], folder: Path, as_json: bool) -> None:
    from goldimask.campaign.grid import by_recipe, wanted
    from goldimask.campaign.status import status

    found = status(by_recipe(wanted(parts), folder), folder)
    if as_json:
        emit(found, True)
        return
    rows = []
    for cell in found["cells"]:
        step = f"{cell['step'] or 0}/{cell['steps']}" if cell["steps"] else ""
        left = f"{cell['left'] / 60:.0f} min" if cell["left"] is not None else ""
        end = cell["error"] or cell["where"]
        what = f"{cell['name']} {cell['what']}".strip()
        rows.append((cell["cell"], what, step, cell["answers"] or "", left, end))
    columns = ("cell", "state", "step", "answers", "left", "")
    title = ", ".join(f"{count} {name}" for name, count in found["states"].items())
    emit(found, False, table(title, columns, rows, left=2))


def show_commands(
    parts: Sequence[Campaign], folder: Path, only: str | None, code: bool, gpus: int, as_json: bool
) -> None:
    """Commands as one would type them, in an order that works."""
    from dataclasses import replace

    from goldimask.campaign.grid import CELLS, jobs_of, wanted
    from goldimask.campaign.run import chosen, make_plan

    try:
        commands = [job.command for job in make_plan(parts, folder, only, code, gpus).jobs]
    except GoldimaskError as error:
        say(f"cells are not keyed: {error}; KEY stands for what a run finds out")
        found = [p for p in wanted(parts) if chosen(p, only)]
        named = [replace(p, folder=folder / CELLS / f"{p.name}-KEY") for p in found]
        commands = [job.command for p in named for job in jobs_of(p, code, gpus)]
    if as_json:
        emit({"jobs": commands}, True)
    else:
        typer.echo("\n".join(commands))  # never folded


def teller(advance: Callable[..., None]) -> Callable[[Ended, int, int], None]:
    """One line per finished job, with the time that is left."""
    began = time.monotonic()

    def tell(ended: Ended, done: int, total: int) -> None:
        left = (time.monotonic() - began) / done * (total - done) / 60
        how = f"failed: {ended.error}" if ended.error else f"{ended.seconds:.0f} s"
        how = how if ended.ran or ended.error else "done by somebody else"
        say(f"{done}/{total} {ended.job.name}: {how}; about {left:.1f} min left")
        advance(1)

    return tell


def human(summary: dict[str, Any], folder: Path) -> str:
    """The main tables as Markdown, and where the rest is."""
    files = [
        file
        for file in sorted((folder / "tables").rglob("*.md"))
        if file.stem.split("-")[0] in SHOWN and file.stem in all_names(summary)
    ]
    left = [str(x) for x in summary.get("left_out", [])]
    return "\n".join([*(f.read_text("utf-8") for f in files), *left, f"everything: {folder}"])


def all_names(summary: dict[str, Any]) -> set[str]:
    """Tables that were made, of whatever part."""
    made = summary.get("tables", {})
    return {
        name for names in (made.values() if isinstance(made, dict) else [made]) for name in names
    }


@app.command()
def demo(
    out: Annotated[Path, out_option("Folder for runs, figures and the pages.")] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Seed of the noise, the order and the split.")] = 42,
    problems: Annotated[int, typer.Option(help="Test problems per task.")] = 80,
    steps: Annotated[int, typer.Option(help="Optimiser steps of each method.")] = 200,
    tau: Annotated[float, typer.Option(help="Confidence threshold of the parallel decoder.")] = 0.9,
    as_json: JsonFlag = False,
) -> None:
    """Teach the embedded model a skill in three ways, and compare.

    Trains Vanilla, GoldiMask-D and GoldiMask-D above a floor on a CPU, offline, in five minutes,
    says what each gained over the base and what it kept, and ends in a page that shows what the
    mask did. Running it again reuses what is there; `goldimask compare skills` is the whole of it.
    """
    from goldimask.campaign.demo import demo as run
    from goldimask.jobs import locked

    words = [f"seeds=[{seed}]", f"judging.problems={problems}"]
    words += [f"judging.taus=[{tau}]", f"judging.main_tau={tau}"]
    words += [f"change.trainer.max_steps={steps}", f"change.trainer.eval_steps={steps}"]
    with locked(out), progress("demo", 7) as advance:
        found = run(out, words, teller(advance), say)
    emit(found, as_json, results_table(found["results"], problems, tau))
    if not as_json:
        say(f"\npage: {found['page']}")
        say(f"report of the runs: {found['report']}")


def results_table(results: dict[str, Any], problems: int, tau: float) -> Any:
    """One row per model: accuracy and gain over the base by role, and decoding steps."""
    roles = list(results["base"]["roles"])

    def gained(result: dict[str, Any], role: str) -> str:
        found = result["gains"].get(role)
        return "{:+.0f} [{:+.0f}, {:+.0f}]".format(*(100 * x for x in found)) if found else ""

    rows = [
        (
            name,
            *(x for role in roles for x in (f"{100 * r['roles'][role]:.1f}", gained(r, role))),
            f"{r['steps']:.1f}",
        )
        for name, r in results.items()
    ]
    title = f"Accuracy (%), {problems} test problems a task, threshold {tau:g}; gain over the base"
    head = (x for role in roles for x in (role, "gain"))
    return table(title, ("model", *head, "steps"), rows)
