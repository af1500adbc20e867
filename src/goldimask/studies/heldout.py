"""Held-out denoising on fixed masks (paper, Study 1, "Measuring learning on unseen examples").

for t in (0.25, 0.5, 0.75):  mask each supervisable position with probability t, the same masks
                             for every model;  log p of the true token at the masked positions

NLL         mean of -log p over all targets
confident   share of targets with p >= 0.9
lost        share of targets with p < 0.05
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from goldimask.backbones import Backbone
from goldimask.data.batches import make_batch
from goldimask.keys import Keys, Stream
from goldimask.step import module_mode
from goldimask.types import Example

LEVELS = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class HeldOut:
    """Targets of all examples and levels, in one fixed order."""

    logp: np.ndarray  # [n] float64
    example: np.ndarray  # [n] int64
    level: np.ndarray  # [n] float64

    @property
    def nll(self) -> float:
        return float(-self.logp.mean())

    @property
    def confident(self) -> float:
        return float((self.logp >= np.log(0.9)).mean())

    @property
    def lost(self) -> float:
        return float((self.logp < np.log(0.05)).mean())

    def summary(self) -> dict[str, float]:
        return {
            "nll": self.nll,
            "confident": self.confident,
            "lost": self.lost,
            "targets": len(self.logp),
        }


@torch.no_grad()
def held_out(
    backbone: Backbone,
    examples: Sequence[Example],
    levels: Sequence[float] = LEVELS,
    seed: int = 0,
    batch_size: int = 16,
) -> HeldOut:
    """Score every masked target of every example at every level."""
    device = next(backbone.model.parameters()).device
    order = sorted(range(len(examples)), key=lambda i: (len(examples[i]), i))
    logps, where, at = [], [], []
    with module_mode(backbone.model, train=False):
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            batch = make_batch([examples[i] for i in chosen], backbone.pad_id, 8)
            draws = uniforms(batch.response.numpy(), batch.example_id.tolist(), len(levels), seed)
            for k, t in enumerate(levels):
                hidden = batch.response & torch.from_numpy(draws[k] < t)
                signals = backbone.scorer(backbone.model, batch.to(device), hidden.to(device))
                assert signals.logp is not None
                logps.append(signals.logp.double().cpu()[hidden].numpy())
                rows = hidden.nonzero()[:, 0].numpy()
                where.append(np.asarray(chosen)[rows])
                at.append(np.full(len(rows), t))
    return HeldOut(np.concatenate(logps), np.concatenate(where), np.concatenate(at))


def uniforms(response: np.ndarray, ids: Sequence[int], levels: int, seed: int) -> np.ndarray:
    """One draw per level and position, from the example's own stream. [levels, B, T]"""
    out = np.ones((levels, *response.shape))
    for b, example_id in enumerate(ids):
        places = np.flatnonzero(response[b])
        rng = Keys(seed).rng(example_id, Stream.STUDY)
        out[:, b, places] = rng.random((levels, len(places)))
    return out
