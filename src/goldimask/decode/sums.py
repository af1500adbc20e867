"""The attention of the first block, carried from step to step of one example.

In the first block queries, keys and values depend on token and position alone, so that of

    N_i = sum_j exp(s_ij - m_i) v_j        D_i = sum_j exp(s_ij - m_i)        o_i = N_i / D_i

only the terms of the positions that were filled in since the last step change: theirs before are
taken away, theirs now are added. The rows of these positions are summed afresh, and so is a row
whose D_i has fallen below `LEAST` of its largest value, where rounding errors of what was taken
away would begin to show. m_i is the largest score when the row was last summed afresh. Where more
than `FEW` positions changed, all rows are summed afresh.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn import functional as F

from goldimask.decode import kernels
from goldimask.decode.fused import Block, Lean

LEAST = np.float32(0.25)
MUCH = np.float32(1e30)
FEW = 32


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
    stale = np.ones(len(canvas), bool) if len(changed) > FEW else np.zeros(len(canvas), bool)
    stale[changed] = True
    gone = sums.k.take(changed, 1), sums.v.take(changed, 1)
    place(sums, lean, changed, canvas)
    if len(changed) <= FEW:
        amend(sums, gone, changed, stale)
    sum_rows(sums, np.flatnonzero(stale))
    kernels.merge(sums.over, 1 / sums.under.reshape(-1), out)


def place(sums: Sums, lean: Lean, where: np.ndarray, canvas: np.ndarray) -> None:
    """Queries, keys and values of the tokens that stand at `where` now."""
    assert lean.table is not None
    sums.canvas[where] = canvas[where]
    looked_up = F.embedding(torch.from_numpy(canvas[where]), lean.table).numpy()
    spread(lean, lean.blocks[0], looked_up, where, sums.q, sums.k, sums.v)


def spread(
    lean: Lean,
    block: Block,
    qkv: np.ndarray,
    at: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
) -> None:
    """Rows [n, (H + 2 H_kv) d] at positions `at` [n] -> rotated queries and keys, and values."""
    queries, width = block.heads * block.size, block.kv_heads * block.size
    turns = (lean.cos, lean.sin, at, at)
    kernels.rotate(qkv, 0, *turns, block.scaling, q)
    kernels.rotate(qkv, queries, *turns, kernels.ONE, k)
    kernels.place(qkv, queries + width, at, v)


def amend(
    sums: Sums, gone: tuple[np.ndarray, np.ndarray], changed: np.ndarray, stale: np.ndarray
) -> None:
    """The terms of `gone` (keys and values [H_kv, c, d]) leave the sums, those of `changed` enter.

    stale [T] is set where some head's sum falls below `LEAST` of its largest value, or is so large
    that an exponential may have been cut off.
    """
    heads, _, size = sums.k.shape
    top, under, peak = (x.reshape(heads, -1) for x in (sums.top, sums.under, sums.peak))
    q, over = (torch.from_numpy(x).view(heads, -1, size) for x in (sums.q, sums.over))
    k = torch.from_numpy(np.concatenate([sums.k.take(changed, 1), gone[0]], axis=1))
    v = torch.from_numpy(np.concatenate([sums.v.take(changed, 1), gone[1]], axis=1))
    scores = torch.bmm(k, q.transpose(1, 2))  # [H_kv, 2 c, g T]
    terms = scores.numpy()
    terms -= top[:, None]
    np.exp(np.minimum(terms, kernels.HIGHEST, out=terms), out=terms)
    terms[:, len(changed) :] *= -1
    under += terms.sum(1)
    over.baddbmm_(scores.transpose(1, 2), v)
    np.maximum(peak, under, out=peak)
    unsure = (sums.under < LEAST * sums.peak) | (sums.under > MUCH)
    stale |= unsure.any(0)


def sum_rows(sums: Sums, rows: np.ndarray) -> None:
    """The sums of some rows [n] over all keys."""
    heads, count, size = sums.k.shape
    q = torch.from_numpy(sums.q.take(rows, 1))  # [H, n, d]
    k, v = torch.from_numpy(sums.k), torch.from_numpy(sums.v)
    scores = torch.bmm(q.view(heads, -1, size), k.transpose(1, 2))  # [H_kv, g n, T]
    flat, shape = scores.numpy().reshape(-1, count), (len(sums.q), len(rows))
    sums.top[:, rows] = flat.max(1).reshape(shape)
    share = np.empty(len(flat), np.float32)
    kernels.soften(flat, count, share)
    sums.over[:, rows] = torch.bmm(scores, v).numpy().reshape(q.shape)
    sums.under[:, rows] = sums.peak[:, rows] = 1 / share.reshape(shape)
