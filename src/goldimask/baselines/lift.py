"""LIFT: keep easy targets at high noise and hard ones at low noise (D3, D5, docs/decisions.md).

    over-mask to C; K = floor(tL); score_i = log p(gold_i) in a pass without gradient
    component of an example, by the largest of
        H = 2    top-k: t            bottom-k: 1-t                          tie to top-k
        H = 3    vanilla: 3t(1-t)    top-k: t    bottom-k: 1-t              ties in this order
    top-k keeps the K highest scores (easy), bottom-k the K lowest (hard), vanilla K at random
    the others are revealed; loss = (1/tL) sum over kept of CE_i

Deviations from the released code, which `protocol: lift` undoes where it can: the component is
chosen per example (`choice: batch` takes the mean t of the micro-batch), the budget is the shared
one (`noise.budget: lift`), the scoring pass runs without dropout (`probe.mode: train`). The number
of passes is a property of the method: an example with the vanilla component is in the scoring pass
too, where the released code skips it. With `budget: lift` a vanilla component with k = 0 has no
target, where the released code keeps one. Logits are shifted for Dream in both passes, in every
mode.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from goldimask.baselines.ranking import highest, uniforms
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.select.base import SELECTORS, Select
from goldimask.types import Batch, Corruption, Reveal, Signal, Signals

VANILLA, TOP, BOTTOM = 0, 1, 2


def component_by_time(t: Tensor, components: int) -> Tensor:
    """VANILLA, TOP or BOTTOM for each noise level. [B] -> [B] int64"""
    t = t.double()
    vanilla = 3.0 * t * (1.0 - t) if components == 3 else torch.full_like(t, -1.0)
    return torch.stack([vanilla, t, 1.0 - t]).argmax(0)  # the first of equals


@dataclass(frozen=True)
class Confidence:
    """Keep K candidates by the model's confidence in the gold token."""

    components: int = 2
    policy: Literal["time", "random"] = "time"
    choice: Literal["example", "batch"] = "example"
    needs: frozenset[Signal] = frozenset({Signal.LOGP})

    def component(self, c: Corruption, batch: Batch, keys: Keys) -> Tensor:
        """[B] int64"""
        if self.policy == "random":
            first = VANILLA if self.components == 3 else TOP
            draws = [
                first + int(keys.rng(e, Stream.COMPONENT).integers(self.components))
                for e in batch.example_id.tolist()
            ]
            return torch.tensor(draws, device=c.t.device)
        t = c.t if self.choice == "example" else c.t.mean().expand_as(c.t)
        return component_by_time(t, self.components)

    def __call__(self, c: Corruption, s: Signals, batch: Batch, keys: Keys) -> Reveal:
        assert s.logp is not None
        which = self.component(c, batch, keys)[:, None]
        logp = s.logp.double()
        score = torch.where(which == TOP, logp, -logp)
        if self.components == 3:
            score = torch.where(which == VANILLA, uniforms(batch, keys, Stream.SELECT), score)
        kept = highest(score, c.candidates, c.keep)
        return Reveal(c.candidates & ~kept & (c.keep > 0)[:, None])


@SELECTORS.register("confidence")
def confidence(
    components: int = 2,
    policy: Literal["time", "random"] = "time",
    choice: Literal["example", "batch"] = "example",
) -> Select:
    """Keep easy or hard targets by noise level (LIFT)."""
    if components not in (2, 3):
        raise GoldimaskError(f"method.select.components: {components} must be 2 or 3")
    return Confidence(components, policy, choice)
