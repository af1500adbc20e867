"""Masks as block decoding meets them, mixed into the uniform ones of pretraining.

    with probability `share`:   c ~ U{0 .. n-1},  u ~ U(0, 1)
        before c                  visible
        c .. c + reach - 1        masked with probability u, position c always
        from c + reach on         masked, not supervised
    otherwise:                  every position masked with probability t, all masked supervised

n is the length of the response with its turn end. Under uniform masks a small model seldom has to
compute anything: a result is copied from the next line, and the end of the response shows through
the visible end tokens behind it. A decoder has neither. The loss of an example is the mean over its
supervised positions. This is for pretraining only; fine-tuning uses the paper's noise.

The two parts speak to each other through the corruption: rho = 1 - t > 0 marks a frontier mask.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from goldimask.keys import Keys
from goldimask.methods import Method, method
from goldimask.noise import draw
from goldimask.types import Batch, Corruption, Signal, Signals, Weights


@dataclass(frozen=True)
class FrontierNoise:
    """The draw of the masks."""

    share: float
    reach: int
    floor: float  # t ~ U(floor, 1) where the mask is uniform
    pad_id: int

    def __call__(self, batch: Batch, keys: Keys) -> Corruption:
        response = batch.response.numpy()
        filled = response & (batch.ids.numpy() != self.pad_id)
        candidates = np.zeros_like(response)
        ts, rhos = [], []
        for b, example_id in enumerate(batch.example_id.tolist()):
            positions = np.flatnonzero(response[b])
            d = draw(keys, example_id, len(positions) + 1, self.floor)
            if d.u_rho < self.share:
                cut = int(d.u[-1] * max(1, filled[b].sum()))
                chosen = self.masked(d.u[:-1], cut, d.u_rho / self.share)
                t, rho = cut / len(positions), 1 - cut / len(positions)
            else:
                chosen, t, rho = d.u[:-1] < d.t, float(d.t), 0.0
            candidates[b, positions[chosen]] = True
            ts.append(t)
            rhos.append(rho)
        found = torch.from_numpy(candidates)
        return Corruption(
            candidates=found, t=torch.tensor(ts), rho=torch.tensor(rhos), keep=found.sum(1)
        )

    def masked(self, u: np.ndarray, cut: int, inside: float) -> np.ndarray:
        """Which of the positions are masked; `inside` is the masking rate within reach."""
        index = np.arange(len(u))
        near = (index >= cut) & (index < cut + self.reach)
        return (near & (u < inside)) | (index == cut) | (index >= cut + self.reach)


@dataclass(frozen=True)
class FrontierWeights:
    """One over the number of supervised positions; beyond a frontier's reach nothing counts."""

    reach: int
    needs: frozenset[Signal] = frozenset()

    def __call__(
        self, c: Corruption, s: Signals, batch: Batch, supervised: Tensor, logp: Tensor, keys: Keys
    ) -> Weights:
        rank = batch.response.cumsum(1) - 1  # position within the response
        first = torch.where(supervised, rank, rank.shape[1]).amin(1, keepdim=True)
        near = (rank < first + self.reach) | (c.rho == 0)[:, None]
        value = (supervised & near).float()
        return Weights(value, 1.0 / value.sum(1).clamp_min(1.0))


def pretraining_method(share: float, reach: int, floor: float, pad_id: int) -> Method:
    """Vanilla with the given share of frontier masks; exactly Vanilla when there are none."""
    vanilla = method("vanilla", noise={"eps": floor})
    if share == 0:
        return vanilla
    noise = FrontierNoise(share, reach, floor, pad_id)
    return Method(noise, vanilla.select, FrontierWeights(reach), name="frontier")
