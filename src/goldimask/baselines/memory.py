"""What goldimask-a remembers of an example between its visits.

Per example of L supervisable positions: log p of each position that has been a target, and the
`top` largest entries of its attention row. L (4 + 6 top) bytes per example, on the host: a thousand
examples of a thousand tokens are 196 MB at top = 32. It is state, saved and restored with the run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from goldimask.errors import GoldimaskError
from goldimask.types import Batch, Signals, StepOutput


@dataclass
class Trace:
    """What is remembered of one example, by index among its L supervisable positions."""

    logp: np.ndarray  # [L] float32, NaN where never measured
    index: np.ndarray  # [L, top] int32, -1 where empty
    weight: np.ndarray  # [L, top] float16, attention on `index`

    def dense(self, rows: np.ndarray) -> np.ndarray:
        """[len(rows), L] attention rows, zero where nothing was kept."""
        index = self.index[rows]
        out = np.zeros((len(rows), len(self.logp)), dtype=np.float32)
        kept = index >= 0
        out[np.nonzero(kept)[0], index[kept]] = self.weight[rows][kept]
        return out


@dataclass
class Memory:
    """Signals of earlier visits, by example id; grows with the examples seen."""

    top: int = 32
    momentum: float = 0.5
    traces: dict[int, Trace] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        return sum(t.logp.nbytes + t.index.nbytes + t.weight.nbytes for t in self.traces.values())

    def recall(self, batch: Batch, candidates: Tensor) -> Signals:
        """Remembered signals in the shape of a probe: log p is NaN at candidates never measured,
        and the attention rows are those of the known candidates only.
        """
        response, masked = batch.response.cpu().numpy(), candidates.cpu().numpy()
        logp = np.where(masked, np.nan, 0.0).astype(np.float32)
        rows: list[np.ndarray] = []
        blocks: list[np.ndarray] = []
        for b, example_id in enumerate(batch.example_id.tolist()):
            positions = np.flatnonzero(response[b])
            trace = self.traces.get(example_id)
            if trace is None:
                rows.append(np.zeros(0, dtype=np.int64))
                blocks.append(np.zeros((0, masked.shape[1]), dtype=np.float32))
                continue
            known = np.flatnonzero(masked[b, positions] & np.isfinite(trace.logp))
            logp[b, positions[known]] = trace.logp[known]
            block = np.zeros((len(known), masked.shape[1]), dtype=np.float32)
            block[:, positions] = trace.dense(known)
            rows.append(positions[known])
            blocks.append(block)
        width = max((len(r) for r in rows), default=0)
        attention = np.zeros((batch.size, width, masked.shape[1]), dtype=np.float32)
        index = np.full((batch.size, width), -1, dtype=np.int64)
        for b, (r, block) in enumerate(zip(rows, blocks, strict=True)):
            attention[b, : len(r)], index[b, : len(r)] = block, r
        device = batch.ids.device
        return Signals(
            logp=torch.from_numpy(logp).to(device),
            attention=torch.from_numpy(attention).to(device),
            rows=torch.from_numpy(index).to(device),
        )

    def observe(self, out: StepOutput, batch: Batch, trained: Signals) -> None:
        """Take in what the training pass measured at its targets."""
        if trained.attention is None or trained.rows is None:
            raise GoldimaskError(
                "goldimask-a: the scorer returned no attention in the training pass"
            )
        response, targets = batch.response.cpu().numpy(), out.supervised.cpu().numpy()
        logp, rows = out.logp.cpu().numpy(), trained.rows.cpu().numpy()
        attention = trained.attention.detach()
        for b, example_id in enumerate(batch.example_id.tolist()):
            if not targets[b].any():
                continue
            positions = np.flatnonzero(response[b])
            seen = np.searchsorted(positions, rows[b][rows[b] >= 0])  # index among the L
            columns = torch.from_numpy(positions).to(attention.device)
            block = attention[b, : len(seen)].index_select(1, columns).float().cpu()
            block[torch.arange(len(seen)), torch.from_numpy(seen)] = 0.0
            self._update(example_id, len(positions), seen, logp[b, positions[seen]], block)

    def _update(
        self, example_id: int, length: int, seen: np.ndarray, logp: np.ndarray, block: Tensor
    ) -> None:
        trace = self.traces.get(example_id) or self._blank(length)
        old = trace.logp[seen]
        mixed = self.momentum * old + (1.0 - self.momentum) * logp
        trace.logp[seen] = np.where(np.isnan(old), logp, mixed)
        k = min(self.top, length)
        weight, index = block.topk(k, dim=1)
        trace.index[seen, :k] = index.numpy()
        trace.weight[seen, :k] = weight.numpy()
        self.traces[example_id] = trace

    def _blank(self, length: int) -> Trace:
        return Trace(
            np.full(length, np.nan, dtype=np.float32),
            np.full((length, self.top), -1, dtype=np.int32),
            np.zeros((length, self.top), dtype=np.float16),
        )

    def state_dict(self) -> dict[str, Tensor]:
        """Concatenated over examples; tensors only."""
        traces = list(self.traces.values()) or [self._blank(0)]
        lengths = [len(t.logp) for t in self.traces.values()]
        return {
            "ids": torch.tensor(list(self.traces), dtype=torch.int64),
            "lengths": torch.tensor(lengths, dtype=torch.int64),
            "logp": torch.from_numpy(np.concatenate([t.logp for t in traces])),
            "index": torch.from_numpy(np.concatenate([t.index for t in traces])),
            "weight": torch.from_numpy(np.concatenate([t.weight for t in traces])),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        try:
            ids, lengths = state["ids"].tolist(), state["lengths"].tolist()
            parts = [state[name].numpy() for name in ("logp", "index", "weight")]
        except KeyError as error:
            raise GoldimaskError(f"saved state of goldimask-a lacks {error}") from error
        if parts[1].shape[1] != self.top:
            raise GoldimaskError(
                f"method.select.top: {self.top}, but the saved state has {parts[1].shape[1]}"
            )
        cuts = np.cumsum(lengths)[:-1] if lengths else []
        pieces = zip(*(np.split(p, cuts) for p in parts), strict=True)
        self.traces = {
            i: Trace(*(x.copy() for x in piece)) for i, piece in zip(ids, pieces, strict=False)
        }
