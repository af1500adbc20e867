"""A fixed number of supervised targets, sampled by priority (paper, appendix "Study 1").

    k positions of M are drawn without replacement, one after another in proportion to lambda(p_i)
    loss = (1/k) sum over the drawn positions of CE_i

p is the current model's probability in the training pass itself, so there is no second pass; the
other masked positions stay masked and carry no loss. With fewer than k masked positions all are
drawn. The draw is an exponential race: position i finishes at e_i / lambda_i with e_i ~ Exp(1), and
the first k win; that is the sequential draw in one sort. Positions of zero priority come last, in
the order of e_i. The paper does not state the normaliser; the mean over the k positions keeps the
size of Vanilla's loss.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from goldimask.baselines.ranking import highest, uniforms
from goldimask.errors import GoldimaskError
from goldimask.keys import Stream
from goldimask.objective import Priority, PrioritySpec, priority_curve
from goldimask.types import Signal, Weights
from goldimask.weighting import WEIGHERS, Weigh


@dataclass(frozen=True)
class BudgetSample:
    """w = 1 on the sampled targets, 0 on the other masked positions."""

    k: int
    priority: Priority
    needs: frozenset[Signal] = frozenset()

    def __call__(self, c, s, batch, supervised, logp, keys) -> Weights:
        race = -torch.log1p(-uniforms(batch, keys, Stream.WEIGH))  # Exp(1)
        curve = self.priority(logp.double().exp().clamp(0.0, 1.0))
        # log of the finishing time; zero priorities finish after everyone else, by e_i
        log_race = race.clamp_min(1e-300).log()
        time = torch.where(curve > 0, log_race - curve.clamp_min(1e-300).log(), 1e6 + log_race)
        count = supervised.sum(1).clamp_max(self.k)
        drawn = highest(-time, supervised, count)
        scale = torch.where(count > 0, 1.0 / count.clamp_min(1), 0.0)
        return Weights(drawn.float(), scale.float())


@WEIGHERS.register("budget-sample")
def budget_sample(k: int = 32, priority: PrioritySpec = "p(1-p)^3") -> Weigh:
    """k targets per example carry the loss, sampled by priority; [0, 0] is uniform (Study 1)."""
    if k < 1:
        raise GoldimaskError(f"method.weigh.k: {k} must be at least 1")
    return BudgetSample(k, priority_curve(priority, "method.weigh.priority"))
