"""Equivalence of many answers in parallel, with a hard deadline for each.

math-verify relies on SIGALRM, which fails outside the main thread, and can hang without it; so each
judgement is made in a separate process (`math_worker`) that enforces the deadline itself. What
string comparison settles never reaches a worker. Workers are started on first use and kept.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.util import find_spec

from goldimask.errors import GoldimaskError
from goldimask.eval.equivalence import normalised


@dataclass(frozen=True)
class Deadlines:
    """Seconds per item: CPU until an exception, CPU until the kernel ends it, wall clock."""

    soft: float = 0.7
    hard: float = 0.85
    wall: float = 30.0


@dataclass
class Pool:
    """Worker processes; each is used by one thread at a time."""

    size: int
    deadlines: Deadlines = Deadlines()
    workers: list[subprocess.Popen[str]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, jobs: Sequence[tuple[str, str, str]]) -> list[str]:
        """Results of (protocol, gold, answer) jobs in order."""
        results = [""] * len(jobs)
        todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        for i in range(len(jobs)):
            todo.put(i)
        with self.lock:
            self._start(min(self.size, len(jobs)))
            threads = [
                threading.Thread(target=_work, args=(worker, jobs, todo, results), daemon=True)
                for worker in self.workers[: len(jobs)]
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.workers = [w for w in self.workers if w.poll() is None]
        if "" in results:
            raise GoldimaskError(
                "the workers that compare mathematical answers ended early; try again, and if it "
                "happens again run `python -m goldimask.eval.math_worker` to see why"
            )
        return results

    def _start(self, count: int) -> None:
        fresh = [_launch() for _ in range(count - len(self.workers))]
        for worker in fresh:  # all of them import at the same time
            assert worker.stdin and worker.stdout
            worker.stdin.write(json.dumps(vars(self.deadlines)) + "\n")
            worker.stdin.flush()
        for worker in fresh:
            assert worker.stdout
            if not worker.stdout.readline():
                raise GoldimaskError("a worker that compares mathematical answers did not start")
        self.workers += fresh

    def close(self) -> None:
        for worker in self.workers:
            with suppress(BrokenPipeError):
                if worker.stdin:
                    worker.stdin.close()  # the worker ends its child and then itself
        for worker in self.workers:
            try:
                worker.wait(5)
            except subprocess.TimeoutExpired:
                worker.kill()
                worker.wait()
            if worker.stdout:
                worker.stdout.close()
        self.workers = []


def _launch() -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    return subprocess.Popen(
        [sys.executable, "-m", "goldimask.eval.math_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        encoding="utf-8",
        env=environment,
    )


def _work(
    worker: subprocess.Popen[str],
    jobs: Sequence[tuple[str, str, str]],
    todo: queue.SimpleQueue[int],
    results: list[str],
) -> None:
    assert worker.stdin and worker.stdout
    while True:
        try:
            i = todo.get_nowait()
        except queue.Empty:
            return
        try:
            worker.stdin.write(json.dumps(jobs[i]) + "\n")
            worker.stdin.flush()
            line = worker.stdout.readline()
        except (BrokenPipeError, ValueError):
            return
        if not line:
            return
        results[i] = json.loads(line)


_pool: Pool | None = None


def equivalent(pairs: Sequence[tuple[str, str]], protocol: str = "fixed") -> list[str]:
    """For each (gold, answer): 'equal', 'wrong', 'timeout', 'memory' or 'not comparable'."""
    known = {
        pair: "equal"
        for pair in pairs
        if len(pair[1]) <= 2000 and normalised(pair[0]) == normalised(pair[1])
    }
    hard = [p for p in dict.fromkeys(pairs) if p not in known]
    too_long = [p for p in hard if len(p[1]) > 2000]  # neither protocol looks at those
    known.update(dict.fromkeys(too_long, "wrong"))
    jobs = [(protocol, *p) for p in hard if p not in known]
    if jobs:
        for (_, gold, answer), result in zip(jobs, shared_pool().run(jobs), strict=True):
            known[gold, answer] = result
    return [known[p] for p in pairs]


def shared_pool() -> Pool:
    """The pool of this process, one worker per core at most four."""
    global _pool
    if find_spec("math_verify") is None:
        raise GoldimaskError(
            "comparing mathematical answers needs math-verify: pip install 'goldimask[eval]'"
        )
    if _pool is None:
        _pool = Pool(max(1, min(4, len(os.sched_getaffinity(0)))))
        atexit.register(close_pool)
    return _pool


def close_pool() -> None:
    """End the workers; the next use starts new ones."""
    global _pool
    if _pool is not None:
        _pool.close()
        _pool = None
