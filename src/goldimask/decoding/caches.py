"""Prefix and dual cache of Fast-dLLM: approximate, opt-in, reported as such (`Decoded.exact`).

    beginning of a block   one pass over the whole canvas fills the keys and values of every layer
    later steps, prefix    pass over [block start, end of canvas): everything before it is cached
    later steps, dual      pass over [block start, block end): everything else is cached

Keys are cached after RoPE, at their position in the canvas; a pass overwrites the positions it
computes and attends to all of them. What is cached grows stale until the next block begins, so the
scores are not those of the full pass. Steps count every pass, the filling ones included; a block
that the filling pass finishes takes one step (Fast-dLLM always spends a second).

For Dream the row before the block predicts its first token; here the pass begins one row earlier.
Fast-dLLM instead commits the block's first position in the filling pass whatever its confidence.

Each example has its own cache and its own block. Examples in the same phase share a call: shorter
passes are padded with queries that write to a spare column nobody attends to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from goldimask.decoding.forward import Decodable
from goldimask.decoding.rows import RowState, block_range
from goldimask.decoding.types import Settings

Store = dict[int, list[tuple[Tensor, Tensor]]]  # row index -> per layer (keys, values) [H, T, d]


class BlockCache:
    """What transformers calls with the new keys and values of a layer, and answers with all."""

    def __init__(self, slots: Tensor, known: Sequence[tuple[Tensor, Tensor]] | None, width: int):
        self.slots = slots  # [B, q] where each query's key belongs; `width` is the spare column
        self.known = known  # per layer ([B, H, width, d], same), or None while filling
        self.width = width
        self.layers: list[tuple[Tensor, Tensor]] = []

    def update(
        self, key: Tensor, value: Tensor, layer: int, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Scatter [B, H, q, d] into the canvas; returns [B, H, width + 1, d]."""
        b, h, _, d = key.shape
        merged = []
        for i, new in enumerate((key, value)):
            whole = new.new_zeros(b, h, self.width + 1, d)
            if self.known is not None:
                whole[:, :, : self.width] = self.known[layer][i]
            index = self.slots[:, None, :, None].expand(b, h, -1, d)
            merged.append(whole.scatter(2, index, new))
        self.layers.append((merged[0], merged[1]))
        return merged[0], merged[1]

    def get_seq_length(self, *_: object) -> int:
        return 0


def cached_logits(
    backbone: Decodable,
    rows: Sequence[RowState],
    windows: Sequence[np.ndarray],
    settings: Settings,
    store: Store,
) -> Tensor:
    """[n, V] logits of all windows in order: full passes for new blocks, slices for the others."""
    tables: list[Tensor | None] = [None] * len(rows)
    for fill in (True, False):
        group = [i for i, row in enumerate(rows) if (row.cached_block != row.block) == fill]
        if not group:
            continue
        made = run(
            backbone, [rows[i] for i in group], [windows[i] for i in group], settings, store, fill
        )
        for i, logits in zip(group, made, strict=True):
            tables[i] = logits
    return torch.cat([t for t in tables if t is not None])


def span(row: RowState, settings: Settings, fill: bool, shift: bool) -> tuple[int, int]:
    """Canvas positions this pass computes."""
    if fill:
        return 0, row.length
    start, end = block_range(row, settings)
    begin = max(0, row.prompt + start - shift)
    return begin, row.length if settings.cache == "prefix" else row.prompt + end


def run(
    backbone: Decodable,
    rows: Sequence[RowState],
    windows: Sequence[np.ndarray],
    settings: Settings,
    store: Store,
    fill: bool,
) -> list[Tensor]:
    """One call for examples in the same phase; the logits of each window."""
    device = next(backbone.model.parameters()).device
    spans = [span(row, settings, fill, backbone.shift) for row in rows]
    width = max(row.length for row in rows)
    queries = max(end - begin for begin, end in spans)
    ids = np.full((len(rows), queries), backbone.pad_id, dtype=np.int64)
    slots = np.full((len(rows), queries), width, dtype=np.int64)
    wanted = np.zeros((len(rows), queries), dtype=bool)
    keys = np.zeros((len(rows), width + 1), dtype=bool)
    for b, (row, where, (begin, end)) in enumerate(zip(rows, windows, spans, strict=True)):
        ids[b, : end - begin] = row.canvas[begin:end]
        slots[b, : end - begin] = np.arange(begin, end)
        wanted[b, row.prompt + where - begin] = True
        keys[b, : row.length] = True
    known = None if fill else stack(rows, store, width)
    cache = BlockCache(torch.from_numpy(slots).to(device), known, width)
    mask = torch.from_numpy(keys).to(device)[:, None, None, :]
    positions = np.where(slots < width, slots, 0)
    logits = backbone.model(
        input_ids=torch.from_numpy(ids).to(device),
        attention_mask=mask.expand(-1, 1, queries, -1),
        position_ids=torch.from_numpy(positions).to(device),
        past_key_values=cache,
        logits_mask=torch.from_numpy(wanted).to(device),
        use_cache=True,
    ).logits
    for b, row in enumerate(rows):  # prefix and dual alike: what was computed is the newest known
        store[row.index] = [(k[b, :, : row.length], v[b, :, : row.length]) for k, v in cache.layers]
        row.cached_block = row.block
    return list(logits.split([len(w) for w in windows]))


def stack(rows: Sequence[RowState], store: Store, width: int) -> list[tuple[Tensor, Tensor]]:
    """The caches of several examples side by side: per layer [B, H, width, d] twice."""

    def padded(known: Tensor) -> Tensor:  # [H, T, d] -> [H, width, d]
        return F.pad(known, (0, 0, 0, width - known.shape[1]))

    caches = [store[row.index] for row in rows]
    return [
        (torch.stack([padded(k) for k, _ in layer]), torch.stack([padded(v) for _, v in layer]))
        for layer in zip(*caches, strict=True)
    ]
