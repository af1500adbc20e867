"""Intervals, paired tests, pass@k and the mean over seeds.

    Wilson:     (p + z^2/2n +- z sqrt(p(1-p)/n + z^2/4n^2)) / (1 + z^2/n),  z = 1.96 for 95 %
    pass@k:     mean over problems of 1 - C(n-c, k) / C(n, k), n samples, c of them correct
    McNemar:    exact; of the b + c problems on which two runs differ, b went one way:
                p = min(1, 2 P[X <= min(b, c)]),  X ~ Binomial(b + c, 1/2)
    bootstrap:  problems drawn with replacement, the same for both runs; percentile interval of the
                difference of the two scores
    seeds:      mean and sample standard deviation (denominator n - 1)

Three seeds carry no test: the table gives mean and deviation, and the comparison of two runs pairs
their problems.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream

Z95 = 1.959963984540054


def wilson(correct: float, n: float, z: float = Z95) -> tuple[float, float]:
    """The Wilson interval of a proportion; (0, 1) when nothing was measured."""
    if n <= 0:
        return 0.0, 1.0
    p = correct / n
    centre = p + z * z / (2 * n)
    half = z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    low = 0.0 if correct == 0 else max(0.0, (centre - half) / scale)
    high = 1.0 if correct == n else min(1.0, (centre + half) / scale)
    return low, high


def pass_at_k(counts: Sequence[tuple[int, int]], k: int) -> float:
    """The unbiased estimate from (samples, correct) per problem."""
    if not counts:
        raise GoldimaskError("pass@k: no problems")
    if k < 1 or any(n < k for n, _ in counts):
        raise GoldimaskError(
            f"pass@{k}: needs at least k samples of every problem, k >= 1; "
            f"the fewest are {min(n for n, _ in counts)}"
        )
    return sum(1 - math.comb(n - c, k) / math.comb(n, k) for n, c in counts) / len(counts)


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p-value from the two counts of discordant problems."""
    n, k = only_first + only_second, min(only_first, only_second)
    return min(1.0, 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2**n) if n else 1.0


@dataclass(frozen=True)
class Paired:
    """Second minus first on the problems both runs hold."""

    n: int
    first: float
    second: float
    difference: float
    low: float  # of the difference, 95 %, paired bootstrap over problems
    high: float
    only_first: int  # problems that only the first run solved
    only_second: int
    p: float  # exact McNemar


def paired(
    first: Sequence[tuple[float, float, bool]],
    second: Sequence[tuple[float, float, bool]],
    draws: int = 10_000,
    seed: int = 0,
) -> Paired:
    """Compare two runs; each problem is (hits, out of, solved), in the same order for both."""
    if len(first) != len(second) or not first:
        raise GoldimaskError("a paired comparison needs the same problems in both runs")
    a, b = (np.array([x[:2] for x in run], dtype=float) for run in (first, second))
    score = lambda x: x[..., 0].sum(-1) / x[..., 1].sum(-1)  # noqa: E731
    rng = Keys(seed).rng(len(first), Stream.STUDY)
    differences = []
    for start in range(0, draws, 500):  # in portions, to bound the memory
        rows = rng.integers(0, len(first), (min(500, draws - start), len(first)))
        differences.append(score(b[rows]) - score(a[rows]))
    low, high = np.quantile(np.concatenate(differences), (0.025, 0.975))
    solved = [(x[2], y[2]) for x, y in zip(first, second, strict=True)]
    losses, gains = (sum(x and not y for x, y in solved), sum(y and not x for x, y in solved))
    return Paired(
        n=len(first),
        first=float(score(a)),
        second=float(score(b)),
        difference=float(score(b) - score(a)),
        low=float(low),
        high=float(high),
        only_first=losses,
        only_second=gains,
        p=mcnemar(losses, gains),
    )


@dataclass(frozen=True)
class Spread:
    """Mean over seeds; the deviation is None for a single seed."""

    mean: float
    sd: float | None
    n: int


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation."""
    n = len(values)
    if n == 0:
        raise GoldimaskError("a mean over seeds needs at least one value")
    mean = math.fsum(values) / n
    sd = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1)) if n > 1 else None
    return Spread(mean, sd, n)


def seed_spreads(
    scores: Mapping[int, Mapping[str, float]], tasks: Sequence[str]
) -> dict[str, Spread]:
    """Per task and for the average; the average is taken within each seed first."""
    out = {t: spread([row[t] for row in scores.values()]) for t in tasks}
    return out | {
        "average": spread([sum(r[t] for t in tasks) / len(tasks) for r in scores.values()])
    }
