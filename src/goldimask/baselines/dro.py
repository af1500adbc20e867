"""DRO-tilted hardness: hard examples count more (paper, section 4.4, "Choice of loss weighting").

    d_b = mean over S of (1 - p2_i)             difficulty of an example, between 0 and 1
    w_i = exp(d_b / tau) / Z    for all i in S,   tau = 0.25
    Z   <- (1 - a) Z + a mean over the batch of exp(d_b / tau)      after the step, a = 1 - momentum

The paper fixes the exponential, tau and "a running-average normaliser" but neither the difficulty
nor the average. The project's choices: 1 - p, which is bounded (with a cross-entropy of 5,
exp(5/0.25) would be 5e8); the normaliser of *earlier* steps, so that an example's weight does not
depend on its batch mates; w = 1 until there is one. Early steps use the plain mean of what has been
seen (a = 1/step until that falls below 1 - momentum). Examples without targets are left out of Z.

Z is state: it is saved and restored with the run. Each process keeps its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from goldimask.errors import GoldimaskError
from goldimask.types import Batch, Signal, Signals, StepOutput, Weights
from goldimask.weighting import WEIGHERS, KeptScale, Weigh, loss_scale


def difficulty(logp: Tensor, supervised: Tensor) -> Tensor:
    """Mean of 1 - p over the targets, 0 without any. [B] float64"""
    hard = torch.where(supervised, 1.0 - logp.double().exp(), 0.0).sum(1)
    return hard / supervised.sum(1).clamp_min(1)


@dataclass
class Dro:
    """exp(d/tau) relative to its running average."""

    tau: float = 0.25
    momentum: float = 0.99
    kept_scale: KeptScale = "paper"
    normaliser: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.float64))
    steps: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int64))
    needs: frozenset[Signal] = frozenset()

    def __call__(self, c, s, batch, supervised, logp, keys) -> Weights:
        tilt = (difficulty(logp, supervised) / self.tau).exp()
        z = self.normaliser.to(tilt.device, non_blocking=True)
        factor = torch.where(z > 0, tilt / z.clamp_min(1e-300), 1.0)
        value = torch.where(supervised, factor[:, None], 0.0).float()
        return Weights(value, loss_scale(c, batch, supervised, self.kept_scale))

    def observe(self, out: StepOutput, batch: Batch, trained: Signals) -> None:
        has = out.supervised.any(1)
        tilt = torch.where(has, (difficulty(out.logp, out.supervised) / self.tau).exp(), 0.0)
        mean = tilt.sum() / has.sum().clamp_min(1)
        here = {"device": mean.device, "non_blocking": True}
        self.normaliser, self.steps = self.normaliser.to(**here), self.steps.to(**here)
        steps = self.steps + has.any()  # a batch without targets says nothing
        rate = torch.clamp(1.0 / steps.clamp_min(1), min=1.0 - self.momentum).double()
        updated = (1.0 - rate) * self.normaliser + rate * mean
        self.normaliser = torch.where(has.any(), updated, self.normaliser)
        self.steps = steps

    def state_dict(self) -> dict[str, Tensor]:
        return {"normaliser": self.normaliser.clone(), "steps": self.steps.clone()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        missing = {"normaliser", "steps"} - set(state)
        if missing:
            raise GoldimaskError(f"saved state of weigher 'dro' lacks '{sorted(missing)[0]}'")
        self.normaliser = state["normaliser"].clone().double()
        self.steps = state["steps"].clone()


@WEIGHERS.register("dro")
def dro(tau: float = 0.25, momentum: float = 0.99, kept_scale: KeptScale = "paper") -> Weigh:
    """Hard examples count more: exp(d/tau) over its running average (ablation)."""
    if not tau > 0:
        raise GoldimaskError(f"method.weigh.tau: {tau} must be greater than 0")
    if not 0.0 <= momentum < 1.0:
        raise GoldimaskError(f"method.weigh.momentum: {momentum} must lie in [0, 1)")
    return Dro(tau, momentum, kept_scale)
