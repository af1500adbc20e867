"""Where the supervision goes, by kind of token.

For every kind that the corpus tells apart (`data.corpora.TokenClasses`): its share of the
candidates C, of the targets S, and of the loss weight scale_b w_i; at every log, and over the run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from goldimask.types import Batch, Example, StepOutput

PARTS = ("candidates", "targets", "weight")
Reduce = Callable[[torch.Tensor, str], torch.Tensor]


class Tally:
    """Sums over steps and ranks; without kinds it does nothing."""

    def __init__(self, names: Sequence[str] = (), examples: Sequence[Example] = ()) -> None:
        self.names = tuple(names)
        kinds = {e.example_id: e.classes for e in examples if e.classes is not None}
        self.kinds = {i: np.asarray(k) for i, k in kinds.items()} if self.names else {}
        self.recent = np.zeros((len(PARTS), len(self.names)))  # of this rank, since the last log
        self.before = np.zeros_like(self.recent)  # of all ranks, until the last log
        self.unread: list[tuple[torch.Tensor, list[int]]] = []  # on the device: nobody waits

    def add(self, out: StepOutput, batch: Batch) -> None:
        if not self.kinds:
            return
        weight = out.weights.value * out.weights.scale[:, None]
        parts = [out.corruption.candidates, out.supervised, weight]
        self.unread.append((torch.stack([p.double() for p in parts]), batch.on_host()[1]))

    def settle(self) -> None:
        """Count what was added since the last call."""
        for found, numbers in self.unread:
            values = found.cpu().numpy()
            for b, kinds in enumerate(self.kinds.get(i) for i in numbers):
                if kinds is None:
                    continue
                for k, part in enumerate(values[:, b, : len(kinds)]):
                    self.recent[k] += np.bincount(kinds, part, minlength=len(self.names))
        self.unread = []

    def pop(self, reduce: Reduce | None = None, device: Any = None) -> dict[str, float]:
        """Shares since the last call, as metrics `class/NAME/PART`."""
        if not self.names:
            return {}
        self.settle()
        recent = _summed(self.recent, reduce, device)
        self.before, self.recent = self.before + recent, np.zeros_like(recent)
        found = _shares(self.names, recent)
        return {f"class/{kind}/{part}": x for kind, row in found.items() for part, x in row.items()}

    def shares(self) -> dict[str, dict[str, float]]:
        """Kind -> its share of candidates, targets and weight of the whole run, after a `pop`."""
        return _shares(self.names, self.before)


def _summed(sums: np.ndarray, reduce: Reduce | None, device: Any) -> np.ndarray:
    if reduce is None:
        return sums
    return reduce(torch.tensor(sums, device=device), "sum").cpu().numpy()


def _shares(names: Sequence[str], sums: np.ndarray) -> dict[str, dict[str, float]]:
    found = sums / np.maximum(sums.sum(1, keepdims=True), 1e-12)
    return {
        kind: {part: float(found[k, i]) for k, part in enumerate(PARTS)}
        for i, kind in enumerate(names)
    }
