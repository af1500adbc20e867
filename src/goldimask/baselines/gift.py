"""GIFT: a masking rate per token from entropies (D6, D17, docs/decisions.md).

    1. probe with the whole response Y masked;  H_i = entropy at i, in nats
    2. beta_i = sqrt(H_i),  beta_ref = mean of beta over Y
    3. t_i = 1 - (1-t)^(beta_i / beta_ref), clamped to [eps, 1]
    4. mask each i of Y with probability t_i -> M
    5. loss = (1/|M|) sum over M of CE_i / t_i

In this project's terms: the noise is `full`, the selector reveals the complement of M, the weigher
gives 1/t_i with scale 1/|M|. t is the same draw as every other method's.

Deviations from the released code: everything is per example (identical at micro-batch 1), t_i is
clamped and divided by at masked positions only (it gave NaN), an empty M gives zero loss, padding
and special tokens are never in Y. The normalisation is as published: dividing by |M| on top of
1/t_i makes low-noise draws count about 1/t more than in the other methods.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from goldimask.baselines.ranking import uniforms
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.noise import EPS
from goldimask.select.base import SELECTORS, Select
from goldimask.types import Batch, Corruption, Reveal, Signal, Signals, Weights
from goldimask.weighting import WEIGHERS, Weigh

ENTROPY = frozenset({Signal.ENTROPY})


def token_rates(entropy: Tensor, response: Tensor, t: Tensor, eps: float = EPS) -> Tensor:
    """t_i at the response positions, 1 elsewhere. [B, T] float64"""
    beta = torch.where(response, entropy.double(), 0.0).clamp_min(0.0).sqrt()
    count = response.sum(1, keepdim=True).clamp_min(1)
    reference = (beta.sum(1, keepdim=True) / count).clamp_min(1e-12)
    remain = (1.0 - t.double())[:, None].pow(beta / reference)
    rates = (1.0 - remain).clamp(eps, 1.0)
    return torch.where(response, rates, 1.0)


@dataclass(frozen=True)
class EntropyResample:
    """Reveal what the second mask leaves out."""

    eps: float = EPS
    needs: frozenset[Signal] = ENTROPY

    def __call__(self, c: Corruption, s: Signals, batch: Batch, keys: Keys) -> Reveal:
        assert s.entropy is not None
        rates = token_rates(s.entropy, c.candidates, c.t, self.eps)
        masked = uniforms(batch, keys, Stream.RESAMPLE) < rates
        return Reveal(c.candidates & ~masked)


@dataclass(frozen=True)
class InverseRate:
    """w_i = 1/t_i, averaged over the masked tokens."""

    eps: float = EPS
    needs: frozenset[Signal] = ENTROPY

    def __call__(self, c, s, batch, supervised, logp, keys) -> Weights:
        rates = token_rates(s.entropy, c.candidates, c.t, self.eps)
        count = supervised.sum(1)
        scale = torch.where(count > 0, 1.0 / count.clamp_min(1), 0.0)
        return Weights(torch.where(supervised, 1.0 / rates, 0.0).float(), scale.float())


def _check(eps: float, where: str) -> None:
    if not 0.0 < eps < 1.0:
        raise GoldimaskError(f"{where}.eps: {eps} must lie in (0, 1)")


@SELECTORS.register("entropy-resample")
def entropy_resample(eps: float = EPS) -> Select:
    """Mask again, each token at a rate set by its entropy (GIFT)."""
    _check(eps, "method.select")
    return EntropyResample(eps)


@WEIGHERS.register("inverse-rate")
def inverse_rate(eps: float = EPS) -> Weigh:
    """1/t_i, mean over the masked tokens (GIFT)."""
    _check(eps, "method.weigh")
    return InverseRate(eps)
