"""Exact model calls for the active examples, with the LM head on the rows of their windows alone.

The model's `logits_mask` takes token positions; which row predicts a position (its own in LLaDA,
the one before in Dream) is the backbone's business. Neighbours of like length share a call, so that
little is spent on padding. Within a call examples are padded on either side; padding is never
attended and positions count real tokens, so that an example sees the same arithmetic in any batch.
With guidance w the batch holds every example twice, the second time with its prompt masked, and
    logits = u + (w + 1)(c - u).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from goldimask.decoding.rows import RowState
from goldimask.decoding.types import PaddingSide, Settings
from goldimask.processes import send

# Positions from which on a call of a large model is bound by arithmetic and not by reading the
# weights, so that two such calls cost what one of twice the size would.
FULL_CALL = 1024


class Decodable(Protocol):
    """What decoding needs from a backbone."""

    @property
    def model(self) -> nn.Module: ...
    @property
    def mask_id(self) -> int: ...
    @property
    def pad_id(self) -> int: ...
    @property
    def turn_end_id(self) -> int: ...
    @property
    def shift(self) -> bool: ...
    @property
    def max_length(self) -> int: ...
    def prompt_ids(self, messages: Sequence[Mapping[str, str]] | str) -> list[int]: ...
    def response_ids(self, text: str, turn_end: bool = True) -> list[int]: ...
    def decode(self, ids: Iterable[int]) -> str: ...


def exact_logits(
    backbone: Decodable,
    rows: Sequence[RowState],
    windows: Sequence[np.ndarray],
    settings: Settings,
) -> Tensor:
    """[n, V] logits of all windows in order, every position of every canvas visible."""
    parts = [
        one_call(backbone, rows[group], windows[group], settings)
        for group in like_lengths([row.length for row in rows], FULL_CALL)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def like_lengths(lengths: Sequence[int], full: int) -> Iterator[slice]:
    """Cut a list, longest first, where the length changes and the part already fills a call."""
    start = 0
    for i in range(1, len(lengths)):
        width = max(lengths[start:i])
        if lengths[i] != width and (i - start) * width >= full:
            yield slice(start, i)
            start = i
    yield slice(start, len(lengths))


def one_call(
    backbone: Decodable,
    rows: Sequence[RowState],
    windows: Sequence[np.ndarray],
    settings: Settings,
) -> Tensor:
    """The logits of some examples' windows."""
    ids, valid, offsets = pack(rows, backbone.pad_id, settings.padding_side)
    wanted = np.zeros_like(valid)
    for b, (row, where, offset) in enumerate(zip(rows, windows, offsets, strict=True)):
        wanted[b, offset + row.prompt + where] = True
    if not settings.cfg:
        return call(backbone.model, ids, valid, wanted)
    blind = ids.copy()
    for b, (row, offset) in enumerate(zip(rows, offsets, strict=True)):
        blind[b, offset : offset + row.prompt] = backbone.mask_id
    twice = (np.concatenate([x, y]) for x, y in ((ids, blind), (valid, valid), (wanted, wanted)))
    given, free = call(backbone.model, *twice).chunk(2)
    return free + (settings.cfg + 1) * (given - free)


def pack(
    rows: Sequence[RowState], pad_id: int, side: PaddingSide
) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """ids [B, T], valid [B, T] and where each example begins."""
    width = max(row.length for row in rows)
    ids = np.full((len(rows), width), pad_id, dtype=np.int64)
    valid = np.zeros((len(rows), width), dtype=bool)
    offsets = []
    for b, row in enumerate(rows):
        offset = width - row.length if side == "left" else 0
        ids[b, offset : offset + row.length] = row.canvas
        valid[b, offset : offset + row.length] = True
        offsets.append(offset)
    return ids, valid, offsets


def call(model: nn.Module, ids: np.ndarray, valid: np.ndarray, wanted: np.ndarray) -> Tensor:
    """Run the model; [n, V] in the order of the wanted positions."""
    asked = {"input_ids": ids, "logits_mask": np.flatnonzero(wanted)}
    if not valid.all():  # without padding the fastest kernels want no mask at all
        asked |= {"attention_mask": valid, "position_ids": np.maximum(valid.cumsum(1) - 1, 0)}
    device = next(model.parameters()).device
    return model(**{name: send(x, device) for name, x in asked.items()}).logits
