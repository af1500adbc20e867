"""The attention of the first block, carried from step to step of one example.

In the first block queries, keys and values depend on token and position alone, so that of

    N_i = sum_j exp(s_ij - m_i) v_j        D_i = sum_j exp(s_ij - m_i)        o_i = N_i / D_i

only the terms of the positions that were filled in since the last step change: theirs before are
taken away, theirs now are added. The rows of these positions are summed afresh, and so is a row
whose D_i has fallen below `LEAST` of its largest value, where rounding errors of what was taken
away would begin to show. m_i is the largest score when the row was last summed afresh. Where more
than `FEW` positions changed, everything is summed afresh, by matrix products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from goldimask.decode import kernels
from goldimask.decode.fused import Block, Lean

LEAST = np.float32(0.25)
FEW = 10


@dataclass
class Sums:
    """Of a canvas [T]; H query heads, H_kv key heads of size d."""

    canvas: np.ndarray  # [T], as last seen
    q: np.ndarray  # [H, T, d] rotated and scaled
    k: np.ndarray  # [H_kv, T, d] rotated
    v: np.ndarray  # [H_kv, T, d]
    over: np.ndarray  # [H, T, d] the sums N
    under: np.ndarray  # [H, T] the sums D
    top: np.ndarray  # [H, T] m
    peak: np.ndarray  # [H, T] the largest D since the row was summed afresh


def new_sums(block: Block, size: int) -> Sums:
    q, over = (np.zeros((block.heads, size, block.size), np.float32) for _ in range(2))
    k, v = (np.zeros((block.kv_heads, size, block.size), np.float32) for _ in range(2))
    under, top, peak = (np.zeros((block.heads, size), np.float32) for _ in range(3))
    return Sums(np.full(size, -1), q, k, v, over, under, top, peak)


def carry(sums: Sums, lean: Lean, canvas: np.ndarray, out: np.ndarray) -> None:
    """Bring the sums to `canvas` and write o into `out` [T, H d]."""
    changed = np.flatnonzero(canvas != sums.canvas)
    if len(changed) > FEW:
        place(sums, lean, changed, canvas)
        sum_all(sums)
    elif len(changed):
        gone = sums.k[:, changed], sums.v[:, changed]
        place(sums, lean, changed, canvas)
        stale = np.zeros(len(canvas), bool)
        stale[changed] = True
        terms = (sums.over, sums.under, sums.top, sums.peak)
        kernels.amend(sums.q, sums.k, sums.v, *gone, changed, *terms, LEAST, stale)
        kernels.sum_rows(sums.q, sums.k, sums.v, np.flatnonzero(stale), *terms)
    kernels.merge(sums.over, 1 / sums.under.reshape(-1), out)


def place(sums: Sums, lean: Lean, where: np.ndarray, canvas: np.ndarray) -> None:
    """Queries, keys and values of the tokens that stand at `where` now."""
    block = lean.blocks[0]
    assert lean.table is not None
    sums.canvas[where] = canvas[where]
    x = F.embedding(torch.from_numpy(canvas[where]), lean.table).numpy()
    queries, width = block.heads * block.size, block.kv_heads * block.size
    turns = (lean.cos, lean.sin, where, where)
    kernels.rotate(x, 0, *turns, block.scaling, sums.q)
    kernels.rotate(x, queries, *turns, kernels.ONE, sums.k)
    kernels.place(x, queries + width, where, sums.v)


def sum_all(sums: Sums) -> None:
    """`kernels.sum_rows` of all rows, by matrix products."""
    heads, count, size = sums.k.shape
    q, k, v = (torch.from_numpy(x) for x in (sums.q, sums.k, sums.v))
    scores = torch.bmm(q.view(heads, -1, size), k.transpose(1, 2))  # [H_kv, g T, T]
    flat = scores.numpy().reshape(-1, count)
    sums.top[:] = flat.max(1).reshape(sums.top.shape)
    share = np.empty(len(flat), np.float32)
    kernels.soften(flat, count, share)
    torch.bmm(scores, v, out=torch.from_numpy(sums.over).view(heads, -1, size))
    sums.under[:] = sums.peak[:] = 1 / share.reshape(sums.top.shape)
