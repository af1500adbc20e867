"""Speed of the maximisers: naive torch, batched torch, a lazy heap, and the lazy numba engine.

All on one thread, CPU time, the minimum of interleaved rounds, on attention-like matrices:

    real     softmax of low-rank + local logits and a sink outside the candidates, heads averaged
    sink     a few popular keys      peaked   nearly sparse      flat   nearly uniform

    naive    the plain maximisers on dense float32 torch marginals, one sweep per choice
    torch    the batched engine, float64, per example of its batch (of 8 up to N = 256, else of 1)
    heap     lazy greedy with a heap (Minoux), numba float64
    numba    the lazy engine; `layout_seconds` is its transposed copy of the matrix, which is not in
             `seconds`, as the others' copies are not in theirs; the ratios give both

What `same_set` compares. Up to 256 candidates: every engine with the float64 oracle. Up to `full`:
numba with the batched engine, and every other engine with numba (`reference`). Above it a dense
engine would take minutes, so naive and torch rows are the time of one sweep multiplied by the
number of sweeps (`extrapolated`; for twin and practical that number is a lower bound): D is
compared with the heap, and nothing is compared for the others, whose `same_set` is null. There D
and R are audited instead: at `audited` steps of their order, all marginals are computed densely in
float64 and the choice of that step is made again (`audit` says whether it was the same each time).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from goldimask.errors import GoldimaskError, nearest
from goldimask.objective import Priority, Support
from goldimask.processes import torch_threads
from goldimask.select import oracle
from goldimask.select.base import Selection
from goldimask.select.batched import prepare, run_batch
from goldimask.select.draws import step_words
from goldimask.select.engine import Rules, Task, lay_out, maximise
from goldimask.select.heap import run_heap
from goldimask.select.kernels import new_state

FAMILIES = ("real", "sink", "peaked", "flat")
SELECTORS = ("greedy", "randomized", "twin", "practical")
PHI = Support()
SEED = 1
ORACLE = 256  # candidates up to which the oracle is the reference
AUDITED = 12  # steps
Row = dict[str, Any]


def instance(family: str, n: int, seed: int = 0, heads: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """(attention [n, n] float32 with rows summing to about 0.42, priority [n])."""
    if family not in FAMILIES:
        raise GoldimaskError(f"--family: unknown '{family}'; {nearest(family, FAMILIES)}")
    rng = np.random.default_rng(seed)
    total = np.zeros((n, n), dtype=np.float32)
    for _ in range(heads if family == "real" else 1):
        weight = np.exp(logits(family, n, rng))
        mass = weight.sum(1, keepdims=True)
        outside = 1.4 * (mass.mean() if family == "real" else mass)  # keys that are no candidates
        total += weight / (mass + outside)
    total /= heads if family == "real" else 1
    np.fill_diagonal(total, 0.0)
    kind = rng.integers(0, 3, n)
    p = np.choose(kind, [rng.beta(1, 8, n), rng.beta(2, 2, n), rng.beta(8, 1, n)])
    return total, Priority()(p)


def logits(family: str, n: int, rng: np.random.Generator) -> np.ndarray:
    if family == "flat":
        return rng.normal(0.0, 0.05, (n, n)).astype(np.float32)
    if family == "peaked":
        return rng.normal(0.0, 4.0, (n, n)).astype(np.float32)
    if family == "sink":
        return (rng.normal(0.0, 2.0, n) + rng.normal(0.0, 0.5, (n, n))).astype(np.float32)
    query, key = rng.normal(size=(2, n, 8)).astype(np.float32)
    apart = np.abs(np.subtract.outer(np.arange(n, dtype=np.float32), np.arange(n)))
    band = 3.0 * np.exp(-apart / np.float32(rng.uniform(2.0, 20.0)))
    return query @ key.T * np.float32(0.35) + band + rng.normal(0.0, 0.5, n).astype(np.float32)


def seconds_of(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    found = action()
    return time.process_time() - start, found


def naive_problem(attention: np.ndarray, priority: np.ndarray) -> oracle.Problem:
    """Marginals as one would write them in torch: float32, all candidates, every step."""
    at = torch.from_numpy(np.ascontiguousarray(attention.T))
    lam = torch.from_numpy(priority.astype(np.float32))
    work = torch.empty_like(at)  # as fast as it gets: no allocation in a sweep

    def delta(reveal: np.ndarray) -> np.ndarray:
        r = torch.from_numpy(reveal)
        total = r.float() @ at + PHI.s0
        rest = lam.masked_fill(r, 0.0)
        gain = torch.div(at, torch.add(at, total, out=work), out=work) @ (rest * PHI.s0 / total)
        return (gain - rest * (1 - PHI.s0 / total)).masked_fill_(r, -torch.inf).double().numpy()

    exact = oracle.problem(attention, priority, PHI)
    return oracle.Problem(exact.attention, exact.priority, PHI, delta, exact.tie)


def sweeps_of(selector: str, budget: int, found: Selection) -> int:
    """Dense sweeps a naive maximiser makes (at least, for twin and practical)."""
    if selector == "twin":
        return 4 * len(found.order)
    return budget + (len(found.order) if selector == "practical" else 0)


def same(a: Selection, b: Selection) -> bool:
    return set(a.order.tolist()) == set(b.order.tolist())


def bench_size(
    family: str,
    n: int,
    shares: Sequence[float],
    rounds: int,
    full: int,
    advance: Callable[[], None],
) -> list[Row]:
    attention, priority = instance(family, n)
    naive = naive_problem(attention, priority)
    out = []
    sweep = None if n <= full else dense_sweeps(attention, priority, naive, rounds)
    for share in shares:
        budget = max(1, round(n * share))
        for selector in SELECTORS:
            rows = bench_case(attention, priority, budget, selector, naive, rounds, sweep)
            out += [{"selector": selector, "n": n, "budget": budget, **row} for row in rows]
            advance()
    return out


def dense_sweeps(attention, priority, naive, rounds: int) -> dict[str, float]:
    """Seconds of one sweep of all marginals, naive and batched."""
    n = len(priority)
    reveal = np.zeros(n, dtype=bool)
    reveal[::3] = True
    one = np.ones((1, n), dtype=bool)
    p = prepare(torch.from_numpy(attention)[None], priority[None], np.array([1]), one, [0], PHI)
    mask = torch.from_numpy(reveal)[None]
    support = p.received(mask)
    times: dict[str, list[float]] = {"naive": [], "torch": []}
    for _ in range(max(rounds, 3)):
        times["naive"].append(seconds_of(lambda: naive.delta(reveal))[0])
        times["torch"].append(seconds_of(lambda: p.delta(mask, support))[0])
    return {name: min(t) for name, t in times.items()}


def bench_case(
    attention, priority, budget: int, selector: str, naive, rounds: int, sweep: dict | None
) -> list[Row]:
    n = len(priority)
    task = Task(attention, np.arange(n), priority, budget, SEED)
    rules, batch = Rules(selector, PHI), 8 if n <= ORACLE else 1
    many, lams = torch.from_numpy(attention).expand(batch, -1, -1), priority[None].repeat(batch, 0)
    everyone = np.ones((batch, n), dtype=bool)
    layout = lay_out(task)
    actions: dict[str, Callable[[], Any]] = {"numba": lambda: maximise(task, rules, layout)}
    if selector == "greedy":
        actions["heap"] = lambda: heap(layout, priority, budget)
    if sweep is None:
        actions["naive"] = lambda: oracle.solve(naive, selector, budget, SEED)
        actions["torch"] = lambda: run_batch(
            many, lams, np.full(batch, budget), everyone, [SEED] * batch, selector, PHI
        )[0]
    times: dict[str, list[float]] = {name: [] for name in actions}
    found: dict[str, Selection] = {}
    laid = [seconds_of(lambda: lay_out(task))[0] for _ in range(rounds)]
    for turn in range(rounds):
        for name, action in actions.items():
            slow = name not in ("numba", "heap")
            if not slow or turn < (2 if n <= ORACLE else 1):  # the slow ones are steady enough
                seconds, found[name] = seconds_of(action)
                times[name].append(seconds / (batch if name == "torch" else 1))
    fast = found["numba"]
    if n <= ORACLE:
        found["oracle"] = oracle.solve(
            oracle.problem(attention, priority, PHI), selector, budget, SEED
        )
    rows = [
        {
            "engine": name, "seconds": min(times[name]), "evaluations": found[name].evaluations,
            **compared(name, found), "extrapolated": False,
        }
        for name in actions
    ]  # fmt: skip
    rows[0]["layout_seconds"] = min(laid)
    if sweep and selector in ("greedy", "randomized"):
        rows[0] |= audit(attention, priority, fast, budget, selector)
    for name, seconds in (sweep or {}).items():
        count = sweeps_of(selector, budget, fast)
        rows.append({
            "engine": name, "seconds": seconds * count, "evaluations": n * count,
            "same_set": None, "reference": None, "extrapolated": True,
        })  # fmt: skip
    return rows


def compared(name: str, found: dict[str, Selection]) -> Row:
    """Whether an engine's set is that of another engine, and which; null if there is no other."""
    if "oracle" in found:
        reference = "oracle"
    elif name != "numba":
        reference = "numba"
    else:
        reference = next((other for other in ("torch", "heap") if other in found), None)
    equal = None if reference is None else same(found[name], found[reference])
    return {"same_set": equal, "reference": reference}


