"""Outcomes in, numbers out: results of tasks, lengths and seeds.

    Wilson:     interval of a proportion, 95 % (scipy's)
    pass@k:     mean over problems of 1 - C(n-c, k) / C(n, k), n samples, c of them correct
    seeds:      mean and sample standard deviation (denominator n - 1)

A task that is published as pass@k over k samples (AIME) has that as its score, never the mean over
samples; with fewer samples than k, the score is pass@(as many as there are), and says so.
Three seeds carry no test: tables give mean and deviation, and what compares two methods pairs their
problems (`goldimask.bootstrap`). The published tables take, per task, the best of the lengths 128,
256 and 512. That choice is made on the test data and flatters every method; the fixed lengths
beside it are not selected.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from goldimask.errors import GoldimaskError
from goldimask.records import Decoding, Outcome

SELECTED = "best length per task, selected on the test data"
FIXED = "fixed length per task, not selected"


# --- scores ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskResult:
    """One task at one length, sampling seed and way of decoding; of pass@k, over all seeds."""

    task: str
    length: int
    seed: int | None  # None for pass@k
    decoding: Decoding
    n: int
    correct: int
    accuracy: float  # the task's headline metric; of partial credits where there are any
    low: float  # Wilson, 95 %
    high: float
    steps: float  # mean calls of the model
    unparsable: int
    seconds: float  # per answer
    metric: str = "accuracy"
    protocol: str = "fixed"
    version: str = ""
    solved: float = 0.0  # share of answers that are correct as a whole
    tokens_a_call: float | None = None  # tokens of the answers over calls; None: not counted
    samples: int = 1  # of each problem

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"decoding": self.decoding.model_dump()}


def aggregate(
    outcomes: Iterable[Outcome],
    metrics: Mapping[str, str] | None = None,
    samples: Callable[[str], int] = lambda task: 1,
) -> tuple[TaskResult, ...]:
    """One result per trial, in order of appearance; `metrics` names each task's headline figure.

    `samples` is how many a task is published with; those of one with several are one result.
    """
    groups: dict[object, list[Outcome]] = {}
    for o in outcomes:
        place = (o.task, o.length, o.decoding) if samples(o.task) > 1 else o.place
        groups.setdefault(place, []).append(o)
    named = metrics or {}
    return tuple(
        sampled_result(g, k)
        if (k := samples(g[0].task)) > 1
        else result_of(g, named.get(g[0].task, "accuracy"))
        for g in groups.values()
    )


def sampled_result(group: Sequence[Outcome], k: int) -> TaskResult:
    """pass@k of one group; its `n` and `correct` count problems, its interval is over them."""
    verdicts: dict[str, list[bool]] = {}
    for o in group:
        verdicts.setdefault(o.item, []).append(o.correct)
    fewest, n = min(len(v) for v in verdicts.values()), len(verdicts)
    k = min(k, fewest)
    share = pass_at_k([(len(v), sum(v)) for v in verdicts.values()], k)
    low, high = wilson(share * n, n)
    found = {"accuracy": share, "low": low, "high": high, "metric": f"pass@{k}", "samples": k}
    solved = sum(any(v) for v in verdicts.values())
    found |= {"n": n, "correct": solved, "solved": solved / n, "seed": None}
    return replace(result_of(group), **found)


def result_of(group: Sequence[Outcome], metric: str = "accuracy") -> TaskResult:
    """The figures of one group of answers."""
    first, n = group[0], len(group)
    correct = sum(o.correct for o in group)
    hits, of = pooled(group)
    low, high = wilson(hits, of)
    return TaskResult(
        task=first.task,
        length=first.length,
        seed=first.seed,
        decoding=first.decoding,
        n=n,
        correct=correct,
        accuracy=hits / of,
        low=low,
        high=high,
        steps=sum(o.steps for o in group) / n,
        unparsable=sum(o.extracted is None for o in group),
        seconds=sum(o.seconds for o in group) / n,
        metric=metric,
        protocol=first.protocol,
        version=first.version,
        solved=correct / n,
        tokens_a_call=tokens_a_call(group),
    )


def tokens_a_call(group: Sequence[Outcome]) -> float | None:
    """Tokens of the answers over calls of the model; None where they were not counted."""
    calls = sum(o.steps for o in group)
    return sum(o.tokens for o in group) / calls if calls and any(o.tokens for o in group) else None


def pooled(group: Sequence[Outcome]) -> tuple[float, float]:
    """(hits, out of) over all answers: partial credits where the task gives any."""
    hits, of = zip(*(o.credit for o in group), strict=True)
    return math.fsum(hits), math.fsum(of)


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


def shown_names(results: Iterable[TaskResult]) -> dict[tuple[str, Decoding], str]:
    """The name of each task, with its decoding where the task was decoded in several ways."""
    keys = dict.fromkeys((r.task, r.decoding) for r in results)
    ways = Counter(task for task, _ in keys)
    return {(t, d): f"{t}, {d.label}" if ways[t] > 1 else t for t, d in keys}


def mean_by_length(results: Iterable[TaskResult]) -> dict[str, dict[int, float]]:
    """Accuracy per task (and decoding) and length, the mean over sampling seeds."""
    results = list(results)
    names = shown_names(results)
    values: dict[str, dict[int, list[float]]] = {}
    for r in results:
        rows = values.setdefault(names[r.task, r.decoding], {})
        rows.setdefault(r.length, []).append(r.accuracy)
    return {t: {n: sum(v) / len(v) for n, v in rows.items()} for t, rows in values.items()}


def best_lengths(results: Iterable[TaskResult]) -> dict[str, tuple[int, float]]:
    """Per task the length with the highest accuracy, the shortest of equals. Selected on test."""
    return {
        task: max(rows.items(), key=lambda x: (x[1], -x[0]))
        for task, rows in mean_by_length(results).items()
    }


def fixed_lengths(
    results: Iterable[TaskResult], own: Callable[[str], int]
) -> dict[str, tuple[int, float]]:
    """Per task its `own` fixed length, where it was run; a single length is the fixed one."""
    chosen = {}
    for task, rows in mean_by_length(results).items():
        length = own(task.split(", ")[0]) if len(rows) > 1 else next(iter(rows))
        if length in rows:
            chosen[task] = (length, rows[length])
    return chosen


def chosen_lengths(
    results: Sequence[TaskResult], length: str, own: Callable[[str], int]
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
    """Per task and for the average, which is taken within each seed first.

    A task that no seed has is left out; so is the average where any seed lacks a task.
    """
    found = {t: [row[t] for row in runs.values() if t in row] for t in tasks}
    out = {t: spread(values) for t, values in found.items() if values}
    if all(len(values) == len(runs) for values in found.values()):
        means = [sum(row[t] for t in tasks) / len(tasks) for row in runs.values()]
        out["average"] = spread(means)
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
