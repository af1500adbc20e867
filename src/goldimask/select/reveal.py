"""Reveal selection in a training step: signals in, reveal mask out (paper, Algorithm 1, step 3).

    lambda_i = lambda(p_i),  p_i the probe's probability of the true token
    A_ij     = the probe's attention from candidate i to candidate j (D10: not renormalised)
    R        = maximiser(A, lambda, B),  B = |C| - K

Examples with K = 0 have no target to support and reveal nothing, as do examples with B = 0; neither
reaches a maximiser. The generator of an example is `keys.rng(example_id, Stream.SELECT)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goldimask.errors import GoldimaskError, nearest
from goldimask.keys import Keys, Stream
from goldimask.objective import Priority, Support, priority_curve
from goldimask.select import oracle
from goldimask.select.base import SELECTORS, Select, candidate_attention
from goldimask.select.draws import draw_seed
from goldimask.types import Batch, Corruption, Reveal, Signal, Signals

PAPER = "p(1-p)^3"
SATURATING: dict[str, Any] = {"kind": "saturating", "s0": 0.05}
BOTH = frozenset({Signal.LOGP, Signal.ATTENTION})


@dataclass(frozen=True)
class SubmodularSelect:
    """Maximise the reveal objective of each example."""

    maximiser: str
    priority: Priority
    support: Support
    swap: oracle.Swap = "decoupled"
    swaps: int | None = None
    needs: frozenset[Signal] = BOTH

    def __call__(self, c: Corruption, s: Signals, batch: Batch, keys: Keys) -> Reveal:
        assert s.logp is not None
        logp = s.logp.double().cpu()
        candidates = c.candidates.cpu()
        budgets = wanted(c)
        ids = batch.example_id.tolist()
        order, gains, values = empty(batch.size)
        for b in np.flatnonzero(budgets):
            rows = candidates[b].nonzero().squeeze(1).numpy()
            attention = candidate_attention(s, int(b), len(rows)).double().cpu().numpy()
            lam = self.priority(np.exp(np.minimum(logp[b].numpy()[rows], 0.0)))
            p = oracle.problem(attention, lam, self.support)
            rng = keys.rng(ids[b], Stream.SELECT)
            found = oracle.solve(p, self.maximiser, int(budgets[b]), rng, self.swap, self.swaps)
            order[b], gains[b] = rows[found.order].tolist(), found.gains.tolist()
            values[b] = found.value
        return Reveal(scatter(c.candidates, order), order, gains, values)


@dataclass(frozen=True)
class RandomSelect:
    """Reveal a uniform random subset of the budget's size; needs no probe pass."""

    needs: frozenset[Signal] = frozenset()

    def __call__(self, c: Corruption, s: Signals, batch: Batch, keys: Keys) -> Reveal:
        candidates, budgets = c.candidates.cpu().numpy(), wanted(c)
        order: list[list[int]] = [[] for _ in range(batch.size)]
        for b, example_id in enumerate(batch.example_id.tolist()):
            if budgets[b]:
                rows = np.flatnonzero(candidates[b])
                seed = draw_seed(keys.rng(example_id, Stream.SELECT))
                order[b] = rows[oracle.ranking_random(len(rows), seed)[: budgets[b]]].tolist()
        return Reveal(scatter(c.candidates, order), order)


def wanted(c: Corruption) -> np.ndarray:
    """The budget of each example, 0 where K = 0. [B] int64"""
    return torch.where(c.keep > 0, c.budget(), 0).cpu().numpy()


def empty(size: int) -> tuple[list[list[int]], list[list[float]], list[float]]:
    return [[] for _ in range(size)], [[] for _ in range(size)], [0.0] * size


def scatter(candidates: Tensor, order: list[list[int]]) -> Tensor:
    """Positions per example -> mask like `candidates`."""
    mask = np.zeros(tuple(candidates.shape), dtype=bool)
    for b, positions in enumerate(order):
        mask[b, positions] = True
    return torch.from_numpy(mask).to(candidates.device)


def build(
    maximiser: str,
    priority: str | list[float],
    support: Mapping[str, Any],
    **options: Any,
) -> Select:
    curve = priority_curve(priority, "method.select.priority")
    return SubmodularSelect(maximiser, curve, read_support(support), **options)


def read_support(spec: Mapping[str, Any] | Support) -> Support:
    """`{kind: saturating, s0: 0.05}` or `{kind: linear}`."""
    if isinstance(spec, Support):
        return spec
    for key in spec:
        if key not in ("kind", "s0"):
            raise GoldimaskError(
                f"method.select.support.{key}: unknown key; {nearest(key, ('kind', 's0'))}"
            )
    return Support(**spec)


@SELECTORS.register("greedy", aliases=("d",))
def greedy(priority: str | list[float] = PAPER, support: dict[str, Any] = SATURATING) -> Select:
    """Add the candidate with the largest marginal until the budget is spent (GoldiMask-D)."""
    return build("greedy", priority, support)


@SELECTORS.register("randomized", aliases=("r",))
def randomized(priority: str | list[float] = PAPER, support: dict[str, Any] = SATURATING) -> Select:
    """Draw from the B largest marginals until the budget is spent (GoldiMask-R)."""
    return build("randomized", priority, support)


@SELECTORS.register("twin", aliases=("t",))
def twin(priority: str | list[float] = PAPER, support: dict[str, Any] = SATURATING) -> Select:
    """Grow two disjoint sets while they gain, keep the better (GoldiMask-T); may stop early."""
    return build("twin", priority, support)


@SELECTORS.register("practical", aliases=("p",))
def practical(
    priority: str | list[float] = PAPER,
    support: dict[str, Any] = SATURATING,
    swap: oracle.Swap = "decoupled",
    swaps: int | None = None,
) -> Select:
    """Local search, guided draws, best of both (GoldiMask-P); may stop early."""
    return build("practical", priority, support, swap=swap, swaps=swaps)


@SELECTORS.register("static")
def static(priority: str | list[float] = PAPER, support: dict[str, Any] = SATURATING) -> Select:
    """Control: rank the candidates once by their initial marginals."""
    return build("static", priority, support)


@SELECTORS.register("random")
def random() -> Select:
    """Control: a uniform random subset of the budget's size."""
    return RandomSelect()
