"""AGDO as the paper reimplements it (appendix "Training setup and compute resources").

    1. over-mask to C, K = floor(tL), B = |C| - K; probe pass, A = head-mean attention of one block
    2. S_i = sum over visible j of A_ij          visible: prompt and unmasked response, no padding
    3. reveal the B candidates with the largest S_i, in one shot; ties to the lowest index
    4. I_i = sum over all real queries q of A_qi  attention received, prompt and self included
    5. w_i = (1 + gamma I_i) n / sum over S of (1 + gamma I_j),   gamma = 100
       loss = (1/tL) sum over S of w_i CE_i

Rows of A sum to one, so I has mean one over the sequence and w is in effect proportional to I.
There is no cap. |C| <= K: nothing is revealed and w = 1. This is not the AGDO paper's own schedule,
which orders tokens by repeated reveals at a fully visible state; no code of it was released
(D8, docs/decisions.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from goldimask.baselines.ranking import highest
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.select.base import SELECTORS, Select
from goldimask.types import Batch, Corruption, Reveal, Signal, Signals, Weights
from goldimask.weighting import WEIGHERS, Weigh, loss_scale, normalised, revealed_any


@dataclass(frozen=True)
class AttentionVisible:
    """Reveal the candidates that attend most to what is already visible."""

    needs: frozenset[Signal] = frozenset({Signal.ATTENTION})

    def __call__(self, c: Corruption, s: Signals, batch: Batch, keys: Keys) -> Reveal:
        assert s.attention is not None and s.rows is not None
        visible = (batch.valid & ~c.candidates).to(s.attention.dtype)
        mass = torch.bmm(s.attention, visible[:, :, None])[:, :, 0]  # [B, N]
        real = s.rows >= 0
        score = torch.zeros(c.candidates.shape, dtype=mass.dtype, device=mass.device)
        # padding rows all write their zero to column 0, which they must not overwrite: add instead
        score.scatter_add_(1, s.rows.clamp_min(0), torch.where(real, mass, 0.0))
        budget = torch.where(c.keep > 0, c.budget(), 0)
        return Reveal(highest(score, c.candidates, budget))


@dataclass(frozen=True)
class Importance:
    """1 + gamma I, mean one over the targets."""

    gamma: float = 100.0
    needs: frozenset[Signal] = frozenset({Signal.RECEIVED})

    def __call__(self, c, s, batch, supervised, logp, keys) -> Weights:
        w = normalised(1.0 + self.gamma * s.received.double(), supervised)
        w = torch.where(revealed_any(c, supervised), w, supervised.double())
        return Weights(w.float(), loss_scale(c, batch))


@SELECTORS.register("attention-visible")
def attention_visible() -> Select:
    """Reveal what attends most to visible context (AGDO)."""
    return AttentionVisible()


@WEIGHERS.register("importance")
def importance(gamma: float = 100.0) -> Weigh:
    """Attention received, 1 + gamma I, mean one (AGDO)."""
    if not gamma >= 0:
        raise GoldimaskError(f"method.weigh.gamma: {gamma} must be at least 0")
    return Importance(gamma)
