"""A bound that no reveal set exceeds, to hold the maximisers against.

Two bounds hold for every R with |R| <= B; the smaller one counts.

    submodularity   F(R) <= sum of the B largest positive initial marginals
    saturation      F(R) <= sum over i of lambda_i phi(sum of the B largest A_ij)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from goldimask.objective import Support, marginals


def upper_bound(
    attention: ArrayLike, priority: ArrayLike, budget: int, support: Support | None = None
) -> float:
    """A value no reveal set of at most `budget` members exceeds."""
    phi = support or Support()
    a = np.array(attention, dtype=np.float64)
    np.fill_diagonal(a, 0.0)
    lam = np.asarray(priority, dtype=np.float64)
    if budget == 0 or not len(lam):
        return 0.0
    first = marginals(a, lam, np.zeros(len(lam), dtype=bool), phi)
    submodular = np.sort(first)[::-1][:budget].clip(min=0.0).sum()
    most = np.sort(a, axis=1)[:, ::-1][:, :budget].sum(1)
    return float(min(submodular, (lam * phi(most)).sum()))
