"""Ctrl-C and SIGTERM end a run at the next step, with a checkpoint to continue from.

The first signal asks; the run finishes its step, saves and leaves with its own exit code. A second
signal acts as if nothing had been installed. With several processes the request of any of them
counts, and all of them stop after the same step; after the failure of one the others end at once.
"""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any

from transformers import TrainerCallback

from goldimask.errors import GoldimaskError
from goldimask.processes import any_rank
from goldimask.train.launch import failed_elsewhere

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Stopped(GoldimaskError):
    """The user or the scheduler ended the run; it can be resumed."""

    exit_code = 4


class StopOnSignal(TrainerCallback):
    """Turns a signal into a saved checkpoint and an orderly end."""

    def __init__(self) -> None:
        self.caught: str | None = None
        self.stopped = False
        self.before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
            self.before = {s: signal.signal(s, self._catch) for s in SIGNALS}

    def remove(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}

    def _catch(self, number: int, frame: FrameType | None) -> None:
        self.remove()
        if failed_elsewhere():  # the launcher clears up: there is nobody left to save with
            os.kill(os.getpid(), number)
            return
        self.caught = signal.Signals(number).name

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if any_rank(self.caught is not None) and state.global_step < state.max_steps:
            self.stopped = True
            args.save_total_limit = None  # at the end, a limit of 1 would keep only the best one
            control.should_log = True
            control.should_save = True
            control.should_training_stop = True
