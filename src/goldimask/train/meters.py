"""What a run measures of itself, and how that outlives a resume.

    Clock     wall seconds of loading, training, validation and checkpoints, over all starts
    Speed     tokens per training second between two log lines
    state     the sums since the last log (of every rank) and the clock, for the checkpoint

With the state a resumed run logs what the undisturbed one would have: the mean loss and the means
of the metrics cover the whole window between two log lines, also when a kill fell into it. Steps
that were lost and are made again count once, in their second making.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from goldimask.files import write_json
from goldimask.metrics import NAMES
from goldimask.processes import devices, gather, hardware
from goldimask.records import read_json

if TYPE_CHECKING:
    from goldimask.train.trainer import GoldiTrainer

PHASES = ("loading", "training", "validation", "checkpoints")
STATE = "meters.json"


class Clock:
    """Seconds by what a run was doing; waits for the device whenever that changes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = dict.fromkeys(PHASES, 0.0)
        self.hardware = [hardware()]  # a resumed run may have moved
        self.inside: str | None = None
        self.since = 0.0

    @contextmanager
    def during(self, phase: str) -> Iterator[None]:
        """Count for a phase; the one around it goes on afterwards."""
        outer = self._change(phase)
        try:
            yield
        finally:
            self._change(outer)

    def _change(self, phase: str | None) -> str | None:
        if devices():
            torch.accelerator.synchronize()
        now = time.perf_counter()
        if self.inside is not None:
            self.seconds[self.inside] += now - self.since
        outer, self.inside, self.since = self.inside, phase, now
        return outer

    def read(self, phase: str) -> float:
        """Seconds until now."""
        running = time.perf_counter() - self.since if self.inside == phase else 0.0
        return self.seconds[phase] + running

    def record(self) -> dict[str, Any]:
        return {**{phase: self.read(phase) for phase in PHASES}, "hardware": self.hardware}

    def resume(self, record: dict[str, Any]) -> None:
        """Add what earlier starts took, as far as their work counts."""
        for phase in PHASES:
            self.seconds[phase] += record[phase]
        self.hardware = list(dict.fromkeys([*record["hardware"], *self.hardware]))


class Speed:
    """Tokens per second of training between two log lines.

    Tokens are real ones, counted when a batch is made; padding is reported as a share of all cells.
    """

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.tokens = self.cells = 0
        self.began = 0.0  # training seconds at the last log

    def add(self, tokens: int, cells: int) -> None:
        self.tokens += tokens
        self.cells += cells

    def pop(self, reduce: Callable[..., Any] | None = None, device: Any = None) -> dict[str, float]:
        """Figures since the last call; `reduce(tensor, "sum")` adds over ranks."""
        now = self.clock.read("training")
        seconds, self.began = now - self.began, now
        tokens, cells = float(self.tokens), float(self.cells)
        self.tokens = self.cells = 0
        if reduce is not None:
            sums = torch.tensor([tokens, cells], dtype=torch.float64, device=device)
            tokens, cells = reduce(sums, "sum").tolist()
        if not cells or seconds <= 0:
            return {}
        return {"tokens_per_s": tokens / seconds, "pad_share": 1.0 - tokens / cells}


def save_meters(trainer: GoldiTrainer, folder: Path) -> None:
    """Write the state into a checkpoint; every rank takes part."""
    ranks = gather(sums_of(trainer))
    if not trainer.args.should_save:
        return
    state = {
        "ranks": ranks,
        "classes": trainer.tally.before.tolist(),
        "loss_before": trainer._total_loss_scalar,
        "last_logged": trainer._globalstep_last_logged,
        "training_at_log": trainer.speed.began,
        "clock": trainer.clock.record(),
        "held_out": trainer.held_out,
    }
    write_json(folder / STATE, state)


def load_meters(trainer: GoldiTrainer) -> None:
    """Go on from a checkpoint, once; called when the Trainer has reset its own sums."""
    state = read_json(trainer.resumed / STATE) if trainer.resumed else {}
    trainer.resumed = None
    if not state:
        return
    ranks, world, rank = state["ranks"], trainer.args.world_size, trainer.args.process_index
    own = np.array(ranks[rank % len(ranks)])
    if len(ranks) != world:  # rank 0 has the sums of all; of the loss, ranks take the mean
        every = np.sum(ranks, 0)
        own = every * (rank == 0)
        own[0] = every[0] / len(ranks)
    loss, tokens, cells = own[:3]
    trainer._tr_loss.fill_(loss)
    trainer._total_loss_scalar = state["loss_before"]
    trainer._globalstep_last_logged = state["last_logged"]
    trainer.speed.tokens, trainer.speed.cells = int(tokens), int(cells)
    trainer.speed.began = state["training_at_log"]
    trainer.pool.sums = torch.tensor(own[3 : 3 + 2 * len(NAMES)], dtype=torch.float64).to(
        trainer.args.device
    )
    before = trainer.tally.before
    trainer.tally.recent = own[3 + 2 * len(NAMES) :].reshape(before.shape)
    trainer.tally.before = np.array(state["classes"]).reshape(before.shape)
    trainer.clock.resume(state["clock"])
    trainer.held_out = {int(step): losses for step, losses in state["held_out"].items()}


def sums_of(trainer: GoldiTrainer) -> list[float]:
    """What this rank has added up since the last log: loss, tokens, cells, metrics, classes."""
    trainer.pool.settle()
    trainer.tally.settle()
    pool = trainer.pool.sums
    metrics = [0.0] * (2 * len(NAMES)) if pool is None else pool.tolist()
    speed = trainer.speed
    loss = float(trainer._tr_loss)
    return [loss, speed.tokens, speed.cells, *metrics, *trainer.tally.recent.ravel().tolist()]
