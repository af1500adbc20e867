"""How good is a reveal set: against random sets of its size, and against an upper bound.

Two bounds hold for every R with |R| <= B; the smaller one is reported.

    submodularity   F(R) <= sum of the B largest positive initial marginals
    saturation      F(R) <= sum over i of lambda_i phi(sum of the B largest A_ij)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from goldimask.objective import Support, marginals, value
from goldimask.select.base import Selection


@dataclass(frozen=True)
class Diagnostics:
    """What the logs and the viewer show about one selection."""

    value: float  # F(R)
    random: float  # mean F of random sets of the same size
    upper: float  # no set of at most B reveals reaches more
    over_random: float  # value / random, 0 where random sets are worth nothing
    of_upper: float  # value / upper, 1 where nothing can be gained
    negative_share: float  # of the reveals, with a marginal below zero (D29)
    gains: list[float]  # marginal of each reveal, in order

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def negative_share(gains: ArrayLike) -> float:
    """Share of reveals that lowered F: the price of an exact budget (D29)."""
    g = np.asarray(gains, dtype=np.float64)
    return float((g < 0).mean()) if g.size else 0.0


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


def random_value(
    attention: ArrayLike, priority: ArrayLike, size: int, support: Support,
    rng: np.random.Generator, draws: int,
) -> float:  # fmt: skip
    """Mean F of random sets."""
    n = len(np.asarray(priority))
    total = 0.0
    for _ in range(draws):
        reveal = np.zeros(n, dtype=bool)
        reveal[rng.permutation(n)[:size]] = True
        total += value(attention, priority, reveal, support)
    return total / draws


def diagnose(
    attention: ArrayLike,
    priority: ArrayLike,
    selection: Selection,
    budget: int,
    support: Support | None = None,
    rng: np.random.Generator | None = None,
    draws: int = 16,
) -> Diagnostics:
    """Compare a selection with random sets and with the upper bound. O(draws N^2)."""
    phi = support or Support()
    rng = rng or np.random.default_rng(0)
    chance = random_value(attention, priority, len(selection.order), phi, rng, draws)
    upper = upper_bound(attention, priority, budget, phi)
    return Diagnostics(
        value=selection.value,
        random=chance,
        upper=upper,
        over_random=selection.value / chance if chance > 0 else 0.0,
        of_upper=selection.value / upper if upper > 0 else 1.0,
        negative_share=negative_share(selection.gains),
        gains=[float(g) for g in selection.gains],
    )
