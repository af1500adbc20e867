"""Reveal selection in a training step: signals in, reveal mask out (paper, Algorithm 1, step 3).

    lambda_i = lambda(p_i),  p_i the probe's probability of the true token
    A_ij     = the probe's attention from candidate i to candidate j, not renormalised; with
               `surprise`, which is ours, times 1 - p_j: what was expected tells nothing
    R        = maximiser(A, lambda, B),  B = |C| - K

Examples with K = 0 have no target to support and reveal nothing, as do examples with B = 0; neither
reaches a maximiser. The generator of an example is `keys.rng(example_id, Stream.SELECT)`.
Why attention is not renormalised: D10, docs/decisions.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from goldimask.keys import Keys, Stream
from goldimask.objective import Priority, PrioritySpec, Support, priority_curve
from goldimask.processes import mark, send, wait_for
from goldimask.select import oracle
from goldimask.select.api import DRAWING, read_support
from goldimask.select.base import SELECTORS, Select, Selection
from goldimask.select.dense import DENSE, run_dense
from goldimask.select.draws import draw_seed
from goldimask.select.race import Race
from goldimask.types import Batch, Corruption, Reveal, Signal, Signals

PAPER = "p(1-p)^3"
SATURATING: dict[str, Any] = {"kind": "saturating", "s0": 0.05}
BOTH = frozenset({Signal.LOGP, Signal.ATTENTION})
Engine = Literal["auto", "host", "device"]
HostOnly = Literal["auto", "host"]  # maximisers that the device engine does not have


@dataclass(frozen=True)
class SubmodularSelect:
    """Maximise the reveal objective of each example.

    `engine`: on the `host` by numba, from an N x N cut that the device makes and copies; on the
    `device`, densely; `auto` races them on an accelerator (`race.py`) and is the host elsewhere.
    """

    maximiser: str
    priority: Priority
    support: Support
    swap: oracle.Swap = "pair"
    swaps: int | None = None
    engine: Engine = "auto"
    surprise: bool = False
    needs: frozenset[Signal] = BOTH
    race: Race = field(default_factory=Race, compare=False, repr=False)

    def __call__(self, c: Corruption, s: Signals, batch: Batch, keys: Keys) -> Reveal:
        found = self.begin(c, s, batch, keys)()
        return replace(found, mask=send(found.mask, c.candidates.device))

    def runs(self, device: torch.device) -> Engine:
        """The engine of the next batch; `auto` while the race is on."""
        if self.engine != "auto":
            return self.engine
        if device.type == "cpu" or self.maximiser not in DENSE:
            return "host"
        return self.race.winner or "auto"

    def begin(
        self, c: Corruption, s: Signals, batch: Batch, keys: Keys, spare: float = 0.0
    ) -> Callable[[], Reveal]:
        """Ask the device for what is needed; the call that is returned does the rest, and on the
        host it may do so in another thread. Its mask stays on the host.

        `spare` are the seconds that the loop has other work for meanwhile.
        """
        assert s.logp is not None and s.attention is not None
        engine, threads = self.runs(s.attention.device), torch.get_num_threads()
        budgets, rows = wanted(c), [np.flatnonzero(row) for row in c.on_host()[0]]
        asked, ids = np.flatnonzero(budgets), batch.on_host()[1]
        draws = self.maximiser in DRAWING
        seeds = [draw_seed(keys.rng(ids[b], Stream.SELECT)) if draws else 0 for b in asked]
        logp, square, columns = s.logp, s.attention, rows
        cut = square.device.type != "cpu" or engine != "host"
        if cut:  # what the candidates know of each other, made where the attention is
            assert s.rows is not None
            places, columns = s.rows.clamp_min(0), [np.arange(len(r)) for r in rows]
            logp = logp.gather(1, places)
            square = square.float().gather(2, places[:, None].expand(-1, places.shape[1], -1))
        if self.surprise:
            square = square * -torch.expm1(logp.float().clamp_max(0.0))[:, None]
        both = [logp[:, None]] if not cut or engine == "device" else [logp[:, None], square]
        sent = fetch(torch.cat(both, 1))  # one copy, one wait

        def solve() -> Reveal:
            got = sent()
            p = np.exp(np.minimum(got[:, 0].double().numpy(), 0.0))
            lams = [self.priority(p[b, columns[b]]) for b in asked]

            def host() -> list[Selection]:
                a = got[:, 1:] if cut else square
                return self.on_host(a, asked, columns, lams, budgets, seeds, threads)

            def device() -> list[Selection]:
                return self.on_device(square, asked, lams, budgets, seeds)

            found: list[Selection] = []
            if len(asked) and engine == "auto":
                found = self.race(host, device, square.device, spare)
            elif len(asked):
                found = host() if engine == "host" else device()
            return told(found, asked, rows, tuple(c.candidates.shape))

        return solve

    def on_host(self, attention, asked, rows, lams, budgets, seeds, threads) -> list[Selection]:
        """numba; `rows` are the columns of the candidates."""
        from goldimask.select.engine import Rules, Task, run  # numba is imported on first use

        a = attention.float().contiguous().numpy()
        tasks = [
            Task(a[b], rows[b], lam, int(budgets[b]), seed)
            for b, lam, seed in zip(asked, lams, seeds, strict=True)
        ]
        return run(tasks, Rules(self.maximiser, self.support, self.swap, self.swaps), threads)

    def on_device(self, square, asked, lams, budgets, seeds) -> list[Selection]:
        """The whole batch at once, where the attention is."""
        width = max(len(lam) for lam in lams)
        lam, active = np.zeros((len(asked), width)), np.zeros((len(asked), width), dtype=bool)
        for k, one in enumerate(lams):
            lam[k, : len(one)], active[k, : len(one)] = one, True
        few = square.index_select(0, send(asked, square.device))[:, :width, :width]
        return run_dense(few, lam, budgets[asked], active, seeds, self.maximiser, self.support)


def fetch(x: Tensor) -> Callable[[], Tensor]:
    """Start a copy to the host; the call waits for it, and for nothing that was asked later."""
    if x.device.type == "cpu":
        return lambda: x
    place = x.device
    try:
        copy = torch.empty_like(x, device="cpu", pin_memory=True).copy_(x, non_blocking=True)
        done = mark(place)
    except (RuntimeError, NotImplementedError):  # a device without pinned memory or events
        plain = x.cpu()
        return lambda: plain

    def wait() -> Tensor:
        wait_for(done, place)
        return copy

    return wait


def told(found: list[Selection], asked: np.ndarray, rows: list, shape: tuple) -> Reveal:
    order: list[list[int]] = [[] for _ in rows]
    gains: list[list[float]] = [[] for _ in rows]
    values = [0.0] * len(rows)
    for b, one in zip(asked, found, strict=True):
        order[b], gains[b] = rows[b][one.order].tolist(), one.gains.tolist()
        values[b] = one.value
    mask = scatter(shape, order)
    return Reveal(torch.from_numpy(mask), order, gains, values, mask)


@dataclass(frozen=True)
class RandomSelect:
    """Reveal a uniform random subset of the budget's size; needs no probe pass."""

    needs: frozenset[Signal] = frozenset()

    def __call__(self, c: Corruption, s: Signals, batch: Batch, keys: Keys) -> Reveal:
        candidates, budgets = c.on_host()[0], wanted(c)
        order: list[list[int]] = [[] for _ in range(batch.size)]
        for b, example_id in enumerate(batch.on_host()[1]):
            if budgets[b]:
                rows = np.flatnonzero(candidates[b])
                seed = draw_seed(keys.rng(example_id, Stream.SELECT))
                order[b] = rows[oracle.ranking_random(len(rows), seed)[: budgets[b]]].tolist()
        mask = scatter(candidates.shape, order)
        return Reveal(send(mask, c.candidates.device), order, host=mask)


