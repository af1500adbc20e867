"""Outcomes in, numbers out: scores, lengths, seeds, pairs of runs, steps at equal thresholds.

    Wilson:     interval of a proportion, 95 % (scipy's)
    pass@k:     mean over problems of 1 - C(n-c, k) / C(n, k), n samples, c of them correct
    seeds:      mean and sample standard deviation (denominator n - 1)
    paired:     two runs on the answers both gave: bootstrap interval of the difference
                (`goldimask.bootstrap`), and McNemar's exact test: of the b + c answers that one of
                them alone has right, b went one way; two-sided binomial with p = 1/2 (scipy's)
    reduction:  1 - steps / steps(most accurate baseline), at each threshold (paper, section
                "Accuracy and Parallel-Decoding Cost"); it compares iterations, not seconds

Three seeds carry no test: tables give mean and deviation, and what compares two runs pairs their
problems. The published tables take, per task, the best of the lengths 128, 256 and 512. That choice
is made on the test data and flatters every method; the fixed lengths beside it are not selected.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from goldimask.bootstrap import draw, drawn, grid_of, interval, problems_of
from goldimask.errors import GoldimaskError
from goldimask.records import Decoding, Outcome

SELECTED = "best length per task, selected on the test data"
FIXED = "fixed length per task, not selected"


# --- scores ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Score:
    """One task at one length, sampling seed and way of decoding."""

    task: str
    length: int
    seed: int
    decoding: Decoding
    n: int
    correct: int
    accuracy: float  # the task's headline metric; of partial credits where there are any
    low: float  # Wilson, 95 %
    high: float
    solved: float  # share of answers that are right as a whole
    steps: float  # mean calls of the model
    unparsable: int
    seconds: float  # per answer
    protocol: str
    version: str


def scores(outcomes: Iterable[Outcome]) -> list[Score]:
    """One per task, length, seed and way of decoding, in order of appearance."""
    groups: dict[tuple[str, int, int, str], list[Outcome]] = {}
    for o in outcomes:
        groups.setdefault((o.task, o.length, o.seed, o.decoding.label), []).append(o)
    return [score(group) for group in groups.values()]


def score(group: Sequence[Outcome]) -> Score:
    """The figures of one group of outcomes."""
    first, n = group[0], len(group)
    hits, of = (math.fsum(o.credit[i] for o in group) for i in (0, 1))
    correct = sum(o.correct for o in group)
    low, high = wilson(hits, of)
    return Score(
        task=first.task,
        length=first.length,
        seed=first.seed,
        decoding=first.decoding,
        n=n,
        correct=correct,
        accuracy=hits / of,
        low=low,
        high=high,
        solved=correct / n,
        steps=sum(o.steps for o in group) / n,
        unparsable=sum(o.extracted is None for o in group),
        seconds=sum(o.seconds for o in group) / n,
        protocol=first.protocol,
        version=first.version,
    )


def by_decoding(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Outcomes per way of decoding, by its label, in order of appearance."""
    found: dict[str, list[Outcome]] = {}
    for o in outcomes:
        found.setdefault(o.decoding.label, []).append(o)
    return found


