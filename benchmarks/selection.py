"""Speed of the maximisers: naive torch, the dense device engine, a lazy heap, the lazy host engine.

    python benchmarks/selection.py --quick

All on one thread, CPU time, the minimum of interleaved rounds, on attention-like matrices
(`instances.py`):

    naive      the plain maximisers on dense float32 torch marginals, one sweep per choice
    device     D and R, dense float64, per example of its batch (of 8 up to N = 256, else of 1)
    heap       lazy greedy with a heap (Minoux), numba float64
    host       the lazy engine; `layout_seconds` is its transposed copy of the matrix, which is not
               in `seconds`, as the others' copies are not in theirs; the ratios give both
    decoupled  P on the host with decoupled swaps instead of exact best pairs

What `same_set` compares. Up to 256 candidates: every engine with the float64 oracle. Up to `full`:
D and R of the host with the device engine, and every other engine with the host (`reference`).
Above it a dense engine would take minutes, so naive rows are the time of one sweep multiplied by
the number of sweeps (`extrapolated`; for twin and practical that number is a lower bound), and D is
compared with the heap. What is compared with nothing has a null. Above `full` D and R are audited
instead: at `audited` steps of their order, all marginals are computed densely in float64 and the
choice of that step is made again (`audit` says whether it was the same each time).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from typing import Annotated, Any

import numpy as np
import torch
import typer
from numba import njit
from rich.console import Group

from goldimask.console import emit, progress, say, table
from goldimask.errors import GoldimaskError
from goldimask.objective import Support
from goldimask.processes import torch_threads
from goldimask.select import oracle
from goldimask.select.base import Selection
from goldimask.select.dense import DENSE, run_dense
from goldimask.select.draws import step_words
from goldimask.select.engine import Rules, Task, lay_out, maximise
from goldimask.select.kernels import delta64, new_state
from instances import instance

SELECTORS = ("greedy", "randomized", "twin", "practical")
PHI = Support()
SEED = 1
ORACLE = 256  # candidates up to which the oracle is the reference
AUDITED = 12  # steps
Row = dict[str, Any]


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
    return budget + (2 * len(found.order) if selector == "practical" else 0)


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
    sweep = None if n <= full else dense_sweeps(naive, rounds)
    for share in shares:
        budget = max(1, round(n * share))
        for selector in SELECTORS:
            rows = bench_case(attention, priority, budget, selector, naive, rounds, sweep)
            out += [{"selector": selector, "n": n, "budget": budget, **row} for row in rows]
            advance()
    return out


def dense_sweeps(naive: oracle.Problem, rounds: int) -> float:
    """Seconds of one naive sweep of all marginals."""
    reveal = np.zeros(naive.n, dtype=bool)
    reveal[::3] = True
    return min(seconds_of(lambda: naive.delta(reveal))[0] for _ in range(max(rounds, 3)))


def bench_case(
    attention, priority, budget: int, selector: str, naive, rounds: int, sweep: float | None
) -> list[Row]:
    n = len(priority)
    task = Task(attention, np.arange(n), priority, budget, SEED)
    rules, batch = Rules(selector, PHI), 8 if n <= ORACLE else 1
    many, lams = torch.from_numpy(attention).expand(batch, -1, -1), priority[None].repeat(batch, 0)
    everyone = np.ones((batch, n), dtype=bool)
    layout = lay_out(task)
    actions: dict[str, Callable[[], Any]] = {"host": lambda: maximise(task, rules, layout)}
    if selector == "greedy":
        actions["heap"] = lambda: heap(layout, priority, budget)
    if sweep is None:
        actions["naive"] = lambda: oracle.solve(naive, selector, budget, SEED)
        if selector in DENSE:
            actions["device"] = lambda: run_dense(
                many, lams, np.full(batch, budget), everyone, [SEED] * batch, selector, PHI
            )[0]
    if selector == "practical":
        decoupled = Rules(selector, PHI, "decoupled")
        actions["decoupled"] = lambda: maximise(task, decoupled, layout)
    times: dict[str, list[float]] = {name: [] for name in actions}
    found: dict[str, Selection] = {}
    laid = [seconds_of(lambda: lay_out(task))[0] for _ in range(rounds)]
    for turn in range(rounds):
        for name, action in actions.items():
            slow = name in ("naive", "device")
            if not slow or turn < (2 if n <= ORACLE else 1):  # the slow ones are steady enough
                seconds, found[name] = seconds_of(action)
                times[name].append(seconds / (batch if name == "device" else 1))
    fast = found["host"]
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
    if sweep is not None:
        count = sweeps_of(selector, budget, fast)
        rows.append({
            "engine": "naive", "seconds": sweep * count, "evaluations": n * count,
            "same_set": None, "reference": None, "extrapolated": True,
        })  # fmt: skip
    return rows


def compared(name: str, found: dict[str, Selection]) -> Row:
    """Whether an engine's set is that of another engine, and which; null if there is no other."""
    if name == "decoupled":  # another local search, whose set may be another
        return {"same_set": None, "reference": None}
    if "oracle" in found:
        reference = "oracle"
    elif name != "host":
        reference = "host"
    else:
        reference = next((other for other in ("device", "heap") if other in found), None)
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


