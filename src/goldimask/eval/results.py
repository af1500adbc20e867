"""Everything one evaluation found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from goldimask.records import Decoding, Outcome
from goldimask.stats import TaskResult, pass_at_k


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
