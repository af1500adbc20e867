"""Held-out text on fixed masks: the one mechanism of training, campaigns and studies.

What a checkpoint is judged by (D14, docs/decisions.md):

    vanilla   the unweighted denoising loss on a fixed bank of noise levels and masks: the same for
              every method, and the same number whenever it is asked for
    method    the method's own noise and loss, from fixed keys
    lift      LIFT as released: t on the grid linspace(0, 1, n) by index, mapped to [eps, 1]; the
              method's own loss (GIFT: vanilla's); masks drawn anew at every evaluation

`lift` draws its masks from the key (seed, step), so that a resumed run evaluates as the straight
one would have; it stays a noisy figure that cannot be compared between methods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import nn

from goldimask.data.batches import make_batch
from goldimask.keys import Keys
from goldimask.methods import Method
from goldimask.noise import EPS, Draw, Noise, bank, corrupt, supervised_count
from goldimask.select.base import NoReveal
from goldimask.step import MaskedStep, module_mode
from goldimask.types import Example, StepOutput
from goldimask.weighting import Uniform, Weigh

BANK_SEED = 20_260  # of the validation draws; one number for every run, so that runs compare
Objective = Literal["vanilla", "method", "lift"]


@dataclass(frozen=True)
class Judge:
    """A method to evaluate with, and the keys of one evaluation."""

    method: Method
    seed: int = BANK_SEED
    redraw: bool = False  # new masks at every evaluation

    def keys(self, step: int) -> Keys:
        return Keys(self.seed, step if self.redraw else 0)


def make_judge(
    method: Method,
    examples: Sequence[Example],
    seed: int,
    objective: Objective = "vanilla",
    levels: int = 16,
) -> Judge:
    """The judge of a run; `levels` are the noise levels of the fixed bank."""
    if objective == "method":
        return Judge(method)
    if objective == "lift":
        over = not isinstance(method.select, NoReveal) and not method.name.startswith("gift")
        own = method if over else replace(method, select=NoReveal(), weigh=_own_weigh(method))
        return Judge(replace(own, noise=lift_noise(lift_grid(examples), over)), seed, redraw=True)
    return Judge(plain_denoising(bank(levels, BANK_SEED)))


def plain_denoising(noise: Noise) -> Method:
    """The unweighted loss on what a noise masks."""
    return Method(noise, NoReveal(), Uniform(), name="validation")


@torch.no_grad()
def score_bank(
    model: nn.Module,
    step: MaskedStep,
    examples: Sequence[Example],
    keys: Keys,
    *,
    pad_id: int,
    batch_size: int = 16,
    pad_to_multiple: int = 8,
    share: tuple[int, int] = (0, 1),
) -> Iterator[tuple[list[int], StepOutput]]:
    """Numbers of the examples in each batch, and the step's verdict, in eval mode.

    Batches are made by length. With `share` (rank, ranks) every rank scores each so-manyth batch;
    all run equally many, as sharded models need: a surplus rank repeats one that does not count.
    """
    rank, ranks = share
    order = sorted(range(len(examples)), key=lambda i: len(examples[i]))
    chunks = [order[i : i + batch_size] for i in range(0, len(order), batch_size)]
    device = next(model.parameters()).device
    for turn in range(-(-len(chunks) // ranks)):
        number = turn * ranks + rank
        chosen = chunks[min(number, len(chunks) - 1)]
        batch = make_batch([examples[i] for i in chosen], pad_id, pad_to_multiple).to(device)
        with module_mode(model, train=False):
            out = step(model, batch, keys)
        if number < len(chunks):
            yield chosen, out


def _own_weigh(method: Method) -> Weigh:
    return Uniform() if method.name.startswith("gift") else method.weigh


def lift_grid(examples: Sequence[Example]) -> dict[int, float]:
    """Example id -> t: an even grid over the held-out examples, ends included."""
    levels = (1.0 - EPS) * np.linspace(0.0, 1.0, len(examples)) + EPS
    return {e.example_id: float(np.float32(t)) for e, t in zip(examples, levels, strict=True)}


def lift_noise(grid: Mapping[int, float], over: bool) -> Noise:
    """Masks at the grid's levels, over-masked where the method is."""

    def rate(d: Draw, example_id: int) -> tuple[float, float]:
        t = grid[example_id]
        low = 0.1 if t < 0.9 else 0.0
        return t, (low + (max(0.0, 1.0 - t) - low) * d.u_rho) * over

    def keep(t: float, rho: float, length: int, count: int) -> int:
        return supervised_count(t, length) if over else count

    return lambda batch, keys: corrupt(batch, keys, rate, keep)
