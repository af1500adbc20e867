"""From judged answers to the figures of one task, length, sampling seed and way of decoding."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from goldimask.eval.stats import pass_at_k, wilson
from goldimask.records import Decoding, Outcome


@dataclass(frozen=True)
class TaskResult:
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
    steps: float  # mean decoding iterations
    unparsable: int
    seconds: float  # per answer
    metric: str = "accuracy"
    protocol: str = "fixed"
    version: str = ""
    solved: float = 0.0  # share of answers that are correct as a whole

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"decoding": self.decoding.model_dump()}


@dataclass(frozen=True)
class EvalResult:
    """Everything one evaluation found."""

    results: tuple[TaskResult, ...]
    outcomes: tuple[Outcome, ...] = field(repr=False, default=())

    def __getitem__(self, task: str) -> TaskResult:
        """The result of a task; its first length, seed and decoding."""
        for result in self.results:
            if result.task == task:
                return result
        raise KeyError(task)

    def pass_at(
        self, task: str, k: int, length: int | None = None, decoding: Decoding | None = None
    ) -> float:
        """pass@k over all sampling seeds of a task (and length, and way of decoding)."""
        counts: dict[object, list[bool]] = {}
        for o in self.outcomes:
            if o.task == task and length in (None, o.length) and decoding in (None, o.decoding):
                counts.setdefault((o.length, o.decoding, o.item), []).append(o.correct)
        return pass_at_k([(len(c), sum(c)) for c in counts.values()], k)

    def to_json(self) -> list[dict[str, Any]]:
        return [r.to_json() for r in self.results]


def aggregate(
    outcomes: Iterable[Outcome], metrics: Mapping[str, str] | None = None
) -> tuple[TaskResult, ...]:
    """One result per trial, in order of appearance; `metrics` names each task's headline figure."""
    groups: dict[object, list[Outcome]] = {}
    for outcome in outcomes:
        groups.setdefault(outcome.place, []).append(outcome)
    named = metrics or {}
    return tuple(result_of(g, named.get(g[0].task, "accuracy")) for g in groups.values())


def result_of(group: Sequence[Outcome], metric: str = "accuracy") -> TaskResult:
    """The figures of one group of answers."""
    first, n = group[0], len(group)
    correct = sum(o.correct for o in group)
    hits, total = pooled(group)
    low, high = wilson(hits, total)
    return TaskResult(
        task=first.task,
        length=first.length,
        seed=first.seed,
        decoding=first.decoding,
        n=n,
        correct=correct,
        accuracy=hits / total,
        low=low,
        high=high,
        steps=sum(o.steps for o in group) / n,
        unparsable=sum(o.extracted is None for o in group),
        seconds=sum(o.seconds for o in group) / n,
        metric=metric,
        protocol=first.protocol,
        version=first.version,
        solved=correct / n,
    )


def pooled(group: Sequence[Outcome]) -> tuple[float, float]:
    """(hits, out of) over all answers: partial credits where the task gives any."""
    of = sum(o.of for o in group)
    return (sum(o.hits for o in group), of) if of else (sum(o.correct for o in group), len(group))
