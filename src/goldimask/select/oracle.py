"""Naive maximisers: float64, one full sweep of marginals per choice, ties to the lowest index.

Readable statements of the algorithms in the paper's appendix "Maximizers for the reveal objective".
They are the oracles of the fast paths and are never used in training.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from goldimask.objective import Support, marginals, value
from goldimask.select.base import Selection


def greedy(attention: ArrayLike, priority: ArrayLike, budget: int, support: Support) -> Selection:
    """D: add the candidate with the largest marginal, exactly `budget` times, even below zero."""
    reveal = np.zeros(len(np.asarray(priority)), dtype=bool)
    order, gains = [], []
    for _ in range(budget):
        delta = marginals(attention, priority, reveal, support)
        best = int(delta.argmax())  # argmax takes the lowest index on ties
        order.append(best)
        gains.append(float(delta[best]))
        reveal[best] = True
    evaluations = sum(len(reveal) - k for k in range(budget))
    return Selection(
        np.array(order, dtype=np.int64),
        np.array(gains),
        value(attention, priority, reveal, support),
        evaluations,
    )