@njit(error_model="numpy", fastmath=True)
def run_heap(s, budget, order, gains):
    """D from an empty state, by a heap of stale marginals: the top one is evaluated until it stays.

    Equal marginals leave the heap by index; those that differ by rounding are not ties. Returns the
    number of evaluations.
    """
    heap = [(-delta64(s, x), x, 0) for x in range(s.at.shape[0])]
    evaluations = len(heap)
    heapify(heap)
    gone = (1e300, -1, 0)
    for step in range(budget):
        while heap[0][2] != step:
            x = heap[0][1]
            heapreplace(heap, (-delta64(s, x), x, step))
            evaluations += 1
        x = heap[0][1]
        order[step] = x
        gains[step] = -heap[0][0]
        heapreplace(heap, gone)
        s.mass[x] = 0.0
        for i in range(s.support.shape[0]):
            s.support[i] += np.float64(s.at[x, i])
    return evaluations


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
        d = at[n, budget, "greedy", "host"]
        row: Row = {"n": n, "budget": budget}
        for engine in ("naive", "heap"):
            row[f"{engine}_over_host"] = at[n, budget, "greedy", engine] / d
        with_copy = d + laid[n, budget]
        row["naive_over_host_and_layout"] = at[n, budget, "greedy", "naive"] / with_copy
        for selector in SELECTORS[1:]:
            row[f"{selector}_over_greedy"] = at[n, budget, selector, "host"] / d
        p = at[n, budget, "practical", "host"]
        row["naive_over_practical"] = at[n, budget, "practical", "naive"] / p
        row["practical_over_decoupled"] = p / at[n, budget, "practical", "decoupled"]
        out.append(row)
    return out


def measure(
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


def numbers(text: str, kind: type, option: str) -> list[Any]:
    try:
        found = [kind(x) for x in text.split(",")]
    except ValueError as error:
        raise GoldimaskError(f"{option}: expected numbers like 64,256, got '{text}'") from error
    if min(found) <= 0 or (kind is float and max(found) > 1):
        raise GoldimaskError(f"{option}: '{text}' must be positive, and shares at most 1")
    return found


def tables(result: dict[str, Any]) -> Any:
    rows = [
        (
            r["selector"], r["engine"], r["n"], r["budget"],
            f"{'~' if r['extrapolated'] else ''}{r['seconds'] * 1e3:.3g}", r["evaluations"],
            {True: "yes", False: "NO", None: "-"}[r["same_set"]],
            r["reference"] or (f"audit: {r['audit']}" if "audit" in r else "-"),
        )
        for r in result["rows"]
    ]  # fmt: skip
    columns = ("selector", "engine", "N", "B", "ms", "evaluations", "same set", "as")
    names = list(result["ratios"][0])
    return Group(
        table(f"Selection, {result['family']} attention", columns, rows, left=2),
        table(
            "Ratios of CPU time",
            [name.replace("_over_", " / ") for name in names],
            [[r[name] for name in names] for r in result["ratios"]],
            left=0,
        ),
    )


def main(
    sizes: Annotated[str, typer.Option(help="Candidates, by commas.")] = "64,256,1024,4096",
    shares: Annotated[str, typer.Option(help="Budgets as shares of N.")] = "0.25,0.5,0.75",
    family: Annotated[str, typer.Option(help="real, sink, peaked or flat.")] = "real",
    rounds: Annotated[int, typer.Option(min=1, help="The minimum time counts.")] = 5,
    full: Annotated[
        int, typer.Option(help="Candidates up to which the dense engines run to the end.")
    ] = 1024,
    quick: Annotated[bool, typer.Option("--quick", help="N = 64, 256, 1024; B = N/2.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """CPU time of every maximiser and engine on one thread, evaluations counted, sets compared."""
    counts, parts = numbers(sizes, int, "--sizes"), numbers(shares, float, "--shares")
    if quick:
        counts, parts, rounds, full = [64, 256, 1024], [0.5], min(rounds, 3), min(full, 256)
    with progress("selection", len(counts) * len(parts) * len(SELECTORS)) as advance:
        result = measure(counts, parts, family, rounds, full, advance)
    if not as_json:
        say("CPU seconds on one thread, the minimum of interleaved rounds; ~ extrapolated.")
    emit(result, as_json, tables(result))


if __name__ == "__main__":
    try:
        typer.run(main)
    except GoldimaskError as error:
        raise SystemExit(f"error: {error}") from None