def wilson(correct: float, n: float) -> tuple[float, float]:
    """The Wilson interval of a proportion; (0, 1) when nothing was measured."""
    from scipy.stats import binomtest

    if n <= 0:
        return 0.0, 1.0
    found = binomtest(round(correct), round(n)).proportion_ci(method="wilson")
    return float(found.low), float(found.high)


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p-value from the two counts of discordant problems."""
    from scipy.stats import binomtest

    n = only_first + only_second
    return float(binomtest(only_first, n).pvalue) if n else 1.0


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


# --- which length counts --------------------------------------------------------------------------


def mean_by_length(results: Iterable[Score]) -> dict[str, dict[int, float]]:
    """Accuracy per task and length, the mean over sampling seeds."""
    values: dict[str, dict[int, list[float]]] = {}
    for r in results:
        values.setdefault(r.task, {}).setdefault(r.length, []).append(r.accuracy)
    return {t: {n: sum(v) / len(v) for n, v in rows.items()} for t, rows in values.items()}


def best_lengths(results: Iterable[Score]) -> dict[str, tuple[int, float]]:
    """Per task the length with the highest accuracy, the shortest of equals. Selected on test."""
    return {
        task: max(rows.items(), key=lambda x: (x[1], -x[0]))
        for task, rows in mean_by_length(results).items()
    }


def fixed_lengths(
    results: Iterable[Score], own: Callable[[str], int]
) -> dict[str, tuple[int, float]]:
    """Per task its `own` fixed length, where it was run; a single length is the fixed one."""
    chosen = {}
    for task, rows in mean_by_length(results).items():
        length = own(task) if len(rows) > 1 else next(iter(rows))
        if length in rows:
            chosen[task] = (length, rows[length])
    return chosen


def chosen_lengths(
    results: Sequence[Score], length: str, own: Callable[[str], int]
) -> dict[str, tuple[int, float]]:
    """Per task (length, accuracy) at the `best` length, its `fixed` one, or a given number."""
    if length == "best":
        return best_lengths(results)
    if length == "fixed":
        return fixed_lengths(results, own)
    if not length.isdigit():
        raise GoldimaskError(f"--length: expected best, fixed or a number, got '{length}'")
    n = int(length)
    return {t: (n, rows[n]) for t, rows in mean_by_length(results).items() if n in rows}


# --- over seeds -----------------------------------------------------------------------------------


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
    runs: Mapping[int, Mapping[str, float]], tasks: Sequence[str]
) -> dict[str, Spread]:
    """Per task and for the average; the average is taken within each seed first."""
    out = {t: spread([row[t] for row in runs.values()]) for t in tasks}
    return out | {"average": spread([sum(r[t] for t in tasks) / len(tasks) for r in runs.values()])}


# --- two runs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paired:
    """Second minus first on the answers both runs gave."""

    n: int
    first: float
    second: float
    difference: float
    low: float  # of the difference, 95 %, bootstrap over problems and sampling seeds
    high: float
    only_first: int  # answers that only the first run had right
    only_second: int
    p: float  # exact McNemar
    unpaired: int  # answers that only one of them gave


def paired(first: Sequence[Outcome], second: Sequence[Outcome]) -> Paired:
    """Compare two runs on one task at one length and way of decoding."""
    runs = [{(o.item, o.seed): o for o in run} for run in (first, second)]
    shared = [key for key in runs[0] if key in runs[1]]
    if not shared:
        raise GoldimaskError("a paired comparison needs answers to the same problems in both runs")
    if len({(o.task, o.length) for o in (*first, *second)}) > 1:
        raise GoldimaskError("a paired comparison looks at one task and length")
    both = [[run[key] for key in shared] for run in runs]
    problems = problems_of(both[0])
    (task,) = problems
    hits, of = (
        [grid_of([run], problems, lambda o, i=i: o.credit[i])[task] for run in both] for i in (0, 1)
    )
    weights = draw({task: hits[0]})
    shares = [float(np.nansum(h) / np.nansum(n)) for h, n in zip(hits, of, strict=True)]
    a, b = (
        drawn(h, weights.seeds, weights.problems[task], n) for h, n in zip(hits, of, strict=True)
    )
    low, high = interval(b - a)
    right = [(x.correct, y.correct) for x, y in zip(*both, strict=True)]
    losses, gains = sum(x and not y for x, y in right), sum(y and not x for x, y in right)
    return Paired(
        n=len(shared),
        first=shares[0],
        second=shares[1],
        difference=shares[1] - shares[0],
        low=low,
        high=high,
        only_first=losses,
        only_second=gains,
        p=mcnemar(losses, gains),
        unpaired=len(set(runs[0]) ^ set(runs[1])),
    )


# --- accuracy against steps -----------------------------------------------------------------------


@dataclass(frozen=True)
class Point:
    """One run on one task at one length and threshold."""

    run: str
    task: str
    length: int
    tau: float
    accuracy: float  # share
    steps: float  # mean model calls per example
    n: int
    baseline: bool


@dataclass(frozen=True)
class Reduction:
    """A run against the most accurate baseline at the same threshold."""

    run: str
    task: str
    length: int
    tau: float
    against: str
    steps: float
    steps_baseline: float
    reduction: float  # share of the baseline's steps that is saved
    accuracy_difference: float  # in points
    n: int


def points(run: str, outcomes: Iterable[Outcome], baseline: bool) -> list[Point]:
    """Accuracy and steps of a run at each of its thresholds; decodings without one have none."""
    groups: dict[tuple[str, int, str, float], list[Outcome]] = {}
    for o in outcomes:
        options = dict(o.decoding.options)
        tau = options.pop("tau", None)
        if tau is not None:
            rest = Decoding(decoder=o.decoding.decoder, options=options).label
            groups.setdefault((o.task, o.length, rest, float(tau)), []).append(o)
    several = len({rest for _, _, rest, _ in groups}) > 1
    out = []
    for (task, length, rest, tau), group in sorted(groups.items()):
        found = score(group)
        name = f"{run}, {rest}" if several else run
        out.append(Point(name, task, length, tau, found.accuracy, found.steps, found.n, baseline))
    return out


def reductions(found: Iterable[Point]) -> list[Reduction]:
    """Candidates against the most accurate baseline per task, length and threshold."""
    found = list(found)
    out = []
    for p in found:
        place = (p.task, p.length, p.tau)
        rivals = [q for q in found if q.baseline and (q.task, q.length, q.tau) == place]
        if p.baseline or not rivals:
            continue
        best = max(rivals, key=lambda q: (q.accuracy, -q.steps))  # a tie goes to the cheaper one
        out.append(
            Reduction(
                run=p.run,
                task=p.task,
                length=p.length,
                tau=p.tau,
                against=best.run,
                steps=p.steps,
                steps_baseline=best.steps,
                reduction=1 - p.steps / best.steps if best.steps else 0.0,
                accuracy_difference=100 * (p.accuracy - best.accuracy),
                n=min(p.n, best.n),
            )
        )
    return out


# --- on the way to JSON ---------------------------------------------------------------------------


def finite(value: Any) -> Any:
    """The same data with None for what is not a number."""
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, np.generic):
        return finite(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
