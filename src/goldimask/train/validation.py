"""Held-out text on fixed masks: the one mechanism of training, campaigns and studies.

What a checkpoint is judged by (D14, docs/decisions.md):

    vanilla   the unweighted denoising loss on a fixed bank of noise levels and masks: the same for
              every method, and the same number whenever it is asked for
    method    the method's own noise and loss, as often per example, from fixed keys
    lift      LIFT as released: t on the grid linspace(0, 1, n) by index, mapped to [eps, 1]; the
              method's own loss (GIFT: vanilla's); masks drawn anew at every evaluation

`lift` draws its masks from the key (seed, step), so that a resumed run evaluates as the straight
one would have; it stays a noisy figure that cannot be compared between methods.

The bank, for n examples in the order of their ids and levels t_k = (k + 1/2) / levels:

    m        pairs of an example: the smallest number that divides `levels`, or is a multiple of it,
             with m >= 2 and n m >= `pairs`
    levels   of example e: a_e, a_e + s, a_e + 2s, ...,  s = max(1, levels / m);  the starts a_e run
             through 0 .. s - 1 in bit-reversed order

So an example has evenly spaced levels, and over the bank no level has more than one pair more than
another. A mask depends on (example, number of its pair) alone.

    loss     l_e = mean over the pairs of example e,  L = mean over examples
    error    SE(L) = sd(l_e) / sqrt(n): examples are the unit, their levels are averaged first.
             Where examples have different levels this counts that difference as chance too, so it
             errs on the large side
    a and b  SE(L_a - L_b) = sd(l_e(a) - l_e(b)) / sqrt(n): paired, on the same masks
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from torch import nn

from goldimask.data.batches import make_batch
from goldimask.errors import GoldimaskError, RunFailed
from goldimask.keys import Keys, content_id
from goldimask.methods import Method
from goldimask.noise import EPS, Draw, Noise, corrupt, supervised_count
from goldimask.select.base import NoReveal
from goldimask.stats import spread
from goldimask.step import MaskedStep, module_mode
from goldimask.types import Example, StepOutput
from goldimask.weighting import Uniform, Weigh

BANK_SEED = 20_260  # of the validation draws; one number for every run, so that runs compare
Objective = Literal["vanilla", "method", "lift"]


@dataclass(frozen=True)
class Judge:
    """A method to evaluate with, what it scores, and the keys of one evaluation."""

    method: Method
    examples: list[Example]  # every held-out example `repeats` times in turn, each with its own id
    repeats: int = 1
    seed: int = BANK_SEED
    redraw: bool = False  # new masks at every evaluation

    def keys(self, step: int) -> Keys:
        return Keys(self.seed, step if self.redraw else 0)

    def per_example(self, losses: Mapping[int, float]) -> list[float]:
        """The mean of each held-out example, from the losses of all that was scored, by number."""
        every = [losses[i] for i in range(len(self.examples))]
        groups = (every[i : i + self.repeats] for i in range(0, len(every), self.repeats))
        return [math.fsum(group) / self.repeats for group in groups]


def make_judge(
    method: Method,
    examples: Sequence[Example],
    seed: int,
    objective: Objective = "vanilla",
    levels: int = 16,
    pairs: int = 128,
) -> Judge:
    """The judge of a run; the fixed bank has `levels` noise levels and at least `pairs` pairs."""
    for key, value in (("t_grid", levels), ("pairs", pairs)):
        if value < 1:
            raise GoldimaskError(f"evaluation.{key}: {value} must be at least 1")
    ordered = sorted(examples, key=lambda e: e.example_id)
    if objective == "lift":
        over = not isinstance(method.select, NoReveal) and not method.name.startswith("gift")
        own = method if over else replace(method, select=NoReveal(), weigh=_own_weigh(method))
        noise = level_noise(lift_grid(examples), over)
        return Judge(replace(own, noise=noise), ordered, seed=seed, redraw=True)
    found, grid = bank(ordered, levels, pairs)
    judged = method if objective == "method" else plain_denoising(level_noise(grid))
    return Judge(judged, found, len(found) // max(1, len(ordered)))


def bank(
    examples: Sequence[Example], levels: int, pairs: int
) -> tuple[list[Example], dict[int, float]]:
    """Every example several times, under ids of their own, and the noise level of each id."""
    each = repeats(len(examples), levels, pairs)
    stride = max(1, levels // each)
    starts = sorted(range(stride), key=lambda k: f"{k:032b}"[::-1])
    found: list[Example] = []
    grid: dict[int, float] = {}
    for number, example in enumerate(examples):
        for k in range(each):
            level = (starts[number % stride] + k * stride) % levels
            own = replace(example, example_id=content_id(str(example.example_id), f"pair {k}"))
            found.append(own)
            grid[own.example_id] = float(np.float32((level + 0.5) / levels))
    return found, grid


def repeats(examples: int, levels: int, pairs: int) -> int:
    """Pairs of an example: at least 2, at least `pairs` in all, and the levels divide evenly."""
    wanted = max(2, -(-pairs // max(1, examples)))
    if wanted >= levels:
        return -(-wanted // levels) * levels
    return next(m for m in range(wanted, levels + 1) if levels % m == 0)


def finite(losses: list[float], step: int) -> list[float]:
    """The same losses; ends the run where one is no number."""
    if all(map(math.isfinite, losses)):
        return losses
    raise RunFailed(
        f"non-finite held-out loss at step {step}: the weights are of no use. Try a lower "
        "trainer.learning_rate; earlier checkpoints are kept"
    )


def mean_and_error(values: Sequence[float]) -> tuple[float, float | None]:
    """Mean and standard error of losses, or of differences, of examples; None for a single one."""
    found = spread(values)
    return found.mean, None if found.sd is None else found.sd / math.sqrt(found.n)


def two_checkpoints(history: Mapping[int, Sequence[float]]) -> dict[str, float] | None:
    """The best evaluation and its rival (the last one; where that is the best, the runner-up).

    `history` has the losses of all examples by step. None when there are no two to compare.
    """
    ranked = sorted((step for step in history if step > 0), key=lambda s: math.fsum(history[s]))
    if len(ranked) < 2 or len(history[ranked[0]]) < 2:
        return None
    best, last = ranked[0], max(ranked)
    rival = last if last != best else ranked[1]
    pairs = zip(history[rival], history[best], strict=True)
    difference, error = mean_and_error([b - a for b, a in pairs])
    assert error is not None
    return {"best": best, "rival": rival, "difference": difference, "se": error}


def verdict(found: Mapping[str, float]) -> str:
    """`two_checkpoints` in a sentence."""
    within = found["difference"] <= found["se"]
    return (
        f"steps {found['best']:g} (best) and {found['rival']:g}: held-out losses "
        f"{'do not differ by more than' if within else 'differ by more than'} the standard error "
        f"of their difference ({found['difference']:.4f}, SE {found['se']:.4f})"
    )


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


def level_noise(grid: Mapping[int, float], over: bool = False) -> Noise:
    """Masks at the level of each example id, over-masked where the method is."""

    def rate(d: Draw, example_id: int) -> tuple[float, float]:
        t = grid[example_id]
        low = 0.1 if t < 0.9 else 0.0
        return t, (low + (max(0.0, 1.0 - t) - low) * d.u_rho) * over

    def keep(t: float, rho: float, length: int, count: int) -> int:
        return supervised_count(t, length) if over else count

    return lambda batch, keys: corrupt(batch, keys, rate, keep)
