"""Where the supervision goes, by class of token.

    words         everything that is none of the following
    numbers       right numbers
    wrong         numbers that the corpus got wrong (only in corpora with wrong labels)
    identifiers   random words of the opening line

For every class: its share of the candidates C, of the targets S, and of the loss weight
scale_b w_i, summed over the run. A method that tells noise from signal moves weight away from
`wrong` and `identifiers`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from goldimask.backbones import Backbone
from goldimask.types import Batch, Example, StepOutput

CLASSES = ("words", "numbers", "wrong", "identifiers")
Row = dict[str, Any]


def classify(
    rows: Sequence[Row],
    clean: Sequence[Row] | None,
    examples: Sequence[Example],
    backbone: Backbone,
) -> dict[int, np.ndarray]:
    """Example id -> class number of every token; `clean` are the same rows without wrong labels."""
    from goldimask.tiny.identifiers import IDENTIFIERS, OPENING

    opening = {i for w in (*IDENTIFIERS, OPENING) for i in backbone.response_ids(w, turn_end=False)}
    numbers = {i for text, i in backbone.tokenizer.get_vocab().items() if text.isdigit()}
    out = {}
    for place, (row, example) in enumerate(zip(rows, examples, strict=True)):
        ids = np.asarray(example.ids)
        found = np.where(np.isin(ids, list(numbers)), 1, 0)
        if clean is not None:
            right = backbone.response_ids(clean[place]["response"])
            given = ids[example.prompt_length :]
            if len(right) == len(given):  # one token per number, so that places agree
                found[example.prompt_length :][given != np.asarray(right)] = 2
        if row.get("identifiers"):
            after = np.arange(len(ids)) >= example.prompt_length
            found[after & np.isin(ids, list(opening))] = 3
        out[example.example_id] = found
    return out


class Tally:
    """Sums over the steps of a run."""

    def __init__(self, classes: Mapping[int, np.ndarray]) -> None:
        self.classes = classes
        self.sums = np.zeros((3, len(CLASSES)))  # candidates, targets, weight

    def __call__(self, out: StepOutput, batch: Batch) -> None:
        weight = out.weights.value * out.weights.scale[:, None]
        parts = torch.stack([out.corruption.candidates, out.supervised, weight]).double().numpy()
        for b, example_id in enumerate(batch.example_id.tolist()):
            kinds = self.classes[example_id]
            for k, part in enumerate(parts[:, b, : len(kinds)]):
                self.sums[k] += np.bincount(kinds, part, minlength=len(CLASSES))

    def shares(self) -> dict[str, dict[str, float]]:
        """Class -> its share of candidates, targets and weight."""
        totals = np.maximum(self.sums.sum(1, keepdims=True), 1e-12)
        found = self.sums / totals
        names = ("candidates", "targets", "weight")
        return {
            kind: {name: float(found[k, i]) for k, name in enumerate(names)}
            for i, kind in enumerate(CLASSES)
        }
