"""Naive maximisers: float64, one full sweep of marginals per choice, ties to the lowest index.

Readable statements of the algorithms in the paper's appendix "Maximizers for the reveal objective".
They are the oracles of the fast paths and are never used in training (except for linear support,
where a sweep is O(N): see `linear.py`).

D  B times: add the candidate with the largest marginal, even below zero.
R  B times: add a uniform draw from the B remaining candidates with the largest marginals.
T  grow two disjoint sets; each time the (candidate, set) pair with the largest marginal, while that
   is positive and the set has fewer than B members; return the better set.
P  (1) guide Z: D's prefix of positive marginals, then swaps while they improve F: `decoupled` takes
   the best removal u and then the best insertion into Z - u; `pair` takes the best pair (u, v).
   (2) B iterations of R's draw, without the members of Z during the first ceil(0.372 B); a draw
   with a negative marginal is skipped. (3) return the better of both.

Deviations and readings. Marginals that differ by at most `tie` = 1e-12 of the largest gain or cost
any candidate can have count as equal, as do values; without this, duplicates would be ordered by
the rounding of a sum and no two engines could agree. Zero means "at most `tie`". The start and the
sweep of P's local search are not given in the paper (D27, docs/decisions.md). Ties between sets go
to T's first set and to P's Z.
`gains` are F's increments along `order`, so they sum to `value` for every maximiser.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goldimask.objective import Floats, Support, marginals, value
from goldimask.select.base import Selection
from goldimask.select.draws import step_keys, step_words

TIE = 1e-12
GUIDED_SHARE = 0.372  # of the budget, during which P's draw avoids the guide
Mask = NDArray[np.bool_]
Swap = Literal["decoupled", "pair"]


@dataclass(frozen=True)
class Problem:
    """One example, and how its marginals are computed."""

    attention: Floats  # [N, N]
    priority: Floats  # [N]
    support: Support
    delta: Callable[[Mask], Floats]  # R -> marginals, -inf inside R
    tie: float

    @property
    def n(self) -> int:
        return len(self.priority)

    def value(self, reveal: Mask) -> float:
        return value(self.attention, self.priority, reveal, self.support)


def problem(attention: ArrayLike, priority: ArrayLike, support: Support) -> Problem:
    a = np.array(attention, dtype=np.float64)
    np.fill_diagonal(a, 0.0)
    lam = np.asarray(priority, dtype=np.float64)
    return Problem(
        a, lam, support, lambda r: marginals(a, lam, r, support), tie_width(a, lam, support)
    )


def tie_width(attention: Floats, priority: Floats, support: Support) -> float:
    """How far apart two marginals may be and still count as equal."""
    if not len(priority):
        return 0.0
    gain = (priority[:, None] * support(attention)).sum(0).max()  # of the first reveal
    cost = (priority * support(attention.sum(1))).max()  # of the last one
    return TIE * max(float(gain), float(cost))


def best(delta: Floats, tie: float) -> int:
    """The lowest index among the largest."""
    return int(np.flatnonzero(delta >= delta.max() - tie)[0])


def top(delta: Floats, size: int, tie: float) -> Mask:
    """The `size` largest of the finite entries; at the threshold, the lowest indices."""
    open_ = np.isfinite(delta)
    if open_.sum() <= size:
        return open_
    threshold = np.partition(delta, len(delta) - size)[len(delta) - size]
    pool = delta > threshold + tie
    tied = np.flatnonzero(np.abs(delta - threshold) <= tie)
    pool[tied[: size - pool.sum()]] = True
    return pool


def draw(pool: Mask, words: NDArray[np.uint32]) -> int:
    """A uniform draw from the pool: the member with the lowest key."""
    members = np.flatnonzero(pool)
    return int(members[step_keys(words, len(pool))[members].argmin()])


def finish(p: Problem, order: list[int], gains: list[float], evaluations: int) -> Selection:
    reveal = np.zeros(p.n, dtype=bool)
    reveal[order] = True
    return Selection(
        np.array(order, dtype=np.int64), np.array(gains, dtype=float), p.value(reveal), evaluations
    )


def run_greedy(p: Problem, budget: int, stop: float = -np.inf) -> Selection:
    """D; with `stop` it ends before the first marginal at or below it."""
    reveal = np.zeros(p.n, dtype=bool)
    order, gains, evaluations = [], [], 0
    for _ in range(budget):
        delta = p.delta(reveal)
        evaluations += p.n - len(order)
        x = best(delta, p.tie)
        if delta[x] <= stop:
            break
        order.append(x)
        gains.append(float(delta[x]))
        reveal[x] = True
    return finish(p, order, gains, evaluations)


def run_sampled(p: Problem, budget: int, seed: int, guide: Mask | None = None) -> Selection:
    """R; with a guide, the second stage of P."""
    reveal = np.zeros(p.n, dtype=bool)
    order, gains, evaluations = [], [], 0
    words = step_words(seed, budget)
    for step in range(budget):
        delta = p.delta(reveal)
        if guide is not None and step < guided_steps(budget):
            delta = np.where(guide, -np.inf, delta)
        evaluations += int(np.isfinite(delta).sum())
        pool = top(delta, budget, p.tie)
        if not pool.any():
            continue
        x = draw(pool, words[step])
        if guide is not None and delta[x] < -p.tie:
            continue
        order.append(x)
        gains.append(float(delta[x]))
        reveal[x] = True
    return finish(p, order, gains, evaluations)


def guided_steps(budget: int) -> int:
    """How many iterations of P's second stage exclude the guide."""
    return int(np.ceil(GUIDED_SHARE * budget))


