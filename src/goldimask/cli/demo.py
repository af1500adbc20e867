"""`goldimask demo`: the whole job on the embedded backbone."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, say, table


@app.command()
def demo(
    out: Annotated[
        Path, typer.Option("-o", "--out", help="Folder for runs, figures and the page.")
    ] = Path("runs/demo"),
    seed: Annotated[int, typer.Option(help="Seed of the noise, the order and the split.")] = 42,
    problems: Annotated[int, typer.Option(help="Test problems per task.")] = 40,
    steps: Annotated[int, typer.Option(help="Optimiser steps of each method.")] = 120,
    tau: Annotated[float, typer.Option(help="Confidence threshold of the parallel decoder.")] = 0.9,
    as_json: JsonFlag = False,
) -> None:
    """Fine-tune the embedded model with Vanilla and GoldiMask-D and compare them.

    Runs on a CPU, offline, in a few minutes, and ends in a page that shows what the mask did.
    Running it again reuses what is there.
    """
    from goldimask.campaign.demo import DemoSettings
    from goldimask.campaign.demo import demo as run

    overrides = (f"trainer.max_steps={steps}",) if steps != 120 else ()
    settings = DemoSettings(seed=seed, problems=problems, tau=tau, overrides=overrides)
    found = run(out, settings, say)
    emit(found, as_json, results_table(found["results"], problems, tau))
    if not as_json:
        say(f"\npage: [bold]{found['page']}[/bold]")
        say(f"report of the runs: [bold]{found['report']}[/bold]")


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