def audit(
    attention: np.ndarray, priority: np.ndarray, found: Selection, budget: int, selector: str
) -> Row:
    """Make the choice again at some steps of an order, from dense float64 marginals."""
    p = oracle.problem(attention, priority, PHI)
    words = step_words(SEED, budget)
    steps = np.unique(np.linspace(0, len(found.order) - 1, AUDITED).astype(int))
    right = True
    for step in steps:
        reveal = np.zeros(p.n, dtype=bool)
        reveal[found.order[:step]] = True
        delta = p.delta(reveal)
        if selector == "greedy":
            choice = oracle.best(delta, p.tie)
        else:
            choice = oracle.draw(oracle.top(delta, budget, p.tie), words[step])
        right &= choice == int(found.order[step])
    return {"audited": len(steps), "audit": bool(right)}


def heap(layout, priority: np.ndarray, budget: int) -> Selection:
    at, most, _ = layout
    largest = float(priority.max()) or 1.0
    order, gains = np.empty(budget, np.int64), np.empty(budget)
    evaluations = run_heap(new_state(at, priority / largest, most, PHI.s0), budget, order, gains)
    return Selection(order, gains * largest, float(gains.sum() * largest), evaluations)


def ratios(rows: Sequence[Row]) -> list[Row]:
    """Per size and budget: how much faster D is than naive and heap, and R, T, P relative to D."""
    at = {(r["n"], r["budget"], r["selector"], r["engine"]): r["seconds"] for r in rows}
    laid = {(r["n"], r["budget"]): r["layout_seconds"] for r in rows if "layout_seconds" in r}
    out = []
    for n, budget in dict.fromkeys((r["n"], r["budget"]) for r in rows):
        d = at[n, budget, "greedy", "numba"]
        row: Row = {"n": n, "budget": budget}
        for engine in ("naive", "torch", "heap"):
            row[f"{engine}_over_numba"] = at[n, budget, "greedy", engine] / d
        with_copy = d + laid[n, budget]
        row["naive_over_numba_and_layout"] = at[n, budget, "greedy", "naive"] / with_copy
        for selector in SELECTORS[1:]:
            row[f"{selector}_over_greedy"] = at[n, budget, selector, "numba"] / d
        out.append(row)
    return out


def bench_select(
    sizes: Sequence[int] = (64, 256, 1024, 4096),
    shares: Sequence[float] = (0.25, 0.5, 0.75),
    family: str = "real",
    rounds: int = 5,
    full: int = 1024,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Rows for every size, budget, selector and engine, and the ratios between them."""
    with torch_threads():
        warm = instance(family, 32)
        for selector in SELECTORS:  # compile before the clock runs
            bench_case(*warm, 8, selector, naive_problem(*warm), 1, None)
        rows = []
        for n in sizes:
            rows += bench_size(
                family, n, shares, rounds if n < 2048 else min(rounds, 3), full, advance
            )
    return {"family": family, "rounds": rounds, "rows": rows, "ratios": ratios(rows)}
