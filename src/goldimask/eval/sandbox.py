"""Running programs that a model wrote where they can do no harm: what is covered, what is not.

Nothing runs without permission. Each program runs in a process of its own, its tests in another
(`sandboxed`), both locked in before the first line of either. `open_sandbox` tries the stronger
mode first and finds out what works here; `describe` names what is in force and what is not.

                            bubblewrap mode                  limits mode (without bubblewrap)
    network                 empty namespace, seccomp         seccomp: no sockets
    reading your files      not mounted: only the system,    Landlock: the same trees
                            this Python, a private folder
    writing your files      all mounted read-only, Landlock  Landlock: the private folder alone;
                                                             without it seccomp: no write at all
    modes, times, owners    not mounted                      seccomp: none can be changed
    new processes, exec     seccomp                          seccomp
    other processes         PID namespace, seccomp           seccomp: no signals (nor F_SETOWN), no
                                                             ptrace, priorities or affinities
    environment             empty, but for one thread in numpy, in both
    privileges              user 65534, no new ones          user 65534 if you are root, else you;
                                                             no new ones
    private folder          a file system of its own in      bytes, blocks and entries counted 20
                            memory, of a fixed size          times a second; nothing in it can be
                            (bubblewrap 0.7 and later)       deleted, moved or hidden
    memory, CPU, wall time, file size, output, threads, open files: `Limits`, in both
    the verdict             comes from the judge's process, which gets plain values, in both
    afterwards              the process group is killed and the private folder removed, in both; the
                            program also dies when the process that started it does

Not covered:
    * The kernel is shared. A program that exploits it is out; against that use a virtual machine.
    * Limits mode: a program can find out whether a path exists, its size and times (`stat`),
      and where a link points.
    * Limits mode without Landlock (Linux before 5.13): your files and processes can be read.
      Without seccomp (neither x86_64 nor aarch64): network, new processes, signals, modes and
      times of your files, and disk space taken by tricks are not prevented, in this mode.
    * What is in the system's folders and in this Python's can be read, secrets there included.
    * Limits mode, and bubblewrap before 0.7: a burst passes the folder's limit for 50 ms.
    * As many programs run at once as there are cores; each keeps to its limits, not their sum, and
      its judge has the same limits once more. As root they share the number of threads.
    * A program that knows the answers passes: MBPP's prompt shows its tests.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from goldimask.errors import GoldimaskError
from goldimask.eval.sandbox_command import NOBODY, command, only_root, readable_paths, sizes, tasks
from goldimask.eval.sandbox_folder import overgrown, remove
from goldimask.eval.sandboxed.wire import store

Mode = Literal["auto", "bubblewrap", "limits"]
STATUSES = ("pass", "fail", "timeout", "memory", "killed", "syntax error")
GUARDS = ("landlock", "seccomp")


@dataclass(frozen=True)
class Limits:
    """Per program. The published protocol: 10 seconds and 1 GB."""

    cpu: float = 10.0  # seconds
    wall: float = 30.0  # seconds; a busy machine must not turn into failures
    memory: int = 1 << 30
    file: int = 8 << 20  # bytes, per file and for the output
    folder: int = 64 << 20  # bytes in the private folder
    entries: int = 1000  # files and folders in it
    processes: int = 64  # tasks of the sandbox's user; seccomp allows threads only


@dataclass(frozen=True)
class Program:
    """What to run, and the tests that call its names from another process."""

    source: str
    tests: str
    prelude: str = ""  # runs before the program, and before the tests
    names: tuple[str, ...] = ()  # tested names, even if they shadow built-in functions
    module: str = "solution"  # its `__name__`


@dataclass(frozen=True)
class Outcome:
    """pass, fail, timeout, memory, killed or syntax error."""

    status: str
    detail: str = ""
    seconds: float = 0.0
    output: str = field(default="", repr=False)

    @property
    def passed(self) -> bool:
        return self.status == "pass"


@dataclass(frozen=True)
class Sandbox:
    """A checked way of running programs; make one with `open_sandbox`."""

    bubblewrap: str | None
    limits: Limits
    landlock: bool = True
    seccomp: bool = True
    sized: bool = False  # the folder is a file system of its own

    def describe(self) -> str:
        """Which protection is in force, in one sentence."""
        who = f"as user {NOBODY}" if os.geteuid() == 0 else "as you, without new privileges"
        walls = "bubblewrap" if self.bubblewrap else "resource limits"
        guards = [n for n, on in (("seccomp", self.seccomp), ("Landlock", self.landlock)) if on]
        text = f"sandbox: {' + '.join([walls, *guards])}, {who}"
        gaps = []
        if not self.bubblewrap and not self.seccomp:
            gaps += ["network", "new processes", "signals to your processes", "changed modes"]
        if not self.bubblewrap and not self.landlock:
            gaps += ["reading your files"] + ([] if self.seccomp else ["writing your files"])
        return text + (f"; NOT prevented here: {', '.join(gaps)}" if gaps else "")

    def run(self, program: Program) -> Outcome:
        """Run one program to its end or its deadline."""
        return _run(self, program)[0]

    def run_all(
        self,
        programs: Sequence[Program],
        workers: int | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> list[Outcome]:
        """Run many in parallel; outcomes in order."""
        workers = workers or len(os.sched_getaffinity(0))
        with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
            outcomes = []
            for outcome in pool.map(self.run, programs):
                outcomes.append(outcome)
                if progress:
                    progress(1)
        return outcomes


def open_sandbox(
    allow_code_execution: bool, mode: Mode = "auto", limits: Limits | None = None
) -> Sandbox:
    """Find the strongest protection that works here, by trying it."""
    if not allow_code_execution:
        raise GoldimaskError(
            "this task runs programs written by a model; add --allow-code-execution to run them "
            "in the sandbox"
        )
    if not hasattr(os, "sched_getaffinity"):
        raise GoldimaskError("running generated programs needs Linux")
    limits = limits or Limits()
    found = shutil.which("bwrap")
    if mode == "bubblewrap" and not found:
        raise GoldimaskError("sandbox: bubblewrap is not installed (the program `bwrap`)")
    reason = ""
    for wrapper in [found] * (found is not None and mode != "limits") + [None] * (
        mode != "bubblewrap"
    ):
        box = Sandbox(wrapper, limits, sized=sizes(wrapper))
        outcome, guards = _run(box, Program("x = 1", "assert x == 1"))
        if outcome.passed:
            return replace(box, **guards)
        reason = f"{outcome.status}: {outcome.detail} {outcome.output[-300:]}".strip()
    raise GoldimaskError(
        f"sandbox: no way to run programs safely works here ({reason}); "
        f"as root, user {NOBODY} must be able to read {sys.prefix}, or the kernel needs Landlock"
    )


def _run(box: Sandbox, program: Program) -> tuple[Outcome, dict[str, bool]]:
    """Every way in which a program can end is an outcome; nothing of it is left in any case."""
    folder, handles = "", []
    process: subprocess.Popen[bytes] | None = None
    started = time.monotonic()
    try:
        folder = tempfile.mkdtemp(prefix="goldimask-")
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        read, report = os.pipe()
        handles += [read, report]
        tests = {"tests": program.tests, "prelude": program.prelude, "names": program.names}
        handles.append(store(tests))
        handles.append(store(_job(box, program, folder, handles[2], report)))
        handles.append(output := os.memfd_create("output"))
        process = subprocess.Popen(
            command(box.bubblewrap, folder, box.limits.folder if box.sized else 0),
            stdin=handles[3],
            stdout=output,
            stderr=output,
            cwd="/",
            env={},
            pass_fds=(report, handles[2]),
            start_new_session=True,
        )
        os.close(report)
        handles.remove(report)
        lines, ended = _watch(box, process, read, output, folder, started)
        _kill(process)
        outcome, guards = _outcome(lines, ended, process.returncode)
        shown = os.pread(output, 4000, 0).decode("utf-8", "replace")
        return replace(outcome, seconds=time.monotonic() - started, output=shown), guards
    except Exception as error:
        return Outcome("killed", f"could not be run: {error}"[:300]), dict.fromkeys(GUARDS, False)
    finally:
        if process is not None:
            _kill(process)
        for handle in handles:
            os.close(handle)
        if folder:
            remove(folder)


def _job(box: Sandbox, program: Program, folder: str, tests: int, report: int) -> dict[str, Any]:
    """What the first process in the sandbox is told. Of the tests it gets a handle, no more."""
    root = os.geteuid() == 0
    return {
        "program": program.source,
        "prelude": program.prelude,
        "module": program.module,
        "tests": tests,
        "report": report,
        "folder": folder,
        "drop": NOBODY if root else 0,
        "keep_search": root and box.bubblewrap is None and any(map(only_root, readable_paths())),
        "limits": vars(box.limits) | {"processes": box.limits.processes + tasks()},
        "landlock": box.landlock,
        "seccomp": box.seccomp,
        "contained": box.bubblewrap is not None,
        "sized": box.sized,
        "readable": readable_paths(),
    }


def _watch(
    box: Sandbox,
    process: subprocess.Popen[bytes],
    read: int,
    output: int,
    folder: str,
    start: float,
) -> tuple[list[str], str]:
    """Read the report until it is complete, the process has ended or a limit is passed."""
    data, limits = b"", box.limits
    poll = select.poll()
    poll.register(read, select.POLLIN)
    while data.count(b"\n") < 2 and len(data) < 1 << 16:
        left = start + limits.wall - time.monotonic()
        if left <= 0:
            return [], "timeout"
        if poll.poll(1000 * min(left, 0.05)):
            chunk = os.read(read, 4096)
            data += chunk
            if not chunk:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, left))
                break
        elif not box.sized and overgrown(folder, limits.folder, limits.entries):
            return [], "folder"
        elif os.fstat(output).st_size >= limits.file:
            return [], "output"
    if os.fstat(output).st_size >= limits.file:
        return [], "output"
    return data.decode("utf-8", "replace").split("\n"), ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    """The whole group; no program can leave it."""
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(10)


def _outcome(lines: list[str], ended: str, code: int | None) -> tuple[Outcome, dict[str, bool]]:
    """The verdict. The judge alone holds the report's pipe: guards first, then what it found."""
    marks = lines[0].split(" ") if lines else []
    guards = {name: i < len(marks) and marks[i] == "1" for i, name in enumerate(GUARDS)}
    status, _, detail = (lines[1] if len(lines) > 1 else "").partition("\t")
    code = code or 0
    code = 128 - code if code > 128 else code  # bubblewrap passes a signal on as a status
    if ended == "timeout" or (not status and code == -signal.SIGXCPU):
        return Outcome("timeout", "the deadline passed"), guards
    if ended:
        return Outcome("killed", f"the {ended} grew past its limit"), guards
    if status in STATUSES:
        return Outcome(status, detail), guards
    return Outcome("killed", f"the judge ended without a verdict (status {code})"), guards
