"""Run a campaign: what is missing as jobs, then tables and figures from all finished cells."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goldimask.campaign.board import Board, board
from goldimask.campaign.cost import costs
from goldimask.campaign.executors import GRACE, Ended, Job, execute
from goldimask.campaign.grid import Finished, Place, finished, jobs_of, places
from goldimask.campaign.output import write_output
from goldimask.campaign.settings import Campaign, Cell
from goldimask.errors import GoldimaskError
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


def boards_of(campaign: Campaign, cells: Mapping[Cell, Finished], folder: Path) -> list[Board]:
    """One per backbone that has a finished cell."""
    out = []
    for backbone in campaign.backbones:
        if any(cell.backbone == backbone for cell in cells):
            made = board(campaign, cells, backbone, costs(campaign, backbone, folder))
            out += [] if made is None else [made]
    return out


def write_results(
    campaign: Campaign, progress: Progress, folder: Path, preset: str | None
) -> dict[str, Any]:
    """Tables, figures and the summary of everything that is finished."""
    boards = boards_of(campaign, progress.cells, folder)
    if not boards:
        first = next(iter(progress.failed.values()), "")
        raise GoldimaskError(f"no seed has all its rows, so there is no table; {first}")
    state = git_state() or {}
    facts = {
        "command": words(sys.argv),
        "commit": str(state.get("commit", "")) + (" with changes" if state.get("dirty") else ""),
        "preset": preset,
        "cells": len(progress.cells),
        "jobs": progress.ran,
        "failed": progress.failed,
    }
    return write_output(campaign, boards, folder, facts)


def words(command: Sequence[str]) -> str:
    return " ".join([Path(command[0]).name, *command[1:]])
