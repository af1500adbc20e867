"""Linear support, phi(s) = s: F is a directed cut and its marginals are cheap to keep.

    F(R) = sum over i outside R, j in R of lambda_i A_ij
    Delta_y(R) = sum over i outside R of lambda_i A_iy  -  lambda_y sum over j in R of A_yj

Moving x into R changes Delta_y by -(lambda_x A_xy + lambda_y A_yx); moving it out changes it back.
`linear_problem` remembers the last set it was asked about and applies the difference, O(N) per
member that changed, so the plain maximisers of `oracle.py` are the fast path.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from goldimask.objective import Floats, Support, marginals
from goldimask.select.oracle import Mask, Problem, problem, tie_width


def linear_problem(attention: ArrayLike, priority: ArrayLike, support: Support) -> Problem:
    """A problem with incremental marginals; any other support gets the plain ones."""
    if support.kind != "linear":
        return problem(attention, priority, support)
    a = np.array(attention, dtype=np.float64)
    np.fill_diagonal(a, 0.0)
    lam = np.asarray(priority, dtype=np.float64)
    couple = lam[:, None] * a
    couple = couple + couple.T  # [x, y]: what moving x into R costs y
    nobody = np.zeros(len(lam), dtype=bool)
    last = nobody.copy()
    kept = marginals(a, lam, nobody, support) if len(lam) else np.zeros(0)

    def delta(reveal: Mask) -> Floats:
        for x in np.flatnonzero(reveal != last):
            kept[:] += couple[x] if last[x] else -couple[x]
            last[x] = reveal[x]
        return np.where(reveal, -np.inf, kept)

    return Problem(a, lam, support, delta, tie_width(a, lam, support))
