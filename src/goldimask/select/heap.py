"""Plain lazy greedy (Minoux) with a heap, float64: what the benchmark compares D against.

A heap of stale marginals; the top one is evaluated until it stays on top. Equal marginals leave the
heap by index; marginals that differ by rounding are not treated as ties.
"""

from __future__ import annotations

from heapq import heapify, heapreplace

import numpy as np

from goldimask.select.kernels import delta64, kernel


@kernel
def run_heap(s, budget, order, gains):
    """D from an empty state. Returns evaluations."""
    heap = [(-delta64(s, x), x, 0) for x in range(s.at.shape[0])]
    evaluations = len(heap)
    heapify(heap)
    gone = (1e300, -1, 0)
    for step in range(budget):
        while heap[0][2] != step:
            x = heap[0][1]
            heapreplace(heap, (-delta64(s, x), x, step))
            evaluations += 1
        x = heap[0][1]
        order[step] = x
        gains[step] = -heap[0][0]
        heapreplace(heap, gone)
        s.mass[x] = 0.0
        for i in range(s.support.shape[0]):
            s.support[i] += np.float64(s.at[x, i])
    return evaluations
