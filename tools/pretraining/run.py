"""Pretraining from scratch: plain masked diffusion on an endless stream of generated problems.

    for step in 0 .. steps - 1:
        batch  <- problems step * B ... of the stream (`canvas.py`)
        loss   <- MaskedStep(vanilla)(model, batch, keys)     t ~ U(noise_floor, 1), weight 1/(tL)
        Muon and AdamW with warm-up and decay, gradient clipped by its norm (`optimisers.py`)
    in stages, each with its own rates, canvas and share of frontier masks (`frontier.py`)

Deviation from the paper's noise (D2): t starts at `noise_floor` = 0.1 instead of 0.001, which
bounds the weight 1/t; the shipped model is not a result, only a starting point.

Everything is a function of the recipe and the step, nothing of wall-clock time: the same recipe
gives the same weights bit by bit on one machine, stopped and resumed or not.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from goldimask.backbones import Backbone, save_backbone
from goldimask.errors import GoldimaskError, RunFailed
from goldimask.files import write_text
from goldimask.keys import Keys
from goldimask.processes import torch_threads
from goldimask.step import MaskedStep
from pretraining.canvas import batches
from pretraining.checkpoint import load_checkpoint, read_facts, save_checkpoint
from pretraining.frontier import pretraining_method
from pretraining.model import new_backbone
from pretraining.optimisers import Optimisers, make_optimisers, rate, update
from pretraining.recipe import (
    Pretraining,
    pretraining_dict,
    pretraining_yaml,
)
from pretraining.watch import measure

Advance = Callable[..., None]


def pretrain(
    recipe: Pretraining,
    resume: bool = False,
    advance: Advance = lambda n=1, note="": None,
    say: Callable[[str], None] = lambda text: None,
    until: int | None = None,
) -> dict[str, Any]:
    """Run a recipe; returns the last measurement. Results are in `recipe.output`.

    `until` stops after that step with the schedule of the whole recipe, as if the run had been
    broken off there; it can be resumed.
    """
    if until is not None and not 1 <= until <= recipe.steps:
        raise GoldimaskError(
            f"until: {until} must lie between 1 and the run's {recipe.steps} steps"
        )
    with torch_threads(recipe.threads):
        return _run(recipe, resume, advance, say, until or recipe.steps)


def _run(
    recipe: Pretraining, resume: bool, advance: Advance, say: Callable[[str], None], until: int
) -> dict[str, Any]:
    folder, watch = Path(recipe.output), recipe.watch
    backbone = new_backbone(recipe.model, recipe.seed)
    backbone.model.train()
    first, optimisers = begin(recipe, backbone, resume)
    if resume:
        say(f"resuming {folder} at step {first} of {recipe.steps}")
        advance(first)
    get_batch = batches(recipe, backbone)
    keys = Keys(recipe.seed)
    meter = Meter()
    last: dict[str, Any] = {}
    for step in range(first, until):
        stage, inside = recipe.stage(step)
        if inside == 0:
            optimisers = make_optimisers(backbone.model, stage.optim)
        masks = (stage.frontier, stage.reach, recipe.noise_floor, backbone.pad_id)
        take_step = MaskedStep(pretraining_method(*masks), backbone.scorer)
        share = rate(stage.optim, inside, stage.steps)
        batch = get_batch(step)
        out = take_step(backbone.model, batch, keys)
        out.loss.backward()
        loss, norm = float(out.loss.detach()), update(optimisers, share)
        if not math.isfinite(loss) or not math.isfinite(norm):
            raise RunFailed(f"step {step}: the loss is not finite; lower the rates and start again")
        meter.add(loss, norm, batch.ids.numel())
        done = step + 1
        advance(1, f"loss {loss:.3f}")
        end = done == until
        if done % watch.log_every == 0 or end:
            append(folder / "log.jsonl", {"step": done, "rate": round(share, 6), **meter.read()})
        if done % watch.every == 0 or end:
            last = {"step": done, **measure(backbone, watch)}
            append(folder / "log.jsonl", last)
            say(json.dumps(last))
            meter.restart_clock()  # measuring took time that is not training's
        if done % watch.checkpoint_every == 0 or end:
            facts = {"step": done, "recipe": pretraining_dict(recipe)}
            save_checkpoint(folder / "checkpoint", optimisers, facts)
            save_backbone(backbone, folder / "model")
    return last


class Meter:
    """Means over the steps since it was last read (or since the run was resumed)."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.losses: list[float] = []
        self.norms: list[float] = []
        self.restart_clock()

    def restart_clock(self) -> None:
        self.tokens, self.start = 0, time.process_time()

    def add(self, loss: float, norm: float, tokens: int) -> None:
        self.losses.append(loss)
        self.norms.append(norm)
        self.tokens += tokens

    def read(self) -> dict[str, Any]:
        seconds = max(1e-9, time.process_time() - self.start)
        found = {
            "loss": round(sum(self.losses) / len(self.losses), 6),
            "grad_norm": round(sum(self.norms) / len(self.norms), 4),
            "tokens_per_cpu_second": round(self.tokens / seconds),
        }
        self.reset()
        return found


def begin(recipe: Pretraining, backbone: Backbone, resume: bool) -> tuple[int, Optimisers]:
    """Make the folder of a new run, or restore one; returns the first step to take."""
    folder = Path(recipe.output)
    if resume:
        facts = read_facts(folder / "checkpoint")
        check_same(recipe, facts)
        first = min(int(facts["step"]), recipe.steps)
        stage, inside = recipe.stage(first if first < recipe.steps else first - 1)
        optimisers = make_optimisers(backbone.model, stage.optim)
        load_checkpoint(folder / "checkpoint", optimisers, moments=inside > 0)
        keep_until(folder / "log.jsonl", first)
        return first, optimisers
    if (folder / "checkpoint").exists():
        raise GoldimaskError(
            f"output: '{folder}' holds a run; continue it with --resume or move it"
        )
    write_text(folder / "recipe.yaml", pretraining_yaml(recipe))
    write_text(folder / "log.jsonl", "")
    return 0, make_optimisers(backbone.model, recipe.stages[0].optim)


def check_same(recipe: Pretraining, facts: dict[str, Any]) -> None:
    """A resumed run must be the same run: where it is and what it watches may differ.

    Stages that the checkpoint has not reached may be changed or added.
    """
    before, now = dict(facts["recipe"]), pretraining_dict(recipe)
    begun, step = 0, int(facts["step"])
    for stage in before["stages"]:
        begun += step > 0
        step -= stage["steps"]
    for values in (before, now):  # one key per stage, so that a message names the stage
        stages = values.pop("stages")[:begun]
        values.update({f"stages[{i}]": stage for i, stage in enumerate(stages)})
    for key in sorted({*before, *now} - {"output", "watch"}):
        old, new = before.get(key), now.get(key)
        if old != new:
            raise GoldimaskError(
                f"{key}: the checkpoint was made with {old!r}, the recipe says {new!r}; use the "
                "recipe.yaml beside it, or begin a new run elsewhere"
            )


def append(log: Path, record: dict[str, Any]) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def keep_until(log: Path, step: int) -> None:
    """Drop log lines of steps that will be taken again, and half a last line."""
    kept = []
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if record["step"] <= step:
            kept.append(line)
    write_text(log, "".join(line + "\n" for line in kept))
