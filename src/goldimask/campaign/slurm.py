"""`goldimask compare --on slurm`: the jobs of a campaign given to Slurm, through submitit.

    trainings          one array
    evaluations        one array per shard; element i starts when training i has ended well
    tables             one job, when all of these have ended, however they did

Slurm holds the order and the queue; nothing of ours stays running. A job runs the commands that a
user could type, each under its claim (`executors.py`). Before its time is over, or when it is
preempted, Slurm sends a signal: it is passed on, the run saves a checkpoint, and the job asks to be
queued again, under the same number. Numbers are kept in `slurm/jobs.json`; a cell whose job still
stands in Slurm's queue is not given to it twice, whoever asks.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goldimask.campaign.executors import PROGRAM, SIGNALS, STOPPED, Job, claimed, forget, settle
from goldimask.campaign.grid import is_done, resumed
from goldimask.campaign.run import LOGS, Plan
from goldimask.config import read_yaml
from goldimask.errors import GoldimaskError, RunFailed
from goldimask.files import write_json
from goldimask.jobs import drop_lock, locked
from goldimask.processes import one_thread
from goldimask.records import read_json
from goldimask.settings import STRICT, make

RECORD = "slurm/jobs.json"
BUSY = 10.0  # seconds until a claim of somebody else is looked at again
ALIVE = ("PENDING", "RUNNING", "REQUEUED", "REQUEUE_HOLD", "CONFIGURING", "COMPLETING", "SUSPENDED")


@dataclass(frozen=True)
class SlurmSettings:
    """The file of `--slurm`; what is left out is the cluster's own."""

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    constraint: str | None = None
    minutes: int = 240  # of a job; a longer training goes on in the next one
    gpus: int = 1  # of a cell; 0: CPU
    cpus: int = 4
    memory_gb: int | None = None
    at_once: int = 256  # jobs of an array
    warn_seconds: int = 120  # before the end, to save a checkpoint in
    requeues: int = 100
    setup: tuple[str, ...] = ()  # lines of the script before the command
    sbatch: dict[str, Any] = field(default_factory=dict)  # any other option of sbatch
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Queued:
    """A job in Slurm's queue."""

    id: str
    state: str


class Work:
    """Commands one after another, in a job of Slurm; submitit carries it there."""

    def __init__(self, jobs: Sequence[Job], logs: Path, requeues: int) -> None:
        self.jobs, self.logs, self.requeues = tuple(jobs), logs, requeues
        self.process: subprocess.Popen[bytes] | None = None
        self.caught = ""

    def __call__(self) -> None:
        for number in SIGNALS:
            signal.signal(number, self.pass_on)
        failed = [error for job in self.jobs if (error := self.run(job))]
        if failed:
            raise RunFailed(" | ".join(failed))

    def pass_on(self, number: int, frame: Any) -> None:
        """Slurm may have told the command too: it takes a repetition within a moment as one."""
        self.caught = signal.Signals(number).name
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()

    def run(self, job: Job) -> str:
        """The last words of a command that failed."""
        held, lock = claimed(job)
        while not held:
            if self.caught:
                self.again()
            time.sleep(BUSY)
            held, lock = claimed(job)
        try:
            if is_done(job):
                return ""
            self.logs.mkdir(parents=True, exist_ok=True)
            with forget(self.logs, job.name).open("ab") as out:
                self.process = subprocess.Popen(
                    (*PROGRAM, *resumed(job)),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=one_thread(),
                )
            code = self.process.wait()
            if code and (self.caught or code == STOPPED):
                self.again()
            return settle(job, code, self.logs)
        finally:
            if lock is not None:
                drop_lock(lock)

    def again(self) -> None:
        """Ask Slurm to queue this job once more, and end."""
        count = int(os.environ.get("SLURM_RESTART_COUNT", "0"))
        if count >= self.requeues:
            raise RunFailed(f"stopped by {self.caught}; queued again {count} times, not once more")
        job = os.environ["SLURM_JOB_ID"]
        if "SLURM_ARRAY_JOB_ID" in os.environ:
            job = f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
        sys.stderr.write(f"stopped by {self.caught or 'a signal'}; queued again as {job}\n")
        subprocess.run(["scontrol", "requeue", job], timeout=60, check=False)  # preempted: it is
        raise SystemExit(STOPPED)


def read_settings(file: Path | None, gpus: int | None) -> SlurmSettings:
    values = read_yaml(file) if file else {}
    values |= {"gpus": gpus} if gpus is not None else {}
    return make(SlurmSettings, values, source=str(file or "--slurm"))


