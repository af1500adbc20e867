"""Reveal selection in a training step: signals in, reveal mask out (paper, Algorithm 1, step 3).

    lambda_i = lambda(p_i),  p_i the probe's probability of the true token
    A_ij     = the probe's attention from candidate i to candidate j, not renormalised
    R        = maximiser(A, lambda, B),  B = |C| - K

Examples with K = 0 have no target to support and reveal nothing, as do examples with B = 0; neither
reaches a maximiser. The generator of an example is `keys.rng(example_id, Stream.SELECT)`.
Why attention is not renormalised: D10, docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goldimask.keys import Keys, Stream
from goldimask.objective import Priority, Support, priority_curve
from goldimask.select import oracle
from goldimask.select.api import DRAWING, read_support
from goldimask.select.base import SELECTORS, Select, Selection
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
        assert s.logp is not None and s.attention is not None
        budgets, candidates = wanted(c), c.candidates.cpu().numpy()
        p = np.exp(np.minimum(s.logp.double().cpu().numpy(), 0.0))
        rows = [np.flatnonzero(row) for row in candidates]
        asked = np.flatnonzero(budgets)
        ids = batch.example_id.tolist()
        draws = self.maximiser in DRAWING
        seeds = [draw_seed(keys.rng(ids[b], Stream.SELECT)) if draws else 0 for b in asked]
        lams = [self.priority(p[b, rows[b]]) for b in asked]
        found = self.select(s, asked, rows, lams, budgets, seeds)
        order, gains, values = empty(batch.size)
        for b, one in zip(asked, found, strict=True):
            order[b], gains[b] = rows[b][one.order].tolist(), one.gains.tolist()
            values[b] = one.value
        return Reveal(scatter(c.candidates, order), order, gains, values)

    def select(self, s, asked, rows, lams, budgets, seeds) -> list[Selection]:
        """Accelerator tensors stay there; anything else is fetched once and goes to numba."""
        if s.attention.device.type != "cpu":
            return select_on_device(self, s, asked, rows, lams, budgets, seeds)
        from goldimask.select.engine import Rules, Task, run  # numba is imported on first use

        attention = s.attention.float().contiguous().numpy()
        tasks = [
            Task(attention[b], rows[b], lam, int(budgets[b]), seed)
            for b, lam, seed in zip(asked, lams, seeds, strict=True)
        ]
        rules = Rules(self.maximiser, self.support, self.swap, self.swaps)
        return run(tasks, rules, torch.get_num_threads())


def select_on_device(
    select: SubmodularSelect, s: Signals, asked: np.ndarray, rows: list, lams: list,
    budgets: np.ndarray, seeds: list[int],
) -> list[Selection]:  # fmt: skip
    """Cut the candidates out on the device and select there, the whole batch at once."""
    from goldimask.select.batched import run_batch

    if not len(asked):
        return []
    width = max(len(rows[b]) for b in asked)
    mask = np.zeros((len(asked), width), dtype=bool)
    index, lam = np.zeros(mask.shape, dtype=np.int64), np.zeros(mask.shape)
    for k, b in enumerate(asked):
        n = len(rows[b])
        mask[k, :n], index[k, :n], lam[k, :n] = True, rows[b], lams[k]
    attention = s.attention
    assert attention is not None
    columns = torch.from_numpy(index).to(attention.device)[:, None].expand(-1, width, -1)
    square = attention[torch.from_numpy(asked).to(attention.device), :width].gather(2, columns)
    return run_batch(
        square.float(), lam, budgets[asked], mask, seeds, select.maximiser, select.support,
        select.swap, select.swaps,
    )  # fmt: skip


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
    return SubmodularSelect(
        maximiser, curve, read_support(support, "method.select.support"), **options
    )


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
