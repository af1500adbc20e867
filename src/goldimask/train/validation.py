"""What a checkpoint is judged by (decision D14).

    vanilla   the unweighted denoising loss on a fixed bank of noise levels and masks: the same for
              every method, and the same number whenever it is asked for
    method    the method's own noise and loss, from fixed keys
    lift      LIFT as released: t on the grid linspace(0, 1, n) by index, mapped to [eps, 1]; the
              method's own loss (GIFT: vanilla's); masks drawn anew at every evaluation

`lift` draws its masks from the key (seed, step), so that a resumed run evaluates as the straight
one would have; it stays a noisy figure that cannot be compared between methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from goldimask.config import EvaluationSection
from goldimask.keys import Keys
from goldimask.methods import Method
from goldimask.noise import EPS, Draw, Noise, bank, corrupt, supervised_count
from goldimask.select.base import NoReveal
from goldimask.types import Example
from goldimask.weighting import Uniform, Weigh

BANK_SEED = 20_260  # of the validation draws; one number for every run, so that runs compare


@dataclass(frozen=True)
class Judge:
    """A method to evaluate with, and the keys of one evaluation."""

    method: Method
    seed: int = BANK_SEED
    redraw: bool = False  # new masks at every evaluation

    def keys(self, step: int) -> Keys:
        return Keys(self.seed, step if self.redraw else 0)


def make_judge(
    section: EvaluationSection, method: Method, examples: Sequence[Example], seed: int
) -> Judge:
    """The judge of a run."""
    if section.objective == "method":
        return Judge(method)
    if section.objective == "lift":
        over = not isinstance(method.select, NoReveal) and not method.name.startswith("gift")
        own = method if over else replace(method, select=NoReveal(), weigh=_own_weigh(method))
        return Judge(replace(own, noise=lift_noise(lift_grid(examples), over)), seed, redraw=True)
    noise = bank(section.t_grid, BANK_SEED)
    return Judge(Method(noise, NoReveal(), Uniform(), name="validation"))


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
