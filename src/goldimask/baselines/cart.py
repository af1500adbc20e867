"""CART: context-adaptive weights by distance to visible tokens (Dream 7B).

    w_n = sum over j != n of  v_j  (1/2) p (1-p)^(|n-j|-1)          p = 0.1
    loss = (1/tL) sum over masked n of  w_n CE_n

v_j = 1 where position j is visible: prompt, unmasked response and special tokens, never padding.
Since |M| is about tL this is the form in LIFT's code, which equals Dream's w/|M| up to sampling
noise (D7, D18, docs/decisions.md).

With q = 1-p, the left half is the linear recursion F_n = q F_(n-1) + p v_(n-1). It is evaluated by
doubling, x_n <- x_n + q^k x_(n-k) for k = 1, 2, 4, ..: log2(T) whole-row operations that run the
same on every device, instead of T dependent ones. `recursion` is the O(T) statement it is tested
against.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from goldimask.errors import GoldimaskError
from goldimask.types import Signal, Weights
from goldimask.weighting import WEIGHERS, Weigh, loss_scale


def cart_weights(visible: Tensor, p: float) -> Tensor:
    """w at every position, masked or not. [B, T] bool -> [B, T] float64"""
    v = visible.double()
    return (_from_left(v, p) + _from_left(v.flip(1), p).flip(1)) / 2


def _from_left(v: Tensor, p: float) -> Tensor:
    x = torch.zeros_like(v)
    x[:, 1:] = p * v[:, :-1]
    shift, decay = 1, 1.0 - p
    while shift < x.shape[1]:
        x[:, shift:] = x[:, shift:] + decay * x[:, :-shift]
        shift, decay = 2 * shift, decay * decay
    return x


def recursion(visible: list[bool], p: float) -> list[float]:
    """The same for one row by the plain recursion, left to right and back."""

    def half(row: list[bool]) -> list[float]:
        out, f = [], 0.0
        for previous in [False, *row[:-1]]:
            f = (1.0 - p) * f + p * previous
            out.append(f)
        return out

    right = half(visible[::-1])[::-1]
    return [(a + b) / 2 for a, b in zip(half(visible), right, strict=True)]


@dataclass(frozen=True)
class Cart:
    """w_n / (tL)."""

    p: float = 0.1
    needs: frozenset[Signal] = frozenset()

    def __call__(self, c, s, batch, supervised, logp, keys) -> Weights:
        w = cart_weights(batch.valid & ~supervised, self.p)
        return Weights(torch.where(supervised, w, 0.0).float(), loss_scale(c, batch))


@WEIGHERS.register("cart")
def cart(p: float = 0.1) -> Weigh:
    """Geometric kernel over the distance to visible tokens (CART)."""
    if not 0.0 < p <= 1.0:
        raise GoldimaskError(f"method.weigh.p: {p} must lie in (0, 1]")
    return Cart(p)
