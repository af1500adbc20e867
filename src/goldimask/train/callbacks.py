"""What happens around the steps: bar, metrics file, last evaluation, signals."""

from __future__ import annotations

import json
import math
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from transformers import TrainerCallback

from goldimask.console import duration, on_terminal, progress
from goldimask.errors import GoldimaskError
from goldimask.processes import any_rank
from goldimask.train.launch import failed_elsewhere, launched

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
SAME_SECONDS = 2.0


class LastStep(TrainerCallback):
    """Evaluate and save at the last step too, whatever the interval (D14, docs/decisions.md)."""

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step >= state.max_steps:
            control.should_log = True
            control.should_evaluate = str(args.eval_strategy) != "IntervalStrategy.NO"
            control.should_save = str(args.save_strategy) != "SaveStrategy.NO"


class MetricsFile(TrainerCallback):
    """One JSON object per logged step in `metrics.jsonl`; a resumed run drops what it will
    repeat.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero and self.path.exists():
            lines = self.path.read_text().splitlines()
            kept = [x for x in lines if _step(x) <= state.global_step and "train_runtime" not in x]
            self.path.write_text("".join(f"{x}\n" for x in kept))

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if not state.is_world_process_zero or not logs:
            return
        clean = {k: v for k, v in logs.items() if not isinstance(v, float) or math.isfinite(v)}
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"step": state.global_step, **clean}) + "\n")


def _step(line: str) -> float:
    """Step of a metrics line; a line cut short by a kill counts as never written."""
    try:
        return json.loads(line)["step"]
    except (ValueError, KeyError):
        return math.inf


class Bar(TrainerCallback):
    """Loss, speed and remaining time: a bar on a terminal, else `say` a line per log."""

    def __init__(self, description: str, say: Callable[[str], None] = lambda _: None) -> None:
        self.description, self.say = description, say
        self.note = ""
        self.began, self.first = 0.0, 0
        self.lines = not on_terminal()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_local_process_zero:
            self.context = progress(self.description, state.max_steps)
            self.advance = self.context.__enter__()
            self.advance(state.global_step)
            self.began, self.first = time.perf_counter(), state.global_step

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self.note = f"loss {logs['loss']:.3f}"
            if "tokens_per_s" in logs:
                self.note += f" · {logs['tokens_per_s']:,.0f} tok/s"
        elif logs and "eval_loss" in logs:
            self.note = f"held-out {logs['eval_loss']:.4f}"
            if "eval_loss_se" in logs:
                self.note += f" ± {logs['eval_loss_se']:.4f}"
        tells = self.lines and logs and state.is_world_process_zero
        if tells and (line := self.line(state, logs)):
            self.say(line)

    def line(self, state: Any, logs: dict[str, Any]) -> str | None:
        """`step 10/120  loss 1.2345  lr 9.2e-04  0.42 s/step  left 0:46  end 14:03`."""
        total = state.max_steps
        place = f"step {state.global_step:>{len(str(total))}}/{total}"
        if "eval_loss" in logs:
            return f"{place}  {self.note}"
        done = state.global_step - self.first
        if "loss" not in logs or done <= 0:
            return None
        each = (time.perf_counter() - self.began) / done
        left = each * (total - state.global_step)
        end = time.strftime(
            "%a %H:%M" if left > 43200 else "%H:%M", time.localtime(time.time() + left)
        )
        words = [f"loss {logs['loss']:.4f}", f"lr {logs.get('learning_rate', 0.0):.1e}"]
        words += [f"{each:.2f} s/step", f"left {duration(left)}", f"end {end}"]
        return "  ".join([place, *words])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_local_process_zero:
            self.advance(1, self.note)

    def close(self) -> None:
        """Take the bar down, also after a failure."""
        if hasattr(self, "context"):
            self.context.__exit__(None, None, None)
            del self.context

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.close()


class Stopped(GoldimaskError):
    """The user or the scheduler ended the run; it can be resumed."""

    exit_code = 4


class StopOnSignal(TrainerCallback):
    """TERM, INT, HUP, USR1 and USR2 end a run at the next step, with a checkpoint to go on from.

    The first signal asks; the run finishes its step, saves and leaves with its own exit code. A
    second signal ends it at once, as if nothing had been installed. Under our launcher, which
    passes signals on, and in a job of Slurm, a process may get one twice: a repetition within a
    moment is the same one.
    With several processes the request of any of them counts, and all of them stop after the same
    step; after the failure of one the others end at once. A hang-up that is ignored (`nohup`) stays
    so.
    """

    def __init__(self) -> None:
        self.caught: str | None = None
        self.since = 0.0
        self.stopped = False
        self.before: dict[signal.Signals, Any] = {}

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():  # Python allows it nowhere else
            ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
            wanted = [s for s in SIGNALS if not (ignored and s == signal.SIGHUP)]
            self.before = {s: signal.signal(s, self._catch) for s in wanted}

    def remove(self) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
        self.before = {}

    def _catch(self, number: int, frame: FrameType | None) -> None:
        twice = launched() or "SLURM_JOB_ID" in os.environ
        if self.caught and twice and time.monotonic() - self.since < SAME_SECONDS:
            return
        if self.caught or failed_elsewhere():  # the launcher clears up: nobody is left to save with
            self.remove()
            os.kill(os.getpid(), number)
            return
        self.caught, self.since = signal.Signals(number).name, time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if any_rank(self.caught is not None) and state.global_step < state.max_steps:
            self.stopped = True
            args.save_total_limit = None  # at the end, a limit of 1 would keep only the best one
            control.should_save = True  # with the sums since the last log: no line out of turn
            control.should_training_stop = True
