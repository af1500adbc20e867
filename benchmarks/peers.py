"""Lazy greedy here against submodlib and apricot, on the objective all three can express.

The peers maximise feature-based functions, sum over i of lambda_i phi(S_i(R)), the monotone part of
the reveal objective (no target is lost when it is revealed). Here the same scan of scaled bounds
runs without costs. Neither library is a dependency of goldimask:

    pip install apricot-select scikit-learn submodlib-py
    python benchmarks/peers.py --size 1024

One process, one thread, CPU time, the minimum of interleaved rounds. Selection only: building the
peers' inputs and apricot's compilation, which every `fit` repeats, are outside the clock.
apricot has no feature weights, so it gets lambda = 1 and is compared with a run of ours that has it
too. submodlib is called below its Python class, which rescales features silently.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit

from goldimask.select.engine import Task, lay_out
from goldimask.select.kernels import GONE, margin_of, new_state, refresh
from goldimask.select.lazy import pick, rescale, sweep
from instances import instance

S0 = 0.05


@njit(nogil=True, error_model="numpy", fastmath=True)
def monotone(s, budget, eta, order):
    scale = np.float32(1)
    for step in range(budget):
        x, _ = pick(s, scale, 0.0, eta)
        order[step] = x
        s.bound[x] = GONE
        for i in range(s.support.shape[0]):
            s.support[i] += np.float64(s.at[x, i])
        refresh(s)
        s.cost[:] = 0
        top = np.float32(0)
        for i in range(s.ratio.shape[0]):
            top = max(top, s.ratio[i])
        scale *= top * np.float32(1 + 5e-7)
        if scale < 1e-6:
            scale = rescale(s, scale)


def ours(attention: np.ndarray, weights: np.ndarray, budget: int) -> Callable[[], list[int]]:
    n = len(weights)
    at, most, _ = lay_out(Task(attention, np.arange(n), weights, budget))

    def run() -> list[int]:
        s = new_state(at, weights / weights.max(), most, S0)
        sweep(s, margin_of(n))
        order = np.empty(budget, np.int64)
        monotone(s, budget, margin_of(n), order)
        return order.tolist()

    return run


def submodlib(attention: np.ndarray, weights: np.ndarray, budget: int) -> Callable[[], list[int]]:
    import submodlib_cpp  # pyright: ignore[reportMissingImports]

    n = len(weights)
    features = [[(i, float(attention[i, x]) / S0) for i in range(n) if i != x] for x in range(n)]
    kind = submodlib_cpp.FeatureBased

    def run() -> list[int]:
        f = kind(n, kind.inverse, features, n, weights.tolist())
        start = time.process_time()
        found = f.maximize("LazyGreedy", budget, False, False, 0.1, False, False, [], False)
        run.seconds = time.process_time() - start  # pyright: ignore
        return [x for x, _ in found]

    return run


def apricot(attention: np.ndarray, weights: np.ndarray, budget: int) -> Callable[[], list[int]]:
    from apricot import FeatureBasedSelection  # pyright: ignore[reportMissingImports]

    features = np.ascontiguousarray(attention.T, dtype=np.float64)

    def run() -> list[int]:
        chooser = FeatureBasedSelection(budget, concave_func=concave, optimizer="lazy")
        prepare = chooser._initialize

        def prepared(*args: Any, **options: Any) -> Any:  # compiles; selection starts after it
            found = prepare(*args, **options)
            run.start = time.process_time()  # pyright: ignore
            return found

        chooser._initialize = prepared
        ranking = chooser.fit(features).ranking.tolist()
        run.seconds = time.process_time() - run.start  # pyright: ignore
        return ranking

    return run


@njit
def concave(x):
    return x / (x + S0)


def measure(actions: dict[str, Callable[[], list[int]]], rounds: int) -> dict[str, Any]:
    best: dict[str, float] = {}
    found: dict[str, list[int]] = {}
    for _ in range(rounds):
        for name, action in actions.items():
            start = time.process_time()
            found[name] = action()
            seconds = getattr(action, "seconds", time.process_time() - start)
            best[name] = min(seconds, best.get(name, float("inf")))
    return {name: {"seconds": best[name], "order": found[name]} for name in actions}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    attention, priority = instance("real", args.size)
    ones, budget = np.ones(args.size), args.size // 2
    for maker in (ours, apricot):  # compile
        maker(*instance("real", 32), 8)()
    rows = []
    for name, maker, weights in [("submodlib", submodlib, priority), ("apricot", apricot, ones)]:
        try:
            peer = maker(attention, weights, budget)
        except ImportError as error:
            rows.append({"peer": name, "skipped": str(error)})
            continue
        result = measure({"ours": ours(attention, weights, budget), name: peer}, args.rounds)
        a, b = result["ours"], result[name]
        rows.append({
            "peer": name, "n": args.size, "budget": budget, "ours_seconds": a["seconds"],
            "peer_seconds": b["seconds"], "ratio": b["seconds"] / a["seconds"],
            "same_order": a["order"] == b["order"],
            "same_set": sorted(a["order"]) == sorted(b["order"]),
        })  # fmt: skip
    print(json.dumps({"rows": rows}, indent=2))


if __name__ == "__main__":
    main()
