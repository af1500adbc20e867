"""Keeping the best few candidates of each example, without leaving the device."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from goldimask.keys import Keys, Stream
from goldimask.processes import send
from goldimask.types import Batch


def highest(score: Tensor, among: Tensor, count: Tensor) -> Tensor:
    """[B, T] bool: the `count[b]` positions of `among` with the highest score, ties to the lowest
    index; all of `among` when there are fewer.
    """
    masked = torch.where(among, score.double(), -torch.inf)
    order = masked.sort(dim=1, descending=True, stable=True).indices
    rank = torch.empty_like(order).scatter_(
        1, order, torch.arange(order.shape[1], device=order.device).expand_as(order)
    )
    # a candidate scored -inf ties with what is not a candidate, so rank alone cannot tell them
    # apart
    first = (~among).long().cumsum(1)
    lost = torch.where(masked.isneginf() & among, first, 0)
    return among & (rank - lost < count[:, None])


def uniforms(batch: Batch, keys: Keys, stream: Stream) -> Tensor:
    """[B, T] float64: one uniform number per supervisable position, zero elsewhere.

    Drawn per example in the order of its positions, so padding and batch mates do not matter.
    """
    response, ids = batch.on_host()
    out = np.zeros(response.shape)
    for b, example_id in enumerate(ids):
        positions = np.flatnonzero(response[b])
        out[b, positions] = keys.rng(example_id, stream).random(len(positions))
    return send(out, batch.ids.device)
