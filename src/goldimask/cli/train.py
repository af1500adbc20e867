"""`goldimask train RECIPE [key=value ...]`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, say, table


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a recipe.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Overrides, such as `seed=2 method.weigh.cap=5`."
        ),
    ] = None,
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
    nproc: Annotated[
        int | None, typer.Option("--nproc", min=1, help="Processes on this machine.")
    ] = None,
    launch: Annotated[
        str, typer.Option("--launch", help="How processes share the model: `ddp` or `fsdp2`.")
    ] = "ddp",
    show: Annotated[int, typer.Option("--show", min=0, help="Examples to print first.")] = 3,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Count unusable rows instead of stopping.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Fine-tune a backbone as a recipe says.

    Writes a run folder: the adapter or the weights, the recipe as resolved, a manifest, metrics.
    Ctrl-C and SIGTERM save a checkpoint first (exit code 4).

    Examples:

        goldimask train tiny output=runs/first

        goldimask train tiny method.preset=vanilla seed=43 output=runs/vanilla-43

        goldimask train llada8b method.preset=gift data.corpus=s1k seed=43 --nproc 4 --dry-run
    """
    from goldimask.config import load_recipe

    words = [*(overrides or []), *(["data.skip_bad_rows=true"] if skip_bad_rows else [])]
    resolved = load_recipe(recipe, words)
    check_launch(launch)
    if dry_run:
        show_plan(resolved, nproc or 1, launch, as_json)
    elif nproc is not None:
        from goldimask.train.arguments import micro_batches
        from goldimask.train.launch import launch as start

        micro_batches(resolved.trainer, resolved.global_batch_size, nproc)
        flags = {"--resume": resume, "--allow-changes": allow_changes, "--json": as_json}
        chosen = [flag for flag, on in flags.items() if on]
        start(["train", recipe, *words, "--show", str(show), *chosen], nproc, launch)  # type: ignore[arg-type]
    else:
        run_here(resolved, resume, allow_changes, show, as_json)


def check_launch(launch: str) -> None:
    from goldimask.errors import GoldimaskError, nearest

    if launch not in ("ddp", "fsdp2"):
        raise GoldimaskError(f"--launch: unknown '{launch}'; {nearest(launch, ('ddp', 'fsdp2'))}")


def run_here(resolved: Any, resume: bool, allow_changes: bool, show: int, as_json: bool) -> None:
    """Train in this process, which may be one of several."""
    from rich.markup import escape

    from goldimask.processes import rank
    from goldimask.train.launch import report_failure
    from goldimask.train.run import train as run

    try:
        summary = run(
            resolved,
            resume=resume,
            allow_changes=allow_changes,
            show=show,
            say=lambda line: say(escape(line)),
        )
    except Exception as error:
        if report_failure(error):  # the process that started this one tells the user
            raise SystemExit(getattr(error, "exit_code", 1)) from None
        raise
    if rank() == 0:
        rows = [(k.replace("_", " "), v) for k, v in summary.items() if v is not None]
        emit(summary, as_json, table("Finished", ("", ""), rows))


def show_plan(resolved: Any, processes: int, launch: str, as_json: bool) -> None:
    """Print the resolved recipe with what it would take."""
    from goldimask.config import recipe_dict, recipe_yaml
    from goldimask.train.estimate import estimate

    found = estimate(resolved, processes, launch)
    rows = [(k.replace("_", " "), v) for k, v in found.items() if v is not None]
    if as_json:
        emit({**recipe_dict(resolved), "plan": found}, True)
        return
    from rich.console import Group
    from rich.text import Text

    emit(None, False, Group(Text(recipe_yaml(resolved)), table("Plan", ("", ""), rows)))
