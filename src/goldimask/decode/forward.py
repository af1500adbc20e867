"""One model call for the active examples, with the LM head on the rows of their windows alone.

A response position i is predicted by row i (LLaDA) or by row max(i - 1, 0) (Dream, which keeps the
alignment of its autoregressive parent). Examples of unequal length are padded on either side;
padding is never attended, and position ids count real tokens, so that an example sees the same
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

from goldimask.decode.rows import Row
from goldimask.decode.types import Settings


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
    predictors = [
        predictor(row.prompt + where, backbone.shift) + offset
        for row, where, offset in zip(rows, windows, offsets, strict=True)
    ]
    if settings.cfg:
        blind = ids.copy()
        for b, (row, offset) in enumerate(zip(rows, offsets, strict=True)):
            blind[b, offset : offset + row.prompt] = backbone.mask_id
        ids, valid = np.concatenate([ids, blind]), np.concatenate([valid, valid])
        predictors = [*predictors, *predictors]
    logits = call(backbone.model, ids, valid, predictors)
    if settings.cfg:
        given, free = logits.chunk(2)
        logits = free + (settings.cfg + 1) * (given - free)
    return logits


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


def predictor(positions: np.ndarray, shift: bool) -> np.ndarray:
    """The row whose logits predict each position."""
    return np.maximum(positions - 1, 0) if shift else positions


def call(
    model: nn.Module, ids: np.ndarray, valid: np.ndarray, predictors: Sequence[np.ndarray]
) -> Tensor:
    """Run the model; the head sees each needed row once, in order."""
    device = next(model.parameters()).device
    keep = np.zeros_like(valid)
    for b, rows in enumerate(predictors):
        keep[b, rows] = True
    extra: dict[str, Tensor] = {}
    if not valid.all():
        extra["attention_mask"] = torch.from_numpy(valid).to(device)
        if not valid[:, 0].all():  # padded on the left: count real tokens
            positions = np.maximum(valid.cumsum(1) - 1, 0)
            extra["position_ids"] = torch.from_numpy(positions).to(device)
    logits = model(
        input_ids=torch.from_numpy(ids).to(device),
        logits_to_keep=torch.from_numpy(keep).to(device),
        use_cache=False,
        **extra,
    ).logits.reshape(int(keep.sum()), -1)  # [kept, V]
    place = keep.ravel().cumsum().reshape(keep.shape) - 1
    order = np.concatenate([place[b, rows] for b, rows in enumerate(predictors)])
    if len(order) == logits.shape[0]:  # no row serves two positions, so already in order
        return logits
    return logits[torch.from_numpy(order).to(device)]
