"""Running programs that a model wrote where they can do no harm: what is covered, what is not.

Nothing runs without permission. Each program runs in a process of its own (`sandbox_runner`) that
locks itself in before the first line of the program. `open_sandbox` tries the stronger mode first
and finds out what works here; `describe` names what is in force and what it does not prevent.

                            bubblewrap mode                  limits mode (without bubblewrap)
    network                 empty namespace, seccomp         seccomp: no sockets
    reading your files      not mounted: only the system,    Landlock: the same trees
                            this Python, a private folder
    writing your files      all mounted read-only, Landlock  Landlock: the private folder alone;
                                                             without it seccomp: no write at all
    new processes, exec     seccomp                          seccomp
    other processes         PID namespace, seccomp           seccomp: no signals, no ptrace
    environment             empty                            empty
    privileges              user 65534, no new ones          user 65534 if you are root, else you;
                                                             no new ones
    memory, CPU, wall time, file size, output, folder, threads, open files: `Limits`, in both
    afterwards              the process tree is killed and the private folder removed, in both; the
                            program also dies when the process that started it does

Not covered:
    * The kernel is shared. A program that exploits it is out; against that use a virtual machine.
    * Limits mode without Landlock (Linux before 5.13): your files can be read. Without seccomp
      (neither x86_64 nor aarch64): network, new processes and signals are not prevented.
    * Limits mode not as root: Landlock has no say over a file's mode, times, attributes or
      existence. A program can `stat`, `chmod` and `touch` what you own, not read or write it.
    * What is in the system's folders and in this Python's can be read, secrets there included.
    * The folder's size is looked at four times a second; a burst passes its limit for that long.
    * As many programs run at once as there are cores; each keeps to its limits, not their sum.
    * A program shares its process with the tests. Ordinary cheating is undone (`sandbox_runner`); a
      program written against this very harness could forge a pass. It would harm no machine.
"""

from __future__ import annotations

import json
import os
import secrets
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
from goldimask.eval.sandbox_command import NOBODY, command, only_root, readable_paths, tasks

Mode = Literal["auto", "bubblewrap", "limits"]


@dataclass(frozen=True)
class Limits:
    """Per program. The published protocol: 10 seconds and 1 GB."""

    cpu: float = 10.0  # seconds
    wall: float = 30.0  # seconds; a busy machine must not turn into failures
    memory: int = 1 << 30
    file: int = 8 << 20  # bytes, per file and for the output
    folder: int = 64 << 20  # bytes in the private folder
    processes: int = 64  # tasks of the sandbox's user; seccomp allows threads only


@dataclass(frozen=True)
class Program:
    """What to run. Tests run after the program, in a namespace that holds the program's names."""

    source: str
    tests: str
    prelude: str = ""  # runs before the program
    names: tuple[str, ...] = ()  # tested names, even if they shadow built-in functions
    strict: bool = True  # undo tampering before the tests; false: one script, as released


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

    def describe(self) -> str:
        """Which protection is in force, in one sentence."""
        who = f"as user {NOBODY}" if os.geteuid() == 0 else "as you, without new privileges"
        walls = "bubblewrap" if self.bubblewrap else "resource limits"
        guards = [n for n, on in (("seccomp", self.seccomp), ("Landlock", self.landlock)) if on]
        text = f"sandbox: {' + '.join([walls, *guards])}, {who}"
        gaps = []
        if not self.bubblewrap and not self.seccomp:
            gaps += ["network", "new processes", "signals to your processes"]
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
        box = Sandbox(wrapper, limits)
        outcome, guards = _run(box, Program("x = 1", "assert x == 1"))
        if outcome.passed:
            return replace(box, landlock=guards["landlock"], seccomp=guards["seccomp"])
        reason = f"{outcome.status}: {outcome.detail} {outcome.output[-300:]}".strip()
    raise GoldimaskError(
        f"sandbox: no way to run programs safely works here ({reason}); "
        f"as root, user {NOBODY} must be able to read {sys.prefix}, or the kernel needs Landlock"
    )


