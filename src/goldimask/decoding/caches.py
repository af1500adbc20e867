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

Each example has its own place in the store and its own block. Examples in the same phase share a
call: shorter passes are padded with queries that write to a spare column nobody attends to.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from goldimask.decoding.forward import Decodable
from goldimask.decoding.rows import RowState, block_range
from goldimask.decoding.types import Settings
from goldimask.processes import send


class Store:
    """Keys and values of all running examples: two tensors a layer, made once, written in place.

    It is what transformers calls a cache: `update` gets the new keys and values of a layer and
    answers with all of them. Where the examples of a call lie side by side, as they nearly always
    do, nothing is copied.
    """

    def __init__(self, places: int, width: int) -> None:
        self.width = width  # of the longest canvas; one column more is spare
        self.free = list(range(places))[::-1]
        self.place: dict[int, int] = {}  # index of an example -> its place
        self.layers: list[tuple[Tensor, Tensor]] = []  # [places, H, width + 1, d] each

    def enter(self, rows: Sequence[RowState]) -> None:
        for row in rows:
            if row.index not in self.place:
                self.place[row.index] = self.free.pop()

    def leave(self, row: RowState) -> None:
        if row.index in self.place:
            self.free.append(self.place.pop(row.index))

    def begin(self, rows: Sequence[RowState], slots: np.ndarray, device: torch.device) -> None:
        """The next call is for these; `slots` [B, q] say where each query's key belongs."""
        places = [self.place[row.index] for row in rows]
        self.columns = max(row.length for row in rows) + 1
        self.slots = send(slots, device)
        self.beside = places == list(range(places[0], places[0] + len(places)))
        self.places = slice(places[0], places[-1] + 1)
        self.index = send(np.array(places), device)

    def update(
        self, key: Tensor, value: Tensor, layer: int, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write [B, H, q, d] into the canvas; returns [B, H, columns, d]."""
        _, h, _, d = key.shape
        if layer == len(self.layers):
            shape = (len(self.place) + len(self.free), h, self.width + 1, d)
            self.layers.append((key.new_zeros(shape), value.new_zeros(shape)))
        index = self.slots[:, None, :, None].expand(-1, h, -1, d)
        return self.write(self.layers[layer][0], index, key), self.write(
            self.layers[layer][1], index, value
        )

    def write(self, kept: Tensor, index: Tensor, new: Tensor) -> Tensor:
        kept = kept[:, :, : self.columns]
        if self.beside:
            return kept[self.places].scatter_(2, index, new)
        part = kept.index_select(0, self.index).scatter_(2, index, new)
        kept.index_copy_(0, self.index, part)
        return part

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
        row.cached_block = row.block
    store.enter(rows)
    store.begin(rows, slots, device)
    logits = backbone.model(
        input_ids=send(ids, device),
        attention_mask=send(keys, device)[:, None, None, :].expand(-1, 1, queries, -1),
        position_ids=send(np.where(slots < width, slots, 0), device),
        past_key_values=store,
        logits_mask=send(np.flatnonzero(wanted), device),
        use_cache=True,
    ).logits
    return list(logits.split([len(w) for w in windows]))
