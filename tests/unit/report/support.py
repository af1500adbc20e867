"""A model-free step: signals from a seeded generator, a tokenizer with hostile words."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from goldimask.data.batches import make_batch
from goldimask.methods import Method, method
from goldimask.report.inspect import PinnedKeys
from goldimask.step import MaskedStep
from goldimask.types import Batch, Example, Signal, Signals, StepOutput

HOSTILE = [
    "<script>window.hit=1</script>",
    "</script><img src=x onerror=window.hit=1>",
    "<!--",
    "]]>",
    "'\"`${window.hit=1}",
    "{{SCRIPT}}",
    "\u202egnp.exe",
    "a\u200bb",
    "\u2028",
    "\x00\x1b[31m",
    "\n",
    "\n\n",
    " the",
    "  ",
    "\t",
    "שלום",
    "مرحبا",
    "漢字",
    "👩‍🔬",
    "&lt;b&gt;",
    "javascript:alert(1)",
    "\ud800",
    "",
    "⏎",
    "[red]bold[/red]",
]


class Tokenizer:
    """Ids are places in a word list; the last one is special."""

    def __init__(self, words: Sequence[str] = HOSTILE) -> None:
        self.words = [*words, "<|end|>"]
        self.all_special_ids = [len(self.words) - 1]

    def decode(self, ids: Sequence[int], **_: Any) -> str:
        return "".join(self.words[i] for i in ids)

    def convert_ids_to_tokens(self, token: int) -> str:
        return self.words[token]


class Scorer:
    """Log-probabilities and attention that depend on the token and on how much is hidden."""

    def __call__(
        self,
        model: nn.Module,
        batch: Batch,
        hidden: torch.Tensor,
        want: frozenset[Signal] = frozenset({Signal.LOGP}),
        layer: int | float | str = "last",
    ) -> Signals:
        b, t = batch.ids.shape
        seed = torch.Generator().manual_seed(7)
        base = torch.rand(b, t, generator=seed) * 3
        depth = (0.3 + hidden.float().sum(1, keepdim=True) / t) * (1 + batch.ids % 3)
        logp = -torch.where(hidden, base * depth, 0.0) * next(model.parameters()).squeeze()
        count = int(hidden.sum(1).max())
        rows = torch.full((b, count), -1)
        for i in range(b):
            found = hidden[i].nonzero().squeeze(1)
            rows[i, : len(found)] = found
        scores = torch.randn(b, count, t, generator=seed) * 2
        scores = scores.masked_fill(~batch.valid[:, None], -torch.inf)
        attention = scores.softmax(-1) * (rows >= 0)[:, :, None]
        return Signals(
            logp=logp,
            entropy=torch.where(hidden, base, 0.0) if Signal.ENTROPY in want else None,
            attention=attention if Signal.ATTENTION in want else None,
            rows=rows if Signal.ATTENTION in want else None,
            received=attention.sum(1) if Signal.RECEIVED in want else None,
        )


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))


def examples(lengths: Sequence[tuple[int, int]] = ((6, 40), (4, 25))) -> list[Example]:
    """(prompt, response) lengths -> examples that use every word."""
    words = len(HOSTILE) + 1
    made = []
    for n, (prompt, response) in enumerate(lengths):
        ids = [(i * 7 + n) % words for i in range(prompt + response)]
        flags = [i >= prompt for i in range(prompt + response)]
        made.append(Example(ids, prompt, flags, 1000 + n))
    return made


def step(
    name: str | Method, batch: Batch | None = None, seed: int = 3, t: float = 0.45
) -> tuple[StepOutput, Batch, Method]:
    """One step of a preset on the hostile examples."""
    made = method(name) if isinstance(name, str) else name
    batch = batch if batch is not None else make_batch(examples(), 0)
    out = MaskedStep(made, Scorer())(Model(), batch, PinnedKeys(seed, 0, t))  # type: ignore[arg-type]
    return out, batch, made


def embedded(page: str) -> Any:
    """The data of a page, read back."""
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])
