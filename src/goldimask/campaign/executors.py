"""Run the jobs of a campaign: each is a command that a user could type, in a process of its own.

    goldimask train ...  ->  goldimask eval ...        a job starts when those it needs are done

As many run at once as there are slots; a slot is a device (or several), or a CPU thread. On a CPU
their processes are forks of one that has imported everything (`warm.py`). A job is
claimed by a lock of the operating system before it starts, so that two campaigns in one folder
share the work: what another one has claimed is waited for, and what it has done is not done again.

A job that fails, or whose process is killed, is reported with its last words and takes only the
jobs that need it along. What a job prints is appended to `logs/NAME.log`; a failure is kept in
`logs/NAME.json` until the job has worked. A job that was stopped with a checkpoint (exit code 4)
goes back into the queue. Ending the campaign ends its processes, after their checkpoints.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goldimask.campaign.warm import Child, Warm
from goldimask.errors import GoldimaskError
from goldimask.files import write_json
from goldimask.jobs import drop_lock, take_lock
from goldimask.processes import one_thread
from goldimask.records import read_json
from goldimask.workers import last_words

if TYPE_CHECKING:
    from filelock import FileLock

    from goldimask.campaign.judging import Evaluation

PROGRAM = (sys.executable, "-P", "-m", "goldimask")  # -P: nothing from the working directory
GRACE = 120.0  # seconds that a process has to save a checkpoint before it is killed
STOPPED = 4  # exit code of a run that saved a checkpoint because it was told to
RETURNS = 5  # times that a stopped job goes back into the queue
AGAIN = 1.0  # seconds until a job that somebody else has is looked at again
VISIBLE = {  # what hides the other devices from a process
    "cuda": ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
    "xpu": ("ZE_AFFINITY_MASK",),
    "npu": ("ASCEND_RT_VISIBLE_DEVICES",),
    "hpu": ("HABANA_VISIBLE_MODULES",),
}
SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
Slot = Mapping[str, str]  # environment of a process


class Halted(GoldimaskError):
    """The campaign was told to end; its runs have saved their checkpoints."""

    exit_code = STOPPED


@dataclass(frozen=True)
class Job:
    """One command, and the folder of its cell."""

    name: str
    words: tuple[str, ...]  # after `goldimask`
    folder: Path  # of the cell
    needs: tuple[str, ...] = ()  # names of jobs that must be done before
    claim: str = ""  # jobs of a cell with the same claim never run together; empty: no claim
    call: Evaluation | None = None  # None: a training

    @property
    def command(self) -> str:
        """As one would type it."""
        return shlex.join(("goldimask", *self.words))


@dataclass(frozen=True)
class Ended:
    """A job that ran, or could not."""

    job: Job
    error: str = ""  # empty: it worked
    seconds: float = 0.0
    ran: bool = True  # False: somebody else did it, or nobody


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes] | Child
    log: Path
    slot: Slot
    lock: FileLock | None
    began: float = field(default_factory=time.monotonic)


def slots_of(jobs: int | None, devices: int, kind: str, each: int = 1) -> list[Slot]:
    """One slot per `each` devices; without devices, `jobs` processes of one thread."""
    if jobs is not None and jobs < 1:
        raise GoldimaskError(f"--jobs: {jobs} must be at least 1")
    if not devices:
        return [{}] * (jobs or 1)
    if each > devices:
        raise GoldimaskError(f"--gpus: {each} for a cell, and {devices} in this machine")
    groups = [range(i, i + each) for i in range(0, devices - each + 1, each)]
    names = VISIBLE.get(kind, (f"{kind.upper()}_VISIBLE_DEVICES",))
    slots: list[Slot] = [{n: ",".join(map(str, group)) for n in names} for group in groups]
    return slots[: jobs or len(slots)]


def execute(
    jobs: Sequence[Job],
    slots: int | Sequence[Slot],
    logs: Path,
    program: Sequence[str] = PROGRAM,
    words: Callable[[Job], Sequence[str]] = lambda job: job.words,  # at the moment it starts
    is_done: Callable[[Job], bool] = lambda job: False,  # by somebody else, meanwhile
) -> Generator[Ended]:
    """Run all jobs, in their order where their needs allow; yields each as it ends."""
    logs.mkdir(parents=True, exist_ok=True)
    free: list[Slot] = [{}] * slots if isinstance(slots, int) else list(slots)
    alike = program is PROGRAM and not any(free) and sys.platform == "linux" and len(jobs) > 1
    warm = Warm() if alike else None
    waiting = {job.name: job for job in jobs}
    later: dict[str, float] = {}
    returned: dict[str, int] = {}
    failed: set[str] = set()
    running: list[_Running] = []
    try:
        while waiting or running:
            for job in [j for j in waiting.values() if failed & set(j.needs)]:
                del waiting[job.name]
                failed.add(job.name)
                yield Ended(job, f"not run: {', '.join(failed & set(job.needs))} failed", ran=False)
            busy = waiting.keys() | {r.job.name for r in running}
            ready = [job for job in waiting.values() if not busy & set(job.needs)]
            for job in ready:
                if not free or time.monotonic() < later.get(job.name, 0.0):
                    continue
                held, lock = claimed(job)
                if not held:
                    later[job.name] = time.monotonic() + AGAIN
                    continue
                del waiting[job.name]
                if is_done(job):
                    _release(lock)
                    yield Ended(job, ran=False)
                    continue
                try:
                    slot = free.pop(0)
                    running.append(_start(job, logs, warm or program, words(job), slot, lock))
                except OSError as error:  # no room for the log, no more processes
                    _release(lock)
                    failed.add(job.name)
                    yield Ended(job, f"cannot start: {error}", ran=False)
            for one in [r for r in running if r.process.poll() is not None]:
                running.remove(one)
                free.append(one.slot)
                again = one.process.returncode == STOPPED
                if again and returned.setdefault(one.job.name, 0) < RETURNS:
                    returned[one.job.name] += 1
                    waiting[one.job.name] = one.job
                    _release(one.lock)
                    continue
                ended = _ended(one, logs)
                _release(one.lock)
                if ended.error:
                    failed.add(one.job.name)
                yield ended
            time.sleep(0.05)
    finally:
        _stop(running)
        if warm is not None:
            warm.close()


def claimed(job: Job) -> tuple[bool, FileLock | None]:
    """(whether the job is ours, its claim); a run whose campaign was killed may still be saving."""
    if not job.claim:
        return True, None
    try:
        lock = take_lock(job.folder, f"job-{job.claim}")
    except GoldimaskError:
        return False, None
    try:
        place, part = (job.folder, "") if job.call is None else (job.folder / "eval", job.claim[5:])
        if place.parent.is_dir():
            drop_lock(take_lock(place, part))  # of the command itself
    except GoldimaskError:
        drop_lock(lock)
        return False, None
    return True, lock


def _release(lock: FileLock | None) -> None:
    if lock is not None:
        drop_lock(lock)


def _start(
    job: Job,
    logs: Path,
    program: Sequence[str] | Warm,
    words: Sequence[str],
    slot: Slot,
    lock: FileLock | None,
) -> _Running:
    """A process with one thread, whose group ends with ours."""
    log = forget(logs, job.name)
    if isinstance(program, Warm):
        return _Running(job, program.start(words, log, slot), log, slot, lock)
    with log.open("ab") as out:
        process = subprocess.Popen(
            (*program, *words),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**one_thread(), **slot},
            preexec_fn=_end_with_parent if sys.platform == "linux" else None,
        )
    return _Running(job, process, log, slot, lock)


def _end_with_parent() -> None:
    """Linux: the kernel sends SIGTERM when the parent dies, however it dies."""
    import ctypes

    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def _ended(one: _Running, logs: Path) -> Ended:
    code, seconds = one.process.returncode, time.monotonic() - one.began
    assert code is not None  # it has ended
    return Ended(one.job, settle(one.job, code, logs), seconds)


def settle(job: Job, code: int, logs: Path) -> str:
    """Note how a job ended; its last words if it failed.

    One that was killed or stopped can simply go on the next time: only failures are remembered.
    """
    note = log_of(logs, job.name).with_suffix(".json")
    if code == 0:
        note.unlink(missing_ok=True)
        if job.call is not None:
            job.call.sign(job.folder / "eval")
        return ""
    error = last_words(code, log_of(logs, job.name))
    if code > 0 and code != STOPPED:
        try:
            write_json(note, {"job": job.name, "exit": code, "error": error})
        except OSError as full:
            error += f" | {full}"
    return error


def log_of(logs: Path, name: str) -> Path:
    return logs / f"{name.replace('/', '_')}.log"


def forget(logs: Path, name: str) -> Path:
    """A job that starts has not failed yet; the log it goes on with."""
    log = log_of(logs, name)
    log.with_suffix(".json").unlink(missing_ok=True)
    return log


def failure(logs: Path, name: str) -> str | None:
    """The last words of a job that failed and has not worked since."""
    found: dict[str, Any] = read_json(log_of(logs, name).with_suffix(".json"))
    return found.get("error")


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
        _release(one.lock)


@contextmanager
def halting() -> Iterator[None]:
    """TERM, HUP, USR1 and USR2 end the block with an error, so that its processes are ended too."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def halt(number: int, frame: Any) -> None:
        name = signal.Signals(number).name
        raise Halted(f"stopped by {name}; runs have saved checkpoints, the same command goes on")

    before = {s: signal.signal(s, halt) for s in SIGNALS if signal.getsignal(s) != signal.SIG_IGN}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def own_slots(jobs: int | None, each: int = 1) -> list[Slot]:
    """The slots of this machine; devices that are hidden from us stay so."""
    import torch

    from goldimask.processes import devices

    count = devices()
    kind = torch.accelerator.current_accelerator() if count else None
    slots = slots_of(jobs, count, kind.type if kind else "cpu", each)
    return [visible(slot) for slot in slots]


def visible(slot: Slot) -> Slot:
    """Numbers among the devices that we were given, as those devices' own names."""
    out = {}
    for name, numbers in slot.items():
        given = [x for x in os.environ.get(name, "").split(",") if x]
        mine = [given[int(n)] for n in numbers.split(",")] if given else numbers.split(",")
        out[name] = ",".join(mine)
    return out
