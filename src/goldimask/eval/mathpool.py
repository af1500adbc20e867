"""Equivalence of many answers in parallel, with a hard deadline for each.

math-verify relies on SIGALRM, which fails outside the main thread, and can hang without it; so each
judgement is made in a worker process (pebble's pool, on a fork server). Per item:

    soft    seconds of CPU time until an exception ends slow symbolic algebra
    hard    seconds of CPU time until the kernel ends a computation that never returns to Python
    wall    seconds until the pool ends a worker that does not compute at all
    memory  address space of a worker

What string comparison settles never reaches a worker. A worker that dies is a verdict on its item,
and no other item is lost. Workers are started on first use and kept.
"""

from __future__ import annotations

import atexit
import os
import resource
import signal
import sys
import types
from collections.abc import Iterator, Sequence
from concurrent.futures import TimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.process import BaseProcess

from pebble import ProcessExpired, ProcessPool

from goldimask.errors import GoldimaskError
from goldimask.eval.equivalence import fixed_equal, normalised
from goldimask.eval.lift_judge import lift_equal

Job = tuple[str, str, str]  # protocol, gold, answer
MEMORY = 3 << 30
LONGEST = 2000  # characters; neither protocol looks at longer answers
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}  # sympy orders by hash


@dataclass(frozen=True)
class Deadlines:
    """Seconds per item."""

    soft: float = 0.7
    hard: float = 0.85
    wall: float = 30.0


def equivalent(pairs: Sequence[tuple[str, str]], protocol: str = "fixed") -> list[str]:
    """For each (gold, answer): 'equal', or 'wrong', 'timeout', 'memory', 'not comparable'."""
    known: dict[tuple[str, str], str] = {}
    for gold, answer in pairs:
        if len(answer) > LONGEST:
            known[gold, answer] = "wrong"
        elif normalised(gold) == normalised(answer):
            known[gold, answer] = "equal"
    hard = [pair for pair in dict.fromkeys(pairs) if pair not in known]
    if hard:
        known |= zip(hard, compared([(protocol, *pair) for pair in hard]), strict=True)
    return [known[pair] for pair in pairs]


def compared(
    jobs: Sequence[Job], deadlines: Deadlines = Deadlines(), workers: int | None = None
) -> list[str]:
    """Results in order; jobs that a broken pool left are given to a new one, twice at most."""
    results: dict[int, str] = {}
    for _ in range(3):
        pool = shared_pool(workers or max(1, min(4, len(os.sched_getaffinity(0)))))
        left = [i for i in range(len(jobs)) if i not in results]
        try:
            waiting = {
                i: pool.schedule(judge, (*jobs[i], deadlines), timeout=deadlines.wall) for i in left
            }
        except RuntimeError:  # it broke while nobody used it
            close_pool()
            continue
        for i, future in waiting.items():
            try:
                results[i] = future.result()
            except (TimeoutError, ProcessExpired):
                results[i] = "timeout"
            except BrokenProcessPool:
                continue
        if len(results) == len(jobs):
            return [results[i] for i in range(len(jobs))]
        close_pool()
    raise GoldimaskError("the workers that compare mathematical answers ended early; try again")


# --- pool ----------------------------------------------------------------------------------------


@cache
def shared_pool(workers: int) -> ProcessPool:
    """The pool of this process."""
    forkserver.set_forkserver_preload([__name__, "math_verify", "latex2sympy2_extended"])
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
    try:
        forkserver.ensure_running()
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
    pool = ProcessPool(workers, initializer=prepare, context=Context())
    _open.append(pool)
    return pool


_open: list[ProcessPool] = []


@atexit.register
def close_pool() -> None:
    """End the workers; the next use starts new ones."""
    shared_pool.cache_clear()
    while _open:
        pool = _open.pop()
        pool.stop()
        pool.join()


class Worker(ForkServerProcess):
    """A worker that does not import the caller's script, which may have no `__main__` guard."""

    @staticmethod
    def _Popen(process_obj: BaseProcess) -> object:
        with _without_main():
            return ForkServerProcess._Popen(process_obj)  # type: ignore[attr-defined]


class Context(ForkServerContext):
    Process = Worker


@contextmanager
def _without_main() -> Iterator[None]:
    script = sys.modules["__main__"]
    sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


# --- inside a worker -----------------------------------------------------------------------------


class Deadline(BaseException):
    """Not an Exception: sympy and math-verify swallow those."""


def prepare() -> None:
    """Fill the parsers' tables, which takes longer than most items, then set the limits."""
    sys.stderr = open(os.devnull, "w")  # noqa: SIM115  math-verify warns that it has no deadline
    fixed_equal("\\frac{x}{2}", "0.5x")
    lift_equal("\\frac{x}{2}", "0.5x")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGVTALRM, _expired)
    sys.setrecursionlimit(2000)


def _expired(signum: int, frame: types.FrameType | None) -> None:
    raise Deadline


def judge(protocol: str, gold: str, answer: str, deadlines: Deadlines) -> str:
    """'equal', or why not."""
    equal = lift_equal if protocol == "lift" else fixed_equal
    signal.setitimer(signal.ITIMER_PROF, deadlines.hard)
    signal.setitimer(signal.ITIMER_VIRTUAL, deadlines.soft)
    try:
        return "equal" if equal(gold, answer) else "wrong"
    except Deadline:
        return "timeout"
    except MemoryError:
        return "memory"
    except (Exception, RecursionError):
        return "not comparable"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.setitimer(signal.ITIMER_PROF, 0)
