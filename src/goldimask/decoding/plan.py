"""How many positions each step of a block commits, for decoders that do not decide by score.

    even     n // s per step, the first n mod s steps one more                              LLaDA
    dream    int(m (1 - s_i / t_i)) of the m still masked, all at the last step             Dream
    origin   each masked position on its own with probability 1 - s_i / t_i, all at the end  Dream

where t_i runs from 1 to eps in equal steps and s_i is the next time. Steps that would commit
nothing are left out: they need no model call and none is made (LLaDA and Dream make and count them,
so their number of calls is `steps` even then). Dream's counts are of this example alone; as
released all rows of a batch share one.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from goldimask.decoding.types import Settings

Quota = int | np.ndarray  # how many positions, or which ones
Planner = Callable[[np.ndarray, int, Settings, np.random.Generator], list[Quota]]


def even(
    open_: np.ndarray, steps: int, settings: Settings, rng: np.random.Generator
) -> list[Quota]:
    """Equal shares, the remainder first."""
    base, extra = divmod(len(open_), steps)
    counts = [base + (i < extra) for i in range(steps)]
    return [c for c in counts if c]


def times(steps: int, eps: float) -> np.ndarray:
    """Probability 1 - s/t of each step; 1 at the last."""
    t = np.linspace(1.0, eps, steps + 1)
    share = 1.0 - t[1:] / t[:-1]
    share[-1] = 1.0
    return share


def dream(
    open_: np.ndarray, steps: int, settings: Settings, rng: np.random.Generator
) -> list[Quota]:
    """Dream's truncated shares of what is still masked."""
    left = len(open_)
    counts: list[Quota] = []
    for i, share in enumerate(times(steps, settings.eps)):
        count = left if i == steps - 1 else int(left * share)
        left -= count
        if count:
            counts.append(count)
    return counts


def origin(
    open_: np.ndarray, steps: int, settings: Settings, rng: np.random.Generator
) -> list[Quota]:
    """The positions each step commits, drawn ahead: they do not depend on the scores."""
    left = open_
    sets: list[Quota] = []
    for share in times(steps, settings.eps):
        now = rng.random(len(left)) < share
        if now.any():
            sets.append(left[now])
        left = left[~now]
    return sets


def block_steps(size: int, settings: Settings, rate: float) -> int:
    """Steps of a block: its share of `settings.steps`, else `rate` per position."""
    if settings.steps is None:
        return max(1, int(np.ceil(size * rate)))
    return settings.steps // -(-settings.length // settings.block)
