"""How far every cell is, read from what its runs write themselves.

    done      trained, and every question answered       failed    its last words are in logs/
    running   somebody holds its lock: step, time left   queued    none of these

A lock names its process and host. Of a process of this host it is asked whether it lives; one of
another host is believed, and Slurm is asked for jobs that were given to it.
"""

from __future__ import annotations

import os
import platform
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from goldimask.campaign.executors import failure
from goldimask.campaign.grid import Place
from goldimask.jobs import lock_file, partial_of
from goldimask.records import METRICS, SAMPLES, read_json

STATES = ("running", "queued", "failed", "done")
TAIL = 4096  # bytes at the end of a file that hold its last lines


@dataclass(frozen=True)
class State:
    """Of one cell."""

    cell: str
    name: str  # one of STATES
    what: str = ""  # train or eval, where it runs
    step: int | None = None
    steps: int | None = None  # of the training
    answers: int | None = None
    left: float | None = None  # seconds, by the pace since its process began
    where: str = ""
    error: str = ""  # last words

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def state_of(place: Place, logs: Path) -> State:
    """The state of a cell."""
    steps = place.recipe.trainer.get("max_steps") if place.recipe else None
    facts: dict[str, Any] = {"cell": place.name, "steps": steps}
    if place.folder is not None:
        if place.trained and not place.missing():
            return State(**facts, name="done", step=steps)
        answers = sum(lines_in(file) for file in place.evaluation.glob(SAMPLES))
        facts["answers"] = answers or None
        if holder := alive(lock_file(place.folder)):
            return State(**facts, name="running", what="train", **pace(place.folder, holder, steps))
        if place.trained:
            facts["step"] = steps
            for lock in lock_file(place.evaluation).parent.glob(".eval.*.lock"):
                if holder := alive(lock):
                    return State(**facts, name="running", what="eval", where=named(holder))
        else:
            facts["step"] = last_step(partial_of(place.folder)) or None
    for job in [f"{place.cell.name}-train", *(f"{place.cell.name}-{e.name}" for e in place.asked)]:
        if error := failure(logs, job):
            return State(**facts, name="failed", error=error)
    return State(**facts, name="queued")


def alive(lock: Path) -> dict[str, Any] | None:
    """Who holds a lock, unless it is a process of this host that is gone."""
    try:
        holder = read_json(lock.with_name(f"{lock.name}.json"))
        if not holder:
            return None
        if holder.get("host") == platform.node():
            os.kill(int(holder["process"]), 0)
        return holder
    except (ProcessLookupError, ValueError, KeyError):  # gone, or a file torn by a kill
        return None
    except PermissionError:  # it lives, and is somebody else's
        return holder


def named(holder: dict[str, Any]) -> str:
    return f"{holder.get('host')}:{holder.get('process')}"


def pace(folder: Path, holder: dict[str, Any], steps: int | None) -> dict[str, Any]:
    """Step and time left: steps since the process began, over the time since then."""
    partial = partial_of(folder)
    step = last_step(partial)
    found: dict[str, Any] = {"step": step, "where": named(holder)}
    try:
        since = time.mktime(time.strptime(str(holder.get("since")), "%Y-%m-%d %H:%M:%S"))
    except ValueError:
        return found
    before = [0]
    for checkpoint in partial.glob("checkpoint-*"):
        number = checkpoint.name.rpartition("-")[2]
        if number.isdigit() and checkpoint.stat().st_mtime < since:
            before.append(int(number))
    made = step - max(before)
    if steps and made > 0:
        found["left"] = (steps - step) * (time.time() - since) / made
    return found


def last_step(folder: Path) -> int:
    """The last step that a run logged."""
    import json

    try:
        with (folder / METRICS).open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - TAIL))
            lines = file.read().split(b"\n")
    except OSError:
        return 0
    for line in reversed(lines):
        try:
            return int(json.loads(line)["step"])
        except (ValueError, KeyError, TypeError):
            continue
    return 0


def lines_in(file: Path) -> int:
    try:
        with file.open("rb") as content:
            return sum(part.count(b"\n") for part in iter(lambda: content.read(1 << 20), b""))
    except OSError:
        return 0


def status(found: Sequence[Place], folder: Path) -> dict[str, Any]:
    """All cells, and how many are in which state."""
    from goldimask.campaign.slurm import queued

    waiting = queued(folder)
    states = []
    for place in found:
        state = state_of(place, folder / "logs")
        job = waiting.get(place.name)
        if job and state.name in ("queued", "failed"):
            running = job.state == "RUNNING"
            facts = {**asdict(state), "name": "running" if running else "queued"}
            state = State(**{**facts, "where": f"Slurm {job.id} {job.state}", "error": ""})
        states.append(state)
    counts = Counter(state.name for state in states)
    cells = [state.to_json() for state in states]
    return {"states": {name: counts[name] for name in STATES}, "cells": cells}