def run_twin(p: Problem, budget: int) -> Selection:
    """T."""
    sets = np.zeros((2, p.n), dtype=bool)
    order: list[list[int]] = [[], []]
    gains: list[list[float]] = [[], []]
    evaluations = 0
    while True:
        used = sets.any(0)
        picks: list[tuple[float, int, int]] = []  # (marginal, set, candidate)
        for k in (0, 1):
            if len(order[k]) < budget and not used.all():
                delta = np.where(used, -np.inf, p.delta(sets[k]))
                evaluations += int((~used).sum())
                x = best(delta, p.tie)
                picks.append((float(delta[x]), k, x))
        if not picks:
            break
        gain, k, x = picks[-1] if picks[-1][0] > picks[0][0] + p.tie else picks[0]
        if gain <= p.tie:
            break
        sets[k, x] = True
        order[k].append(x)
        gains[k].append(gain)
    first, second = (finish(p, order[k], gains[k], evaluations) for k in (0, 1))
    return second if second.value > first.value + p.tie else first


def removals(p: Problem, reveal: Mask) -> Floats:
    """F(R - u) - F(R) for every u in R, -inf outside."""
    s = p.attention[:, reveal].sum(1)
    rest = np.where(reveal, 0.0, p.priority)
    less = np.maximum(s[:, None] - p.attention, 0.0)
    lost = (rest[:, None] * (p.support(s)[:, None] - p.support(less))).sum(0)
    return np.where(reveal, p.priority * p.support(s) - lost, -np.inf)


def without(reveal: Mask, u: int) -> Mask:
    less = reveal.copy()
    less[u] = False
    return less


def swap_decoupled(p: Problem, reveal: Mask) -> tuple[float, int, int]:
    """(improvement, u, v): the best removal, then the best insertion of another candidate."""
    out = removals(p, reveal)
    u = best(out, p.tie)
    delta = p.delta(without(reveal, u))
    delta[u] = -np.inf
    v = best(delta, p.tie)
    return float(out[u] + delta[v]), u, v


