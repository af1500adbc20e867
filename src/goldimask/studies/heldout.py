"""Held-out denoising on fixed masks (paper, Study 1, "Measuring learning on unseen examples").

for t in (0.25, 0.5, 0.75):  mask each supervisable position with probability t, the same masks
                             for every model;  log p of the true token at the masked positions

NLL = mean of -log p over all targets
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from goldimask.backbones import Backbone
from goldimask.keys import Keys, Stream
from goldimask.noise import Noise
from goldimask.step import MaskedStep
from goldimask.train.validation import plain_denoising, score_bank
from goldimask.types import Batch, Corruption, Example

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


def held_out(
    backbone: Backbone,
    examples: Sequence[Example],
    levels: Sequence[float] = LEVELS,
    seed: int = 0,
    batch_size: int = 16,
) -> HeldOut:
    """Score every masked target of every example at every level."""
    parts: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []
    for k, t in enumerate(levels):
        step = MaskedStep(plain_denoising(one_level(levels, k, seed)), backbone.scorer)
        scored = score_bank(
            backbone.model,
            step,
            examples,
            Keys(seed),
            pad_id=backbone.pad_id,
            batch_size=batch_size,
        )
        for number, (chosen, out) in enumerate(scored):
            hidden = out.supervised.cpu()
            rows = hidden.nonzero()[:, 0].numpy()
            logp = out.logp.double().cpu()[hidden].numpy()
            parts.append((number, logp, np.asarray(chosen)[rows], np.full(len(rows), t)))
    parts.sort(key=lambda part: part[0])  # batch by batch, its levels in turn
    return HeldOut(*(np.concatenate([part[i] for part in parts]) for i in (1, 2, 3)))


def one_level(levels: Sequence[float], k: int, seed: int) -> Noise:
    """Masks at the k-th level, from draws that all levels share."""

    def noise(batch: Batch, keys: Keys) -> Corruption:
        response = batch.response.cpu().numpy()
        drawn = uniforms(response, batch.example_id.tolist(), len(levels), seed)[k]
        hidden = torch.from_numpy(response & (drawn < levels[k])).to(batch.ids.device)
        level = torch.full((batch.size,), levels[k], device=batch.ids.device)
        return Corruption(hidden, level, torch.zeros_like(level), hidden.sum(1))

    return noise


def uniforms(response: np.ndarray, ids: Sequence[int], levels: int, seed: int) -> np.ndarray:
    """One draw per level and position, from the example's own stream. [levels, B, T]"""
    out = np.ones((levels, *response.shape))
    for b, example_id in enumerate(ids):
        places = np.flatnonzero(response[b])
        rng = Keys(seed).rng(example_id, Stream.STUDY)
        out[:, b, places] = rng.random((levels, len(places)))
    return out