def submit(
    plan: Plan, folder: Path, settings: SlurmSettings, tables: Sequence[str], retry: bool = False
) -> dict[str, Any]:
    """Give what is missing to Slurm; returns the numbers of the jobs by cell."""
    with locked(folder, "slurm", wait=60.0):
        known = read_json(folder / RECORD)
        cells: dict[str, list[str]] = dict(known.get("cells", {}))
        alive = queued(folder)
        lacking = [p for p in plan.places if p.folder and plan.missing.get(p.folder)]
        new = [p for p in lacking if p.name not in alive]
        if not retry:
            from goldimask.campaign.executors import failure

            jobs = {p.name: [j.name for j in plan.missing[p.folder or Path()]] for p in new}
            lost = {n for n, names in jobs.items() if any(failure(folder / LOGS, x) for x in names)}
            new = [p for p in new if p.name not in lost]
        given: dict[str, list[str]] = {}
        trained = [p for p in new if not p.trained]
        first = {p.name: [plan.missing[p.folder][0]] for p in trained if p.folder}
        array = send(folder, settings, list(first.values()), "train")
        note(given, trained, array)
        for after in (True, False):
            some = trained if after else [p for p in new if p.trained]
            shards = [by_claim(plan.missing[p.folder]) for p in some if p.folder]
            for i in range(max(map(len, shards), default=0)):
                work = [own[i] if i < len(own) else [] for own in shards]
                wait = dependency(array) if after else None
                note(given, some, send(folder, settings, work, "eval", wait))
        ids = [x for numbers in given.values() for x in numbers]
        waiting = [job.id for job in alive.values()]
        if ids:
            last = Job("tables", tuple(tables), folder)
            light = SlurmSettings(**{**vars(settings), "gpus": 0, "cpus": 1})
            every = ":".join(dict.fromkeys(x.split("_")[0] for x in [*ids, *waiting]))
            known["tables"] = send(folder, light, [[last]], "tables", f"afterany:{every}")[0]
        cells |= given
        write_json(folder / RECORD, {**known, "cells": cells})
    return {
        "submitted": given,
        "waiting": {name: job.id for name, job in alive.items()},
        "tables": known["tables"] if ids else None,
    }


def note(given: dict[str, list[str]], found: Sequence[Any], ids: Sequence[str]) -> None:
    for place, number in zip(found, ids, strict=True):
        given.setdefault(place.name, []).append(number)


def by_claim(jobs: Sequence[Job]) -> list[list[Job]]:
    """Evaluations of a cell, those of one shard together."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        if job.call is not None:
            groups.setdefault(job.claim, []).append(job)
    return list(groups.values())


def dependency(ids: Sequence[str]) -> str:
    """Element i of an array after element i of this one, if that ended well."""
    return f"afterok:{ids[0]}" if len(ids) == 1 else f"aftercorr:{ids[0].split('_')[0]}"


def send(
    folder: Path,
    settings: SlurmSettings,
    work: Sequence[Sequence[Job]],
    name: str,
    after: str | None = None,
) -> list[str]:
    """One array of jobs; their numbers."""
    if not work:
        return []
    submitit = library()
    executor = submitit.AutoExecutor(folder=folder / "slurm" / "%j", cluster="slurm")
    more = {"requeue": True, "kill-on-invalid-dep": "yes", **settings.sbatch}
    more |= {"dependency": after} if after else {}
    options = {
        "name": f"goldimask-{name}",
        "timeout_min": settings.minutes,
        "cpus_per_task": settings.cpus,
        "slurm_partition": settings.partition,
        "slurm_account": settings.account,
        "slurm_qos": settings.qos,
        "slurm_constraint": settings.constraint,
        "slurm_array_parallelism": settings.at_once,
        "slurm_signal_delay_s": settings.warn_seconds,
        "slurm_setup": list(settings.setup) or None,
        "gpus_per_node": settings.gpus or None,
        "mem_gb": settings.memory_gb,
        "slurm_additional_parameters": more,
    }
    executor.update_parameters(**{k: v for k, v in options.items() if v is not None})
    with executor.batch():
        sent = [executor.submit(Work(jobs, folder / LOGS, settings.requeues)) for jobs in work]
    return [job.job_id for job in sent]


def library() -> Any:
    try:
        import submitit
    except ImportError as error:
        raise GoldimaskError(
            "--on slurm: needs submitit; install it with `pip install 'goldimask[slurm]'`"
        ) from error
    if shutil.which("sbatch") is None:
        raise GoldimaskError("--on slurm: there is no sbatch here; start it on a node of a cluster")
    return submitit


def queued(folder: Path) -> dict[str, Queued]:
    """Cells whose jobs stand in Slurm's queue, by name."""
    cells = read_json(folder / RECORD).get("cells", {})
    if not cells or shutil.which("squeue") is None:
        return {}
    asked = ["squeue", "-h", "-r", "-o", "%i|%T"]
    found = subprocess.run(asked, capture_output=True, text=True, timeout=60, check=False)
    if found.returncode:
        raise GoldimaskError(f"squeue: {found.stderr.strip() or 'failed'}; is Slurm up?")
    states = dict(line.split("|", 1) for line in found.stdout.splitlines() if "|" in line)
    out = {}
    for name, numbers in cells.items():
        mine = [(n, states[n]) for n in numbers if states.get(n, "") in ALIVE]
        if mine:
            out[name] = Queued(*next((x for x in mine if x[1] == "RUNNING"), mine[0]))
    return out
