"""The attention of the first block, carried from step to step of one example.

In the first block queries, keys and values depend on token and position alone, so that of

    N_i = sum_j exp(s_ij - m_i) v_j        D_i = sum_j exp(s_ij - m_i)        o_i = N_i / D_i

only the terms of the positions that were filled in since the last step change: theirs before are
taken away, theirs now are added. The rows of these positions are summed afresh, and so is a row
whose D_i has fallen below `LEAST` of its largest value, where rounding errors of what was taken
away would begin to show. m_i is the largest score when the row was last summed afresh. Where more
than a third of the positions changed, all rows are summed afresh.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from goldimask.decoding import kernels
from goldimask.decoding.fused import Block, Lean

LEAST = np.float32(0.25)


@dataclass
class Sums:
    """Of a canvas [T]; H query heads, H_kv key heads of size d."""

    canvas: np.ndarray  # [T], as last seen
    q: np.ndarray  # [H, d, T] rotated and scaled
    k: np.ndarray  # [H_kv, d, T] rotated
    v: np.ndarray  # [H_kv, d, T]
    over: np.ndarray  # [H, d, T] the sums N
    under: np.ndarray  # [H, T] the sums D
    top: np.ndarray  # [H, T] m
    peak: np.ndarray  # [H, T] the largest D since the row was summed afresh


def new_sums(block: Block, size: int) -> Sums:
    q, over = (np.zeros((block.heads, block.size, size), np.float32) for _ in range(2))
    k, v = (np.zeros((block.kv_heads, block.size, size), np.float32) for _ in range(2))
    under, top, peak = (np.zeros((block.heads, size), np.float32) for _ in range(3))
    return Sums(np.full(size, -1), q, k, v, over, under, top, peak)


def carry(sums: Sums, lean: Lean, canvas: np.ndarray, out: np.ndarray) -> None:
    """Bring the sums to `canvas` and write o into `out` [T, H d]."""
    assert lean.table is not None
    made_of = (lean.table, lean.cos, lean.sin, lean.blocks[0].scaling, sums.q, sums.k, sums.v)
    kept = (sums.over, sums.under, sums.top, sums.peak)
    kernels.carry(canvas, sums.canvas, *made_of, *kept, LEAST, out)
