"""Run a campaign: what is missing as jobs, then tables, figures and a page of all finished cells.

`campaign.json` in the folder says what the campaign consists of and how far it got; the report is
made of it and of the cells' folders, and can be made again from them (`goldimask report FOLDER`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from goldimask.campaign.executors import Ended, Job, Slot, execute, failure, halting
from goldimask.campaign.grid import Place, is_done, jobs_of, places, resumed
from goldimask.campaign.settings import Campaign, campaign_dict
from goldimask.campaign.status import state_of
from goldimask.errors import GoldimaskError
from goldimask.files import write_json
from goldimask.jobs import git_state, locked

LOGS, RECORD = "logs", "campaign.json"
Tell = Callable[[Ended, int, int], None]  # what ended, how many have, how many there are


@dataclass(frozen=True)
class Plan:
    """What there is, and what is still to run."""

    places: tuple[Place, ...]
    missing: dict[Path, list[Job]]  # of the chosen cells, by folder

    @property
    def jobs(self) -> list[Job]:
        return [job for jobs in self.missing.values() for job in jobs]

    @property
    def done(self) -> list[Place]:
        """Cells that lack nothing."""
        return [p for p in self.places if p.folder and not self.missing.get(p.folder, [p])]


@dataclass
class Progress:
    """Jobs of this call: how many ran, and which failed with which last words."""

    ran: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    before: dict[str, str] = field(default_factory=dict)  # failed in an earlier call, not tried


def make_plan(
    parts: Sequence[Campaign],
    folder: Path,
    only: str | None = None,
    code: bool = False,
    gpus: int = 1,
) -> Plan:
    """Every cell by its key, and the jobs of those that lack something; nothing is run."""
    found = places(parts, folder)
    jobs = {p.folder: jobs_of(p, code, gpus) for p in found if p.folder and chosen(p, only)}
    if not jobs:
        raise GoldimaskError(f"--only: no cell is called '{only}'")
    return Plan(tuple(found), jobs)


def chosen(place: Place, only: str | None) -> bool:
    """Whether a cell's name has a pattern, or holds it."""
    return only is None or fnmatch(place.name, only) or only in place.name


def refuse_code(plan: Plan, code: bool) -> None:
    """Programs that a model wrote are run only where somebody said so."""
    if not code and any(job.call and job.call.runs_code for job in plan.jobs):
        raise GoldimaskError(
            "this campaign runs programs that its models write, in a sandbox (docs/security.md); "
            "add --allow-code-execution, or leave those cells out with --only"
        )


def run_campaign(
    parts: Sequence[Campaign],
    folder: Path,
    slots: int | Sequence[Slot] = 1,
    tell: Tell = lambda ended, done, total: None,
    plan: Plan | None = None,
    retry: bool = False,
    executor: Callable[..., Generator[Ended]] = execute,
) -> Progress:
    """Run what is missing; a failure takes only what needs it along.

    Jobs that failed in an earlier call are tried again with `retry` alone. Others may run the same
    campaign in the same folder: whoever claims a job does it.
    """
    plan = plan or make_plan(parts, folder)
    out, logs = Progress(), folder / LOGS
    write_record(parts, plan.places, folder, out)
    jobs = plan.jobs
    if not retry:
        known = {job.name: failure(logs, job.name) for job in jobs}
        out.before = {name: error for name, error in known.items() if error}
        lost = set(out.before)
        jobs = [job for job in jobs if not lost & {job.name, *job.needs}]
    total = len(jobs)
    with halting(), closing(executor(jobs, slots, logs, words=resumed, is_done=is_done)) as running:
        for number, ended in enumerate(running, start=1):
            out.ran += ended.ran
            if ended.error:
                out.failed[ended.job.name] = ended.error
            tell(ended, number, total)
    write_record(parts, plan.places, folder, out)
    return out


def write_record(
    parts: Sequence[Campaign], found: Sequence[Place], folder: Path, progress: Progress
) -> None:
    """`campaign.json`: the campaign as resolved, its cells with their folders and states."""
    state = git_state() or {}
    with locked(folder, "record", wait=60.0):
        write_json(
            folder / RECORD,
            {
                "version": 1,
                "name": parts[0].name if len(parts) == 1 else Path(parts[0].output).name,
                "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
                "commit": str(state.get("commit", "")) + " with changes" * bool(state.get("dirty")),
                "cells": [cell_record(place, folder) for place in found],
                "parts": [part_record(part, found) for part in parts],
                "failed": {**progress.before, **progress.failed},
            },
        )


def cell_record(place: Place, folder: Path) -> dict[str, Any]:
    cell, state = place.cell, state_of(place, folder / LOGS)
    return {
        "name": place.name,
        "backbone": cell.backbone,
        "corpus": cell.corpus,
        "row": cell.row,
        "seed": cell.seed if place.recipe is not None else None,
        "folder": None if place.folder is None else place.folder.relative_to(folder).as_posix(),
        "done": state.name == "done",
        "state": state.name,
        "error": state.error,
        "step": state.step,
        "steps": state.steps,
    }


def part_record(part: Campaign, found: Sequence[Place]) -> dict[str, Any]:
    values = campaign_dict(part)
    kept = {key: values[key] for key in ("name", "title", "judging", "tables", "figures")}
    return {**kept, "cells": [p.name for p in found if part.name in p.parts]}


def write_results(
    parts: Sequence[Campaign], folder: Path, found: Sequence[Place], progress: Progress
) -> dict[str, Any]:
    """Tables, figures and the page of everything that is finished; one writer at a time."""
    from goldimask.report.campaign_report import write_campaign

    with locked(folder, "tables", wait=600.0):
        write_record(parts, found, folder, progress)
        return {**write_campaign(folder), "jobs": progress.ran, "failed": progress.failed}
