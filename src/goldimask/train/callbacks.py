"""What happens around the steps: the bar, the metrics file, the last evaluation."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from transformers import TrainerCallback


class LastStep(TrainerCallback):
    """Evaluate and save at the last step too, whatever the interval (D14)."""

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
    """A progress bar on stderr with loss, speed and remaining time."""

    def __init__(self, description: str) -> None:
        self.description = description
        self.note = ""
        self.began = 0.0

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        from goldimask.console import progress

        if state.is_local_process_zero:
            self.context = progress(self.description, state.max_steps)
            self.advance = self.context.__enter__()
            self.advance(state.global_step)
            self.began = time.perf_counter()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "loss" in logs:
            self.note = f"loss {logs['loss']:.3f}"
            if "tokens_per_s" in logs:
                self.note += f" · {logs['tokens_per_s']:,.0f} tok/s"
        elif logs and "eval_loss" in logs:
            self.note = f"held-out {logs['eval_loss']:.4f}"

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
