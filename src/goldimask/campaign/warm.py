"""Jobs as forks of one process that has imported everything (`goldimask.cli.warm`).

    warm.start(words, log, slot)    a process that has imported torch, transformers and our rooms
                                    forks; the child goes on as `goldimask WORDS`

Its imports take a command some seconds, a quarter of what jobs of the tiny backbone take. A child
is the command that a user could type, in a process of its own: what goes wrong in it stays there.
Only on Linux, and only for jobs without a device: a process that has touched one must not fork.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from goldimask.processes import one_thread

PROGRAM = (sys.executable, "-P", "-m", "goldimask.cli.warm")
GRACE = 10.0  # seconds that it may take to end


class Warm:
    """The process that forks, and what it has said of its children."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None  # made for the first job
        self.codes: dict[int, int] = {}
        self.rest = b""
        self.lost = False  # it has died, and the kernel has ended its children

    def start(self, words: Sequence[str], log: Path, slot: Mapping[str, str]) -> Child:
        """Fork; waits until there is a process."""
        if self.process is None:
            self.process = subprocess.Popen(
                PROGRAM, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=one_thread()
            )
        job = {"words": list(words), "log": str(log), "env": dict(slot)}
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(job).encode() + b"\n")
        self.process.stdin.flush()  # an OSError if it has died
        os.set_blocking(self.process.stdout.fileno(), True)
        while (pid := self.read()) is None:
            if self.lost:
                raise OSError("the process that starts jobs has died")
        return Child(self, pid)

    def read(self) -> int | None:
        """Take in what it says: how children ended; the pid of a new one is returned."""
        assert self.process is not None and self.process.stdout is not None
        new, replies = None, self.process.stdout.fileno()
        while True:
            try:
                data = os.read(replies, 4096)
            except BlockingIOError:
                return new
            if not data:
                self.lost = True
                return new
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                said: dict[str, Any] = json.loads(line)
                if "code" in said:
                    self.codes[said["pid"]] = said["code"]
                else:
                    new = said["pid"]
            os.set_blocking(replies, False)

    def close(self) -> None:
        """End it, and what still runs."""
        if self.process is not None:
            with suppress(OSError, subprocess.TimeoutExpired):
                self.process.communicate(timeout=GRACE)
            self.process.kill()


class Child:
    """A fork, with what an executor asks of a `subprocess.Popen`."""

    def __init__(self, warm: Warm, pid: int) -> None:
        self.warm, self.pid = warm, pid

    @property
    def returncode(self) -> int | None:
        return self.warm.codes.get(self.pid, -signal.SIGTERM if self.warm.lost else None)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.warm.read()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        until = time.monotonic() + timeout if timeout is not None else float("inf")
        while (code := self.poll()) is None:
            if timeout is not None and time.monotonic() > until:
                raise subprocess.TimeoutExpired(PROGRAM, timeout)
            time.sleep(0.05)
        return code

    def terminate(self) -> None:
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        self.send(signal.SIGKILL)

    def send(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