def wanted(c: Corruption) -> np.ndarray:
    """The budget of each example, 0 where K = 0. [B] int64"""
    candidates, keep = c.on_host()
    return np.where(keep > 0, np.maximum(candidates.sum(1) - keep, 0), 0)


def scatter(shape: tuple[int, ...], order: list[list[int]]) -> np.ndarray:
    """Positions per example -> mask."""
    mask = np.zeros(shape, dtype=bool)
    for b, positions in enumerate(order):
        mask[b, positions] = True
    return mask


def build(
    maximiser: str,
    priority: PrioritySpec,
    support: Mapping[str, Any],
    **options: Any,
) -> Select:
    curve = priority_curve(priority, "method.select.priority")
    return SubmodularSelect(
        maximiser, curve, read_support(support, "method.select.support"), **options
    )


@SELECTORS.register("greedy", aliases=("d",))
def greedy(
    priority: PrioritySpec = PAPER,
    support: dict[str, Any] = SATURATING,
    engine: Engine = "auto",
    surprise: bool = False,
) -> Select:
    """Add the candidate with the largest marginal until the budget is spent (GoldiMask-D)."""
    return build("greedy", priority, support, engine=engine, surprise=surprise)


@SELECTORS.register("randomized", aliases=("r",))
def randomized(
    priority: PrioritySpec = PAPER,
    support: dict[str, Any] = SATURATING,
    engine: Engine = "auto",
) -> Select:
    """Draw from the B largest marginals until the budget is spent (GoldiMask-R)."""
    return build("randomized", priority, support, engine=engine)


@SELECTORS.register("twin", aliases=("t",))
def twin(
    priority: PrioritySpec = PAPER,
    support: dict[str, Any] = SATURATING,
    engine: HostOnly = "auto",
) -> Select:
    """Grow two disjoint sets while they gain, keep the better (GoldiMask-T); may stop early."""
    return build("twin", priority, support, engine=engine)


@SELECTORS.register("practical", aliases=("p",))
def practical(
    priority: PrioritySpec = PAPER,
    support: dict[str, Any] = SATURATING,
    swap: oracle.Swap = "pair",
    swaps: int | None = None,
    engine: HostOnly = "auto",
) -> Select:
    """Local search, guided draws, best of both (GoldiMask-P); may stop early."""
    return build("practical", priority, support, swap=swap, swaps=swaps, engine=engine)


@SELECTORS.register("static")
def static(
    priority: PrioritySpec = PAPER,
    support: dict[str, Any] = SATURATING,
    engine: HostOnly = "auto",
) -> Select:
    """Control: rank the candidates once by their initial marginals."""
    return build("static", priority, support, engine=engine)


@SELECTORS.register("random")
def random() -> Select:
    """Control: a uniform random subset of the budget's size."""
    return RandomSelect()
