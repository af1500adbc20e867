"""Work spread over processes: one queue, one process per device, lines of JSON between them.

    here                                    there: python -m goldimask.workers MODULE:FUNCTION
    Pool(target, setup, devices, size) ->   work = FUNCTION(**setup, device=...)
    replies = pool.submit(items, ...)  ->   for index, value in work(items=[...], ...):
    for number, value in replies: ...  <-       one line each, as soon as it is there

Items that are submitted together are cut into units of `size`. All that was submitted stands in one
queue, in order; a free process takes the next unit. What a unit is does not depend on the number of
processes, so neither does what comes of it. A process that dies, however it dies, gives back what
it has not answered; the others do it first. Work ends with an error when every process is dead, or
two have died of the same unit. A process that loses its pool ends by itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from threading import Condition, Thread
from typing import Any

from goldimask.errors import GoldimaskError, RunFailed
from goldimask.processes import one_thread
from goldimask.registry import allow_plugins, import_target, passed_on

Json = Any  # what a line can hold
Numbered = tuple[int, Json]
Work = Callable[..., Iterable[Numbered]]
LAST_WORDS = 3  # lines of the log that a failure shows
DEATHS = 2  # of processes, until a unit is given up
PATIENCE = 10.0  # seconds that a process may take to end


class Told(RunFailed):
    """The mistake that a process found, told by the one that started it."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass
class Unit:
    """What one process does at a time; an item leaves when it is answered."""

    options: dict[str, Json]
    items: dict[int, Json]  # by number
    box: SimpleQueue[Numbered | GoldimaskError]  # of those who wait for the answers
    deaths: int = 0


class Pool:
    """Processes that work on what is submitted; they start when the first answer is asked for."""

    def __init__(
        self,
        target: str,
        setup: dict[str, Json],
        devices: Sequence[str],  # one for each process
        size: int,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.target, self.setup, self.devices, self.size = target, setup, devices, size
        self.say = say
        self.waiting: deque[Unit] = deque()
        self.boxes: list[SimpleQueue[Numbered | GoldimaskError]] = []
        self.change = Condition()
        self.closed = False
        self.alive = 0
        self.processes: list[subprocess.Popen[str]] = []
        self.threads: list[Thread] = []

    def __enter__(self) -> Pool:
        self.logs = tempfile.TemporaryDirectory(prefix="goldimask-")
        return self

    def __exit__(self, *_: object) -> None:
        with self.change:
            self.closed = True
            self.change.notify_all()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
        for thread in self.threads:
            thread.join()
        for process in self.processes:
            with suppress(OSError):  # a last line that nobody took
                process.communicate()
        self.logs.cleanup()

    def submit(self, items: Sequence[Json], **options: Json) -> Iterator[Numbered]:
        """Queue items; iterate over their answers, (number, value), in the order they come."""
        box: SimpleQueue[Numbered | GoldimaskError] = SimpleQueue()
        numbered = list(enumerate(items))
        with self.change:
            self.boxes.append(box)
            for start in range(0, len(numbered), self.size):
                self.waiting.append(Unit(options, dict(numbered[start : start + self.size]), box))
            self.change.notify_all()
        return self._answers(box, len(numbered))

    def _answers(
        self, box: SimpleQueue[Numbered | GoldimaskError], count: int
    ) -> Iterator[Numbered]:
        if count and not self.processes:
            self._start()
        for _ in range(count):
            found = box.get()
            if isinstance(found, GoldimaskError):
                raise found
            yield found

    def _start(self) -> None:
        for number in range(min(len(self.devices), len(self.waiting))):
            with self._log(number).open("wb") as log:
                process = subprocess.Popen(
                    (sys.executable, "-P", "-m", "goldimask.workers", self.target),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=one_thread(),
                    start_new_session=True,  # Ctrl-C is for us, who end them
                )
            self.processes.append(process)
        self.alive = len(self.processes)
        for number in range(self.alive):
            self.threads.append(Thread(target=self._drive, args=(number,), daemon=True))
            self.threads[-1].start()

    def _log(self, number: int) -> Path:
        return Path(self.logs.name) / f"{number}.log"

    def _drive(self, number: int) -> None:
        """Keep one process at work."""
        process, unit = self.processes[number], None
        try:
            setup = {**self.setup, "device": self.devices[number]}
            tell(process, {"plugins": bool(passed_on()), "setup": setup})
            hear(process)
            while (unit := self._take()) is not None:
                order = list(unit.items)
                tell(process, {"items": list(unit.items.values()), **unit.options})
                while "index" in (line := hear(process)):
                    item = order[line["index"]]
                    del unit.items[item]
                    unit.box.put((item, line["value"]))
        except Told as error:
            self._fail(error)
        except (OSError, EOFError):
            self._died(number, unit)
        except Exception as error:  # a fault of ours: whoever waits must hear of it
            self._fail(RunFailed(f"{type(error).__name__}: {error}"))

    def _take(self) -> Unit | None:
        with self.change:
            self.change.wait_for(lambda: self.waiting or self.closed)
            return None if self.closed else self.waiting.popleft()

    def _died(self, number: int, unit: Unit | None) -> None:
        how = last_words(self.processes[number].wait(), self._log(number))
        what = f"process {number} ({self.devices[number]}) died: {how}"
        with self.change:
            if self.closed:  # it was ended
                return
            self.alive -= 1
            if unit is not None and unit.items:
                unit.deaths += 1
                self.waiting.appendleft(unit)
                self.change.notify_all()
            hopeless = not self.alive or (unit is not None and unit.deaths == DEATHS)
        if hopeless:
            self._fail(RunFailed(f"{what}; the same command goes on from what is there"))
        else:
            self.say(f"{what}; the others take its share")

    def _fail(self, error: GoldimaskError) -> None:
        with self.change:
            self.closed = True
            self.change.notify_all()
            for box in self.boxes:
                box.put(error)


def tell(process: subprocess.Popen[str], line: Json) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(line) + "\n")
    process.stdin.flush()


def hear(process: subprocess.Popen[str]) -> dict[str, Json]:
    """The next line; a torn one, or none, is the end of the process."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.endswith("\n"):
        raise EOFError
    found = json.loads(line)
    if "error" in found:
        raise Told(found["error"], found["exit_code"])
    return found


def last_words(code: int, log: Path) -> str:
    """How a process ended, and what it said last."""
    why = signal.Signals(-code).name if code < 0 else f"exit {code}"
    lines = [x for x in log.read_text("utf-8", "replace").splitlines() if x.strip()]
    return " | ".join([why, *lines[-LAST_WORDS:]])


# --- in the process ------------------------------------------------------------------------------


def serve(target: str) -> None:
    """Read a setup and then units from stdin; what anybody prints meanwhile goes to stderr."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)

    def reply(**line: Json) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    with suppress(BrokenPipeError):  # whoever asked has gone
        try:
            first = json.loads(sys.stdin.readline())
            with allow_plugins(first["plugins"]):
                work: Work = import_target(target)(**first["setup"])
                reply(ready=True)
                for line in sys.stdin:
                    for index, value in work(**json.loads(line)):
                        reply(index=index, value=value)
                    reply(done=True)
        except GoldimaskError as error:
            reply(error=str(error), exit_code=error.exit_code)


if __name__ == "__main__":
    serve(sys.argv[1])
