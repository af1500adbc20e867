"""Run the cells that are not on disk yet, in this process or in several.

A cell that fails is reported and does not stop the others; the next call tries it again. Workers
are fresh processes with one thread each and write their own files, so that stopping the command
loses only the cells it was working on.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goldimask.campaign.cache import cell_file, cell_key, read_cell
from goldimask.campaign.cell import run_and_write
from goldimask.campaign.settings import Cell, Lab, cells
from goldimask.errors import GoldimaskError

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@dataclass(frozen=True)
class Job:
    """A cell and where its record belongs."""

    cell: Cell
    key: str
    file: Path


@dataclass
class Outcome:
    """What a run of the grid found."""

    records: dict[Cell, dict[str, Any]] = field(default_factory=dict)
    failed: dict[Cell, str] = field(default_factory=dict)
    reused: int = 0


Told = Callable[[Cell, dict[str, Any] | None, str], None]  # cell, record or None, error


def plan(lab: Lab, folder: Path) -> list[Job]:
    """Every cell with its key; cheap next to any cell."""
    found = []
    for cell in cells(lab):
        key = cell_key(lab, cell)
        found.append(Job(cell, key, cell_file(folder, cell, key)))
    return found


def run_grid(
    lab: Lab,
    jobs: Sequence[Job],
    workers: int = 1,
    commit: str = "",
    tell: Told = lambda cell, record, error: None,
) -> Outcome:
    """Records of all cells, made now unless they are on disk."""
    if workers < 1:
        raise GoldimaskError(f"--jobs: {workers} must be at least 1")
    out = Outcome()
    waiting = []
    for job in jobs:
        record = read_cell(job.file)
        if record is None:
            waiting.append(job)
        else:
            out.records[job.cell] = record
            out.reused += 1
    runner = here if workers == 1 or len(waiting) < 2 else in_processes
    for job, record, error in runner(lab, waiting, min(workers, len(waiting)), commit):
        if record is None:
            out.failed[job.cell] = error
        else:
            out.records[job.cell] = record
        tell(job.cell, record, error)
    return out


Result = tuple[Job, dict[str, Any] | None, str]


def here(lab: Lab, waiting: Sequence[Job], workers: int, commit: str) -> Iterator[Result]:
    """One after the other."""
    for job in waiting:
        try:
            yield job, run_and_write(lab, job.cell, job.key, job.file, commit), ""
        except Exception as error:  # a cell may fail in any way; the others go on
            yield job, None, f"{type(error).__name__}: {error}"


def in_processes(lab: Lab, waiting: Sequence[Job], workers: int, commit: str) -> Iterator[Result]:
    """Several fresh processes, one thread each."""
    from concurrent.futures import ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    start = {"mp_context": get_context("spawn"), "initializer": follow, "initargs": (os.getpid(),)}
    with one_thread_children(), ProcessPoolExecutor(workers, **start) as pool:
        futures = {
            pool.submit(run_and_write, lab, job.cell, job.key, job.file, commit): job
            for job in waiting
        }
        try:
            for future in as_completed(futures):
                job = futures[future]
                try:
                    yield job, future.result(), ""
                except Exception as error:  # also a worker that died
                    yield job, None, f"{type(error).__name__}: {error}"
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def follow(parent: int, every: float = 1.0) -> None:
    """End this process when `parent` is gone: a killed command leaves nothing running."""
    import threading

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(every)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def one_thread_children() -> Iterator[None]:
    """Libraries read these when they are loaded, so they must be set before a process starts."""
    before = {name: os.environ.get(name) for name in THREADS}
    os.environ.update(dict.fromkeys(THREADS, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@dataclass(frozen=True)
class Estimate:
    """Seconds of processor time that the waiting cells will take."""

    cells: int
    cpu_seconds: float
    step_seconds: float  # one Vanilla step
    problem_seconds: float  # one problem at the main threshold


def estimate(lab: Lab, waiting: Sequence[Cell], problems: int = 10, steps: int = 2) -> Estimate:
    """Time a few steps and a few problems on the first backbone and multiply.

    Two-pass methods are counted at 1.4 Vanilla steps; thresholds at equal cost, which overstates
    loose ones.
    """
    from goldimask.campaign.cell import trainable, trained
    from goldimask.campaign.data import cached_task
    from goldimask.campaign.settings import BASE, problems_at, tasks_of
    from goldimask.processes import torch_threads

    if not waiting:
        return Estimate(0, 0.0, 0.0, 0.0)
    from dataclasses import replace

    from goldimask.eval.run import evaluate

    judging, names = lab.judging, tasks_of(lab)
    few = min(problems, judging.problems)
    with torch_threads():
        backbone = trainable(lab, waiting[0].backbone, waiting[0].seed)
        tasks = [cached_task(name, judging.problems) for name in names]
        options = {"tau": judging.main_tau, "block": judging.block}
        evaluate(backbone, tasks[:1], options=options, seeds=[0], limit=1)  # compiles, loads
        began = time.process_time()
        evaluate(backbone, tasks, options=options, seeds=[0], limit=few, batch_size=few)
        problem = (time.process_time() - began) / (few * len(names))
        short = replace(lab, tuning=replace(lab.tuning, steps=steps + 1))
        vanilla = Cell(waiting[0].backbone, "vanilla", waiting[0].seed)
        step = trained(short, vanilla, backbone)["cpu_seconds"] / (steps + 1)
    tuned = sum(cell.row != BASE for cell in waiting)
    share = 1 / len(lab.seeds) if judging.spread else 1.0
    judged = sum(problems_at(judging, tau) for tau in judging.taus)
    each = judged * share * len(names) * problem
    total = tuned * 1.4 * step * lab.tuning.steps + len(waiting) * each
    return Estimate(len(waiting), total, step, problem)
