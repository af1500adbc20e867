"""One model call for the active examples, with the LM head on the rows of their windows alone.

The model's `logits_mask` takes token positions; which row predicts a position (its own in LLaDA,
the one before in Dream) is the backbone's business. Examples of unequal length are padded on either
side; padding is never attended and positions count real tokens, so that an example sees the same
arithmetic in any batch.
With guidance w the batch holds every example twice, the second time with its prompt masked, and
    logits = u + (w + 1)(c - u).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from goldimask.decoding.rows import Row
from goldimask.decoding.types import Settings


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
    def prompt_ids(self, messages: Any) -> list[int]: ...
    def response_ids(self, text: str, turn_end: bool = True) -> list[int]: ...
    def decode(self, ids: Any) -> str: ...


def exact_logits(
    backbone: Decodable, rows: Sequence[Row], windows: Sequence[np.ndarray], settings: Settings
) -> Tensor:
    """[n, V] logits of all windows in order, every position of every canvas visible."""
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


def pack(rows: Sequence[Row], pad_id: int, side: str) -> tuple[np.ndarray, np.ndarray, list[int]]:
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
    device = next(model.parameters()).device
    extra: dict[str, Tensor] = {}
    if not valid.all():  # without padding the fastest kernels want no mask at all
        extra["attention_mask"] = torch.from_numpy(valid).to(device)
        positions = np.maximum(valid.cumsum(1) - 1, 0)
        extra["position_ids"] = torch.from_numpy(positions).to(device)
    return model(
        input_ids=torch.from_numpy(ids).to(device),
        logits_mask=torch.from_numpy(wanted).to(device),
        **extra,
    ).logits