def swap_pair(p: Problem, reveal: Mask) -> tuple[float, int, int]:
    """(improvement, u, v): the best of all pairs, ties to the lowest u and then the lowest v."""
    out = removals(p, reveal)
    gain = np.full((p.n, p.n), -np.inf)
    for u in np.flatnonzero(reveal):
        gain[u] = out[u] + p.delta(without(reveal, int(u)))
        gain[u, u] = -np.inf
    u, v = divmod(best(gain.ravel(), p.tie), p.n)
    return float(gain[u, v]), int(u), int(v)


def swap_all(
    p: Problem,
    start: NDArray[np.int64],
    find: Callable[..., tuple[float, int, int]],
    cap: int | None,
) -> tuple[list[int], int]:
    """(order, sweeps): swap while it improves F, at most `cap` times (default N).

    `find(p, reveal)` gives (improvement, u, v), such as `swap_decoupled` and `swap_pair`. The
    newcomers end the order.
    """
    reveal = np.zeros(p.n, dtype=bool)
    reveal[start] = True
    order, sweeps = [int(x) for x in start], 0
    while order and len(order) < p.n and sweeps < (p.n if cap is None else cap):
        gain, u, v = find(p, reveal)
        sweeps += 1
        if gain <= p.tie:
            break
        reveal[u], reveal[v] = False, True
        order.remove(u)
        order.append(v)
    return order, sweeps


def increments(p: Problem, order: list[int]) -> list[float]:
    """F's increments along an order."""
    reveal = np.zeros(p.n, dtype=bool)
    gains = []
    for x in order:
        gains.append(float(p.delta(reveal)[x]))
        reveal[x] = True
    return gains


def run_practical(
    p: Problem, budget: int, seed: int, swap: Swap = "pair", swaps: int | None = None
) -> Selection:
    """P."""
    find = swap_decoupled if swap == "decoupled" else swap_pair
    start = run_greedy(p, budget, stop=p.tie)
    order, sweeps = swap_all(p, start.order, find, swaps)
    z = finish(p, order, increments(p, order), start.evaluations + sweeps * p.n)
    guide = np.zeros(p.n, dtype=bool)
    guide[z.order] = True
    y = run_sampled(p, budget, seed, guide)
    winner = y if y.value > z.value + p.tie else z
    return Selection(winner.order, winner.gains, winner.value, y.evaluations + z.evaluations)


def run_ranked(p: Problem, ranking: NDArray[np.int64], budget: int) -> Selection:
    """The first `budget` of a fixed ranking."""
    order = [int(x) for x in ranking[:budget]]
    return finish(p, order, increments(p, order), 0)


def rank(delta: Floats, tie: float) -> NDArray[np.int64]:
    """Largest first, ties to the lowest index."""
    order = np.argsort(-delta, kind="stable")
    start = 0
    for k in range(1, len(order) + 1):  # members of a tie within `tie` of its largest go by index
        if k == len(order) or delta[order[k]] < delta[order[start]] - tie:
            order[start:k].sort()
            start = k
    return order


def ranking_random(n: int, seed: int) -> NDArray[np.int64]:
    """A uniform random order: by the keys of step 0."""
    return np.argsort(step_keys(step_words(seed, 1)[0], n), kind="stable")


def solve(
    p: Problem,
    selector: str,
    budget: int,
    seed: int = 0,
    swap: Swap = "pair",
    swaps: int | None = None,
) -> Selection:
    """Any maximiser or control by name; `seed` is the number it took from its generator."""
    if selector == "greedy":
        return run_greedy(p, budget)
    if selector == "twin":
        return run_twin(p, budget)
    if selector == "static":
        return run_ranked(p, rank(p.delta(np.zeros(p.n, dtype=bool)), p.tie), budget)
    if selector == "random":
        return run_ranked(p, ranking_random(p.n, seed), budget)
    if selector == "randomized":
        return run_sampled(p, budget, seed)
    return run_practical(p, budget, seed, swap, swaps)
