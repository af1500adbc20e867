"""The numba engine: one example in, one `Selection` out; several examples on several threads.

Saturating support runs on the lazy kernels. Linear support needs none of them: F is then a directed
cut, the marginals after a change of the set follow in O(N) from those before (`linear.py`), and the
plain maximisers of `oracle.py` are fast as they stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from goldimask.errors import GoldimaskError
from goldimask.objective import Support
from goldimask.select import oracle
from goldimask.select.base import Selection
from goldimask.select.draws import step_words
from goldimask.select.kernels import (
    Float32,
    State,
    columns,
    margin_of,
    new_state,
    shape_of,
    value64,
)
from goldimask.select.lazy import follow, marginals64, run_greedy, run_twin, sweep
from goldimask.select.linear import linear_problem
from goldimask.select.sampled import Brackets, measure_all, new_brackets, run_sampled
from goldimask.select.swaps import run_swaps

NEVER = -1e300
SUBTRACTED = 1e-5  # relative error of sums that targets are subtracted from, up to 128 times
WORTH_THREADS = 2_000_000  # entries of attention in a batch below which threads cost more than save


@dataclass(frozen=True)
class Task:
    """One example. `rows` are the columns of `attention` that are candidates, in order."""

    attention: Float32  # [>= N, any], contiguous, writeable; row n belongs to candidate n
    rows: NDArray[np.int64]  # [N]
    priority: NDArray[np.float64]  # [N]
    budget: int
    seed: int = 0  # from `draws.draw_seed`, for selectors that draw


@dataclass(frozen=True)
class Rules:
    """What is the same for every example of a batch."""

    selector: str
    support: Support
    swap: oracle.Swap = "pair"
    swaps: int | None = None


def run(tasks: Sequence[Task], rules: Rules, threads: int = 1) -> list[Selection]:
    """Select for every example; the kernels run without the GIL."""
    work = sum(len(t.rows) ** 2 for t in tasks)
    if threads > 1 and len(tasks) > 1 and work > WORTH_THREADS:
        return list(_pool(threads).map(lambda t: select(t, rules), tasks))
    return [select(t, rules) for t in tasks]


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(threads, thread_name_prefix="goldimask-select")


def square(task: Task) -> Float32:
    """[N, N] attention among the candidates."""
    return task.attention[: len(task.rows)][:, task.rows]


def select(task: Task, rules: Rules) -> Selection:
    """One example on the fast path."""
    n = len(task.rows)
    if n == 0 or task.budget == 0:
        return Selection(np.zeros(0, np.int64), np.zeros(0), 0.0)
    if rules.support.kind != "saturating" or rules.selector == "random":
        p = linear_problem(square(task), task.priority, rules.support)
        return oracle.solve(p, rules.selector, task.budget, task.seed, rules.swap, rules.swaps)
    return maximise(task, rules, lay_out(task))


def lay_out(task: Task) -> tuple[Float32, Float32, Float32]:
    """Columns of the candidates [N, padded], and the largest and total attention of each target."""
    n, blocks, size = shape_of(len(task.rows))
    at = np.zeros((n, blocks * size), dtype=np.float32)
    most, received = np.zeros((2, blocks * size), dtype=np.float32)
    if not columns(task.attention, task.rows, at, most, received):
        raise GoldimaskError("attention: an entry among the candidates is negative or not finite")
    return at, most, received


def maximise(task: Task, rules: Rules, layout: tuple[Float32, Float32, Float32]) -> Selection:
    """Run a maximiser on a laid-out example with saturating support."""
    at, most, received = layout
    largest = float(task.priority.max()) or 1.0
    empty = new_state(at, task.priority / largest, most, rules.support.s0)
    found = _MAXIMISERS[rules.selector](empty, task, rules, received)
    return Selection(found.order, found.gains * largest, found.value * largest, found.evaluations)


def _tie(s: State, received: Float32) -> float:
    """As `oracle.tie_width`, from a swept state; it needs no more than a few digits."""
    cost = float((s.lam32 * (received / (received + np.float32(s.s0)))).max())
    return oracle.TIE * max(float(s.bound.max()), cost)


def _greedy(s: State, task: Task, rules: Rules, received: Float32) -> Selection:
    eta, order, gains = margin_of(len(s.at)), np.empty(task.budget, np.int64), np.empty(task.budget)
    sweep(s, eta)
    count, evaluations = run_greedy(s, task.budget, NEVER, _tie(s, received), eta, order, gains)
    return Selection(order[:count], gains[:count], value64(s), evaluations)


def _twin(s: State, task: Task, rules: Rules, received: Float32) -> Selection:
    n, budget = len(s.at), task.budget
    eta, order, gains = margin_of(n), np.empty((2, budget), np.int64), np.empty((2, budget))
    other = new_state(s.at, s.lam[:n], s.most, s.s0)
    sweep(s, eta)
    tie = _tie(s, received)
    first, second, evaluations = run_twin(s, other, budget, tie, eta, order, gains)
    value, rival = value64(s), value64(other)
    k, count = (1, second) if rival > value + tie else (0, first)
    return Selection(order[k, :count], gains[k, :count], max(value, rival), evaluations)


def _randomized(s: State, task: Task, rules: Rules, received: Float32) -> Selection:
    n, brackets = len(s.at), new_brackets(s, task.attention, task.rows)
    measure_all(s, brackets, SUBTRACTED + margin_of(n))
    s.bound[:n] = brackets.at_most[:n]
    found = _sampled(s, brackets, task, _tie(s, received), np.zeros(n, np.bool_), False)
    return replace(found, evaluations=found.evaluations + n)


def _sampled(
    s: State, brackets: Brackets, task: Task, tie: float, guide: NDArray[np.bool_],
    second_stage: bool,
) -> Selection:  # fmt: skip
    budget = task.budget
    order, gains = np.empty(budget, np.int64), np.empty(budget)
    guided = oracle.guided_steps(budget) if second_stage else 0
    count, evaluations = run_sampled(
        s, brackets, budget, step_words(task.seed, budget), guide, guided, second_stage,
        not second_stage, tie, SUBTRACTED + margin_of(len(s.at)), order, gains,
    )  # fmt: skip
    return Selection(order[:count], gains[:count], value64(s), evaluations)


def _practical(s: State, task: Task, rules: Rules, received: Float32) -> Selection:
    n, budget, eta = len(s.at), task.budget, margin_of(len(s.at))
    order, gains = np.empty(budget, np.int64), np.empty(budget)
    fresh = new_state(s.at, s.lam[:n], s.most, s.s0)
    sweep(s, eta)
    tie = _tie(s, received)
    count, evaluations = run_greedy(s, budget, tie, tie, eta, order, gains)
    order, cap = order[:count], n if rules.swaps is None else rules.swaps
    swaps, pairs = run_swaps(
        s, task.attention, task.rows, order, count, cap, rules.swap == "pair", tie, eta
    )
    gains = _increments(s, order) if swaps else gains[:count]
    z = Selection(order, gains, value64(s), evaluations + (swaps + 1) * n + pairs)
    guide = np.zeros(n, dtype=np.bool_)
    guide[z.order] = True
    y = _sampled(fresh, new_brackets(fresh, task.attention, task.rows), task, tie, guide, True)
    best = y if y.value > z.value + tie else z
    return Selection(best.order, best.gains, best.value, y.evaluations + z.evaluations)


def _static(s: State, task: Task, rules: Rules, received: Float32) -> Selection:
    n = len(s.at)
    sweep(s, margin_of(n))
    tie = _tie(s, received)
    first = np.empty(n)
    marginals64(s, first)
    order = oracle.rank(first, tie)[: task.budget].copy()
    gains = np.empty(len(order))
    follow(s, order, gains)
    return Selection(order, gains, value64(s), n)


def _increments(s: State, order: NDArray[np.int64]) -> NDArray[np.float64]:
    """F's increments along an order, from the empty set; leaves the state at the end of it."""
    fresh = new_state(s.at, s.lam[: len(s.at)], s.most, s.s0)
    gains = np.empty(len(order))
    follow(fresh, order, gains)
    s.support[:] = fresh.support
    s.mass[:] = fresh.mass
    return gains


_MAXIMISERS = {
    "greedy": _greedy,
    "randomized": _randomized,
    "twin": _twin,
    "practical": _practical,
    "static": _static,
}
