"""A model small enough to reason about: two blocks of attention over a table of embeddings.

Everything depends on the visible ids, so revealing a token changes predictions; nothing depends on
padding or on batch mates. `FakeScorer` implements the `Scorer` protocol on top of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from goldimask.step import LayerSpec
from goldimask.types import Batch, Signal, Signals

VOCAB, MASK, WIDTH = 23, 22, 12


class TableModel(nn.Module):
    """Attention with fixed queries and keys per token, a trainable head, and dropout."""

    def __init__(self, seed: int = 0, layers: int = 2, dropout: float = 0.0) -> None:
        super().__init__()
        g = torch.Generator().manual_seed(seed)
        self.table = nn.Parameter(torch.randn(VOCAB, WIDTH, generator=g))
        self.place = nn.Parameter(torch.randn(64, WIDTH, generator=g))
        self.mix = nn.Parameter(torch.randn(layers, WIDTH, WIDTH, generator=g) / WIDTH**0.5)
        self.head = nn.Parameter(torch.randn(WIDTH, VOCAB, generator=g) / WIDTH**0.5)
        self.dropout = nn.Dropout(dropout)
        self.calls = 0

    def forward(self, ids: Tensor, valid: Tensor) -> tuple[Tensor, list[Tensor]]:
        self.calls += 1
        position = (valid.long().cumsum(1) - 1).clamp_min(0)
        x = self.table[ids] + self.place[position % 64]
        maps = []
        for mix in self.mix:
            scores = (x @ mix) @ x.transpose(1, 2) / WIDTH**0.5
            a = scores.masked_fill(~valid[:, None, :], -torch.inf).softmax(-1)
            maps.append(a)
            x = x + self.dropout(a @ x)
        return x @ self.head, maps


@dataclass
class FakeScorer:
    """What a backbone's scorer does, by the plainest means."""

    def __call__(
        self,
        model: nn.Module,
        batch: Batch,
        hidden: Tensor,
        want: frozenset[Signal] = frozenset({Signal.LOGP}),
        layer: LayerSpec = "last",
    ) -> Signals:
        logits, maps = model(batch.ids.masked_fill(hidden, MASK), batch.valid)
        logs = logits.log_softmax(-1)
        logp = logs.gather(2, batch.ids[:, :, None])[:, :, 0] * hidden
        entropy = -(logs.exp() * logs).sum(-1).detach() * hidden if Signal.ENTROPY in want else None
        a = maps[-1 if layer == "last" else layer].detach()
        attention = rows = received = None
        if Signal.ATTENTION in want:
            width = int(hidden.sum(1).max())
            rows = torch.full((batch.size, width), -1)
            attention = torch.zeros(batch.size, width, batch.ids.shape[1])
            for b in range(batch.size):
                positions = hidden[b].nonzero()[:, 0]
                rows[b, : len(positions)] = positions
                attention[b, : len(positions)] = a[b, positions]
        if Signal.RECEIVED in want:
            received = (a * batch.valid[:, :, None]).sum(1)
        return Signals(logp, entropy, attention, rows, received)


def make_batch(
    lengths: tuple[int, ...] = (14, 9, 17, 6),
    prompt: int = 4,
    pad: int = 0,
    left: bool = False,
    seed: int = 0,
    first_id: int = 100,
) -> Batch:
    """Responses of the given lengths after a prompt; `pad` extra columns."""
    width = prompt + max(lengths, default=0) + pad
    ids = torch.zeros(len(lengths), width, dtype=torch.long)
    response = torch.zeros(len(lengths), width, dtype=torch.bool)
    valid = torch.zeros_like(response)
    for b, n in enumerate(lengths):
        g = torch.Generator().manual_seed(1000 * seed + first_id + b)
        start = width - prompt - n if left else 0
        ids[b, start : start + prompt + n] = torch.randint(0, VOCAB - 1, (prompt + n,), generator=g)
        valid[b, start : start + prompt + n] = True
        response[b, start + prompt : start + prompt + n] = True
    return Batch(ids, response, valid, torch.arange(len(lengths)) + first_id)


def take(batch: Batch, index: list[int]) -> Batch:
    """Some examples of a batch, in any order."""
    i = torch.tensor(index)
    return Batch(batch.ids[i], batch.response[i], batch.valid[i], batch.example_id[i])
