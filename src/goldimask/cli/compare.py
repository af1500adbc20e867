"""`goldimask compare RECIPE`: methods x seeds x backbones, tables in the paper's form."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, progress, say
from goldimask.errors import GoldimaskError, RunFailed


@app.command()
def compare(
    recipe: Annotated[str, typer.Argument(help="A comparison, such as recipes/lab.yaml.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE...]", help="Changes to the recipe.")
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="smoke, standard, full, or another of the recipe's.")
    ] = None,
    jobs: Annotated[int, typer.Option("-j", "--jobs", help="Processes, one thread each.")] = 1,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder of the results.")] = None,
    plan_only: Annotated[
        bool, typer.Option("--plan", help="Say what would run and how long, and stop.")
    ] = False,
    document: Annotated[
        Path | None, typer.Option(help="Also refresh the marked tables of this Markdown file.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Fine-tune, decode and compare every method on every backbone with every seed.

    Cells are cached by content in the folder: an interrupted command goes on where it stopped, and
    running it again only makes the tables. A cell that fails is reported and the others go on.

    Example:

        goldimask compare recipes/lab.yaml --preset standard --jobs 2 -o runs/lab
    """
    from goldimask.campaign.grid import estimate, plan, run_grid
    from goldimask.campaign.settings import load_lab
    from goldimask.jobs import git_state

    lab = load_lab(recipe, preset, overrides or [])
    folder = out or Path(lab.output)
    found = plan(lab, folder)
    waiting = [job.cell for job in found if not job.file.is_file()]
    guess = estimate(lab, waiting)
    minutes = guess.cpu_seconds / 60
    say(
        f"{len(found)} cells, {len(found) - len(waiting)} on disk; the others take about "
        f"{minutes:.1f} CPU minutes ({minutes / min(jobs, max(1, len(waiting))):.1f} minutes with "
        f"--jobs {jobs} on free cores): {guess.step_seconds:.2f} s a Vanilla step, "
        f"{guess.problem_seconds * 1000:.0f} ms a problem and threshold"
    )
    if plan_only:
        emit({"cells": len(found), "waiting": len(waiting), **vars(guess)}, as_json, "")
        return
    state = git_state() or {}
    commit = str(state.get("commit", "")) + (" with changes" if state.get("dirty") else "")
    with progress("cells", len(waiting)) as advance:
        tell = teller(lab, len(waiting), advance)
        outcome = run_grid(lab, found, jobs, commit, tell)
    summary = finish(lab, folder, outcome, commit, preset)
    if document is not None:
        from goldimask.campaign.output import fill

        say(f"{fill(document, folder.parent)} tables in {document}")
    if as_json:
        emit(summary, True)
    else:
        typer.echo(human(summary, folder))  # as it is: a console would fold the wide tables
    if outcome.failed:
        raise RunFailed(f"{len(outcome.failed)} cells failed; the same command tries them again")


def teller(lab: Any, total: int, advance: Any) -> Any:
    """One line per finished cell, with the time that is left."""
    began, done = time.monotonic(), 0

    def tell(cell: Any, record: dict[str, Any] | None, error: str) -> None:
        nonlocal done
        done += 1
        passed = time.monotonic() - began
        left = f"about {passed / done * (total - done) / 60:.1f} min left"
        if record is None:
            say(f"[{done}/{total}] {cell.name}: failed: {error}; {left}")
        else:
            tasks = record["tasks"][f"{lab.judging.main_tau:g}"].values()
            right = sum(t["correct"].count("1") / len(t["correct"]) for t in tasks) / len(tasks)
            say(
                f"[{done}/{total}] {cell.name}: {100 * right:.1f} %, held-out NLL "
                f"{record['heldout']['nll']:.3f}, {record['cpu_seconds']['all']:.0f} CPU s; {left}"
            )
        advance(1)

    return tell


def finish(lab: Any, folder: Path, outcome: Any, commit: str, preset: str | None) -> dict[str, Any]:
    """Cost measurement, tables, figures, summary."""
    from goldimask.campaign.cost import costs
    from goldimask.campaign.output import write_output
    from goldimask.campaign.scores import board

    boards = []
    for backbone in lab.backbones:
        if not any(cell.backbone == backbone for cell in outcome.records):
            continue
        made = board(lab, outcome.records, backbone, costs(lab, backbone, folder))
        if made is not None:
            boards.append(made)
    if not boards:
        first = next(iter(outcome.failed.values()), "")
        raise GoldimaskError(f"no seed has all its rows, so there is no table; {first}")
    facts = {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "commit": commit,
        "preset": preset,
        "cells": {"done": len(outcome.records), "reused": outcome.reused},
        "failed": {cell.name: error for cell, error in outcome.failed.items()},
        "cpu_seconds": sum(r["cpu_seconds"]["all"] for r in outcome.records.values()),
    }
    return write_output(lab, boards, folder, facts)


def human(summary: dict[str, Any], folder: Path) -> str:
    """The main tables as Markdown, and where the rest is."""
    shown = [
        (folder / "tables" / f"{name}.md").read_text("utf-8")
        for name in summary["tables"]
        if name.split("-")[0] in ("main", "paired", "decoding", "frontier", "supervision", "aims")
    ]
    left = [f"{b}: {x}" for b, found in summary["backbones"].items() for x in found["left_out"]]
    return "\n".join([*shown, *left, f"tables, figures, summary.json: {folder}"])
