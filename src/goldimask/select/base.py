"""The seam between a maximiser and the training step.

A maximiser sees one example: `attention` [N, N] from target to candidate (zero diagonal),
`priority` [N], a budget. `SubmodularSelect` cuts those out of the probe's signals (softmax over all
real keys, sliced to the candidates, not renormalised: D10, docs/decisions.md) and puts the answer
back as a mask.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from goldimask.keys import Keys
from goldimask.registry import Registry
from goldimask.types import Batch, Corruption, Reveal, Signal, Signals


@dataclass(frozen=True)
class Selection:
    """A reveal set in the order it was chosen."""

    order: np.ndarray  # [|R|] int64, indices into the candidates
    gains: np.ndarray  # [|R|] float64, marginal gain of each choice when it was made
    value: float  # F(R)
    evaluations: int = 0  # marginals computed, for the benchmark


class Select(Protocol):
    """Which candidates get their ground-truth token back."""

    @property
    def needs(self) -> frozenset[Signal]: ...

    def __call__(self, c: Corruption, s: Signals, batch: Batch, keys: Keys) -> Reveal: ...


SELECTORS: Registry[Callable[..., Select]] = Registry("selector")


@dataclass(frozen=True)
class NoReveal:
    """Reveal nothing; every masked position is a target."""

    needs: frozenset[Signal] = frozenset()

    def __call__(self, c: Corruption, s: Signals, batch: Batch, keys: Keys) -> Reveal:
        return Reveal(torch.zeros_like(c.candidates))


@SELECTORS.register("none")
def none() -> Select:
    """Reveal nothing."""
    return NoReveal()


def candidate_attention(s: Signals, b: int, count: int) -> Tensor:
    """[N, N] attention among the candidates of example b: row = target, column = revealed token."""
    assert s.attention is not None and s.rows is not None
    rows = s.rows[b, :count]
    square = s.attention[b, :count].index_select(1, rows)
    return square.fill_diagonal_(0.0)
