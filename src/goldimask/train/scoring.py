"""A scorer that takes a micro-batch in which nothing is hidden.

With small micro-batches and low noise levels it happens that no example has a candidate. The pass
still runs, as on every other rank, but there are no attention rows to capture: the attention of
nothing is an empty matrix.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from goldimask.step import LayerSpec, Scorer
from goldimask.types import Batch, Signal, Signals


@dataclass(frozen=True)
class Tolerant:
    """Asks the inner scorer for attention only where there are rows to capture."""

    inner: Scorer

    def __call__(
        self,
        model: nn.Module,
        batch: Batch,
        hidden: Tensor,
        want: frozenset[Signal] = frozenset({Signal.LOGP}),
        layer: LayerSpec = "last",
    ) -> Signals:
        if Signal.ATTENTION not in want or Signal.RECEIVED in want or bool(hidden.any()):
            return self.inner(model, batch, hidden, want, layer)
        rest = self.inner(model, batch, hidden, want - {Signal.ATTENTION}, layer)
        b, t = batch.ids.shape
        nothing = torch.zeros((b, 0, t), dtype=torch.float32, device=hidden.device)
        rows = torch.zeros((b, 0), dtype=torch.int64, device=hidden.device)
        return replace(rest, attention=nothing, rows=rows)
