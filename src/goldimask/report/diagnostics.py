"""How good a reveal is under the objective, step by step, against random reveals.

    F_k = F({r_1, ..., r_k})      along an order r_1, r_2, ... of revealed candidates

computed incrementally: revealing x adds column x of A to every S_i and takes lambda_x out of the
sum. `goldimask.objective.value` is the definition it is tested against. Random orders come from
`Stream.STUDY` of the example, so that a page is the same every time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from goldimask.keys import Keys, Stream
from goldimask.objective import Floats, Support

DRAWS = 24
POINTS = 48  # of one curve on a page


def path_values(
    attention: Floats, priority: Floats, order: Sequence[int], support: Support
) -> Floats:
    """F_0 .. F_len(order). attention [N, N] with a zero diagonal, priority [N]."""
    columns = np.ascontiguousarray(np.asarray(attention, dtype=np.float64).T)
    s, rest = np.zeros(len(columns)), np.array(priority, dtype=np.float64)
    values = np.zeros(len(order) + 1)
    for k, x in enumerate(order, start=1):
        s += columns[x]
        rest[x] = 0.0
        values[k] = rest @ support(s)
    return values


def random_paths(
    attention: Floats, priority: Floats, budget: int, support: Support, example_id: int
) -> Floats:
    """F along random orders. [DRAWS, budget + 1]"""
    rng = Keys(0).rng(example_id, Stream.STUDY)
    orders = [rng.permutation(len(priority))[:budget] for _ in range(DRAWS)]
    return np.stack([path_values(attention, priority, o.tolist(), support) for o in orders])


def thin(length: int, points: int = POINTS) -> list[int]:
    """At most `points` indices from 0 to length - 1, both ends included."""
    if length <= points:
        return list(range(length))
    return sorted({round(i * (length - 1) / (points - 1)) for i in range(points)})


def against_random(
    attention: Floats, priority: Floats, order: Sequence[int], support: Support, example_id: int
) -> dict[str, Any]:
    """F along `order` and along random orders of the same length, thinned for a page."""
    own = path_values(attention, priority, order, support)
    chance = random_paths(attention, priority, len(order), support, example_id)
    low, high = np.quantile(chance, [0.1, 0.9], axis=0)
    at = thin(len(own))
    pick = lambda row: [float(f"{row[k]:.5g}") for k in at]  # noqa: E731
    return {
        "k": at,
        "own": pick(own),
        "mean": pick(chance.mean(0)),
        "low": pick(low),
        "high": pick(high),
        "draws": DRAWS,
    }