def _run(box: Sandbox, program: Program) -> tuple[Outcome, dict[str, bool]]:
    token = secrets.token_hex(16)
    folder = tempfile.mkdtemp(prefix="goldimask-")
    read, write = os.pipe()
    try:
        payload = _payload(box, program, folder, write, token)
        if os.geteuid() == 0:
            os.chown(folder, NOBODY, NOBODY)
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output:
            given.write(json.dumps(payload).encode())
            given.seek(0)
            started = time.monotonic()
            try:
                process = subprocess.Popen(
                    command(box.bubblewrap, folder),
                    stdin=given,
                    stdout=output,
                    stderr=output,
                    cwd=folder,
                    env={},
                    pass_fds=(write,),
                    start_new_session=True,
                )
            except OSError as error:
                return Outcome("killed", f"could not start: {error}"), {}
            os.close(write)
            write = -1
            lines, ended = _watch(box, process, read, output.fileno(), folder, started)
            seconds = time.monotonic() - started
            output.seek(0)
            shown = output.read(4000).decode("utf-8", "replace")
        outcome, guards = _outcome(lines, ended, process.returncode, token)
        return replace(outcome, seconds=seconds, output=shown), guards
    finally:
        os.close(read)
        if write >= 0:
            os.close(write)
        _remove(folder)


def _remove(folder: str) -> None:
    """Under bubblewrap the killed program may write for a moment more; try until it is gone."""
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not os.path.exists(folder):
            return
        time.sleep(0.02)


def _payload(
    box: Sandbox, program: Program, folder: str, report: int, token: str
) -> dict[str, Any]:
    root = os.geteuid() == 0
    return {
        "program": program.source,
        "tests": program.tests,
        "prelude": program.prelude,
        "names": program.names,
        "strict": program.strict,
        "token": token,
        "report": report,
        "folder": folder,
        "drop": NOBODY if root else 0,
        "keep_search": root and box.bubblewrap is None and any(map(only_root, readable_paths())),
        "limits": vars(box.limits) | {"processes": box.limits.processes + tasks()},
        "landlock": box.landlock,
        "seccomp": box.seccomp,
        "contained": box.bubblewrap is not None,
        "readable": readable_paths(),
    }


def _watch(
    box: Sandbox,
    process: subprocess.Popen[bytes],
    read: int,
    output: int,
    folder: str,
    start: float,
) -> tuple[list[bytes], str]:
    """Read the report until the process ends or a limit is passed; then nothing of it is left."""
    data, ended = b"", ""
    while not ended:
        left = start + box.limits.wall - time.monotonic()
        if left <= 0:
            ended = "timeout"
        elif select.select([read], [], [], min(left, 0.25))[0]:
            chunk = os.read(read, 4096)
            data += chunk
            if not chunk or len(data) > 1 << 16:
                break
        if os.fstat(output).st_size >= box.limits.file:
            ended = "output"
        elif _size(folder) > box.limits.folder:
            ended = "folder"
    if not ended:  # the pipe is closed; a program may close it and live on
        try:
            process.wait(max(0.0, start + box.limits.wall - time.monotonic()))
        except subprocess.TimeoutExpired:
            ended = "timeout"
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    if not ended and os.fstat(output).st_size >= box.limits.file:
        ended = "output"
    return data.split(b"\n"), ended


def _size(folder: str) -> int:
    total = 0
    for root, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.lstat(os.path.join(root, name)).st_size
            except OSError:
                continue
    return total


def _outcome(
    lines: list[bytes], ended: str, code: int, token: str
) -> tuple[Outcome, dict[str, bool]]:
    """The verdict: only a report with the token counts."""
    reports = []
    for line in lines:
        try:
            reports.append(json.loads(line))
        except ValueError:
            continue
    guards = reports[0] if reports and isinstance(reports[0], dict) else {}
    guards = {k: bool(guards.get(k)) for k in ("landlock", "seccomp")}
    code = 128 - code if code > 128 else code  # bubblewrap passes a signal on as a status
    if ended == "timeout" or code == -signal.SIGXCPU:
        return Outcome("timeout", "the deadline passed"), guards
    if ended:
        return Outcome("killed", f"the {ended} grew past its limit"), guards
    for report in reports[1:]:
        if isinstance(report, dict) and report.get("token") == token:
            return Outcome(report["status"], report["detail"]), guards
    if code < 0:
        return Outcome("killed", f"by signal {signal.Signals(-code).name}"), guards
    return Outcome("killed", f"left early with status {code}"), guards
