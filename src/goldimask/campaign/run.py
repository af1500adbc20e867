"""Run a campaign: what is missing as jobs, then tables and figures from all finished cells."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goldimask.campaign.executors import GRACE, Ended, Job, execute
from goldimask.campaign.grid import Finished, Place, finished, jobs_of, places
from goldimask.campaign.settings import BASE, Campaign, Cell, campaign_dict
from goldimask.errors import GoldimaskError
from goldimask.files import write_json
from goldimask.jobs import git_state, wait_until_free

Tell = Callable[[Ended, int, int], None]  # what ended, how many have, how many there are


@dataclass
class Progress:
    """Cells of a campaign that are done, and jobs that failed."""

    cells: dict[Cell, Finished] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)  # job -> its last words
    ran: int = 0  # jobs of this call


@dataclass(frozen=True)
class Plan:
    """What there is, and what is still to run."""

    places: tuple[Place, ...]
    missing: dict[Cell, list[Job]]

    @property
    def jobs(self) -> list[Job]:
        return [job for jobs in self.missing.values() for job in jobs]

    @property
    def done(self) -> list[Cell]:
        """Cells that lack nothing."""
        return [p.cell for p in self.places if not self.missing[p.cell]]


def make_plan(campaign: Campaign, folder: Path) -> Plan:
    """Every cell, and the jobs of those that lack something; nothing is run."""
    found = tuple(places(campaign, folder))
    return Plan(found, {place.cell: jobs_of(campaign, place) for place in found})


def run_campaign(
    campaign: Campaign,
    folder: Path,
    slots: int = 1,
    tell: Tell = lambda ended, done, total: None,
) -> Progress:
    """Run what is missing; a failure takes only what needs it along.

    The caller holds the lock of the folder. A job that outlived a killed campaign is saving its
    checkpoint: it is waited for.
    """
    if slots < 1:
        raise GoldimaskError(f"--jobs: {slots} must be at least 1")
    for place in places(campaign, folder):
        wait_until_free(place.folder, GRACE)
    plan = make_plan(campaign, folder)
    out = Progress()
    for ended in execute(plan.jobs, slots, folder / "logs"):
        out.ran += 1
        if ended.error:
            out.failed[ended.job.name] = ended.error
        tell(ended, out.ran, len(plan.jobs))
    for place in plan.places:
        cell = finished(campaign, place)
        if cell is not None:
            out.cells[place.cell] = cell
    return out


def write_results(
    campaign: Campaign, progress: Progress, folder: Path, preset: str | None
) -> dict[str, Any]:
    """Tables, figures, page and summary of everything that is finished."""
    from goldimask.report.campaign_report import write_campaign

    state = git_state() or {}
    cells = [
        {
            **{"name": p.cell.name, "row": p.cell.row, "backbone": p.cell.backbone},
            "seed": None if p.cell.row == BASE else p.cell.seed,
            "folder": str(p.folder.relative_to(folder)),
            "done": p.cell in progress.cells,
        }
        for p in places(campaign, folder)
    ]
    judging = campaign_dict(campaign)["judging"]
    facts = {
        "name": campaign.recipe,
        "command": words(sys.argv),
        "commit": str(state.get("commit", "")) + (" with changes" if state.get("dirty") else ""),
        "preset": preset,
        "jobs": progress.ran,
        "failed": progress.failed,
    }
    parts = [{"name": "lab", "title": "Tables", "judging": judging}]
    write_json(folder / "campaign.json", {**facts, "cells": cells, "parts": parts})
    return write_campaign(folder)


def words(command: Sequence[str]) -> str:
    return " ".join([Path(command[0]).name, *command[1:]])
