"""Run the jobs of a campaign: each is a command that a user could type, in a process of its own.

    goldimask train ...  ->  goldimask eval ...        a job starts when those it needs are done

At most `slots` run at once. A job that fails, or whose process is killed, is reported with its last
words and takes only the jobs that need it along; the others go on, and the next call tries again.
What a job prints goes to `logs/NAME.log`. Ending the campaign ends its processes.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from goldimask.processes import one_thread
from goldimask.workers import last_words

PROGRAM = (sys.executable, "-P", "-m", "goldimask")  # -P: nothing from the working directory
GRACE = 20.0  # seconds that a process has to save a checkpoint before it is killed


@dataclass(frozen=True)
class Job:
    """One command, and the folder of its result."""

    name: str
    words: tuple[str, ...]  # after `goldimask`
    folder: Path  # of its result
    needs: tuple[str, ...] = ()  # names of jobs that must be done before

    @property
    def command(self) -> str:
        """As one would type it."""
        import shlex

        return shlex.join(("goldimask", *self.words))


@dataclass(frozen=True)
class Ended:
    """A job that ran, or could not."""

    job: Job
    error: str = ""  # empty: it worked
    seconds: float = 0.0


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    log: Path
    began: float = field(default_factory=time.monotonic)


def execute(
    jobs: Sequence[Job], slots: int, logs: Path, program: Sequence[str] = PROGRAM
) -> Iterator[Ended]:
    """Run all jobs, in their order where their needs allow; yields each as it ends."""
    logs.mkdir(parents=True, exist_ok=True)
    waiting = {job.name: job for job in jobs}
    failed: set[str] = set()
    running: list[_Running] = []
    try:
        while waiting or running:
            for job in [j for j in waiting.values() if failed & set(j.needs)]:
                del waiting[job.name]
                failed.add(job.name)
                yield Ended(job, f"not run: {', '.join(failed & set(job.needs))} failed")
            busy = waiting.keys() | {r.job.name for r in running}
            ready = [job for job in waiting.values() if not busy & set(job.needs)]
            for job in ready[: slots - len(running)]:
                del waiting[job.name]
                running.append(_start(job, logs, program))
            for one in [r for r in running if r.process.poll() is not None]:
                running.remove(one)
                ended = _ended(one)
                if ended.error:
                    failed.add(one.job.name)
                yield ended
            time.sleep(0.05)
    finally:
        _stop(running)


def _start(job: Job, logs: Path, program: Sequence[str]) -> _Running:
    """A fresh process with one thread, whose group ends with ours."""
    log = logs / f"{job.name.replace('/', '_')}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            (*program, *job.words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=one_thread(),
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    return _Running(job, process, log)


def _end_with_parent() -> None:
    """Linux: the kernel sends SIGTERM when the parent dies, however it dies."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _ended(one: _Running) -> Ended:
    code, seconds = one.process.returncode, time.monotonic() - one.began
    if code == 0:
        return Ended(one.job, seconds=seconds)
    return Ended(one.job, last_words(code, one.log), seconds)


def _stop(running: Sequence[_Running]) -> None:
    """Ask for a checkpoint, then insist."""
    for one in running:
        one.process.terminate()
    until = time.monotonic() + GRACE
    for one in running:
        try:
            one.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            one.process.kill()
            one.process.wait()
