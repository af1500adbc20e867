"""How good the maximisers are: against the optimum by brute force, and against each other.

    python benchmarks/quality.py

First table: mean (minimum) over instances of F / optimum, N = 12, the optimum over sets of exactly
B for greedy and randomized and of at most B for twin and practical. Randomized: mean of ten seeds.
Second table: F relative to greedy, and the share of greedy's reveals with a negative marginal.
"""

from __future__ import annotations

import argparse

import numpy as np

from goldimask.objective import Support
from goldimask.select import select_reveal
from instances import FAMILIES, instance
from selection import SELECTORS

PHI = Support()


def all_values(attention: np.ndarray, priority: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(F, |R|) of every subset."""
    n = len(priority)
    masks = (np.arange(2**n)[:, None] >> np.arange(n)) & 1
    received = masks @ attention.T.astype(np.float64)
    return ((1 - masks) * priority * PHI(received)).sum(1), masks.sum(1)


def against_optimum(instances: int, n: int) -> None:
    print(f"F / optimum, N = {n}, mean (min) of {instances} instances")
    print("family, B".ljust(14) + "".join(name.rjust(16) for name in SELECTORS))
    for family in FAMILIES:
        for budget in (n // 4, n // 2, 3 * n // 4):
            reached: dict[str, list[float]] = {name: [] for name in SELECTORS}
            for seed in range(instances):
                attention, priority = instance(family, n, seed)
                values, sizes = all_values(attention, priority)
                exact, free = values[sizes == budget].max(), values[sizes <= budget].max()
                for name in SELECTORS:
                    found = [
                        select_reveal(
                            attention, priority, budget, name, rng=np.random.default_rng(k)
                        ).value
                        for k in range(10 if name == "randomized" else 1)
                    ]
                    best = exact if name in ("greedy", "randomized") else free
                    reached[name].append(float(np.mean(found)) / best)
            cells = "".join(f"{np.mean(v):.3f} ({min(v):.3f})".rjust(16) for v in reached.values())
            print(f"{family}, {budget}".ljust(14) + cells)


def against_greedy(n: int) -> None:
    names = ("randomized", "twin", "practical", "static", "random")
    print(f"\nF / greedy's F, N = {n}")
    print("family, B".ljust(14) + "".join(x.rjust(12) for x in (*names, "negative")))
    for family in FAMILIES:
        attention, priority = instance(family, n)
        for budget in (n // 4, n // 2, 3 * n // 4):
            greedy = select_reveal(attention, priority, budget)
            cells = [
                select_reveal(attention, priority, budget, name, rng=np.random.default_rng(0)).value
                / greedy.value
                for name in names
            ]
            shown = [*cells, np.mean(greedy.gains < 0)]
            print(f"{family}, {budget}".ljust(14) + "".join(f"{x:.3f}".rjust(12) for x in shown))


def main() -> None:
    parser = argparse.ArgumentParser(description="Quality of the maximisers.")
    parser.add_argument("--instances", type=int, default=30)
    parser.add_argument("--size", type=int, default=1024)
    args = parser.parse_args()
    against_optimum(args.instances, 12)
    against_greedy(args.size)


if __name__ == "__main__":
    main()
