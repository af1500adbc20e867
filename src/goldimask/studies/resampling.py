"""Bootstrap over examples and seeds, and the interval that every study quotes.

examples, drawn with replacement, carry multinomial weights; a statistic of the weights is
evaluated for every draw; the interval holds its 2.5 % and 97.5 % quantiles
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from goldimask.keys import Keys, Stream


def weights(count: int, draws: int, seed: int = 0, salt: int = 0) -> np.ndarray:
    """Multinomial weights with mean one. [draws, count] float64"""
    rng = Keys(seed, salt).rng(count, Stream.STUDY)
    return rng.multinomial(count, np.full(count, 1.0 / count), size=draws).astype(np.float64)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Percentile interval, 95 %; draws that could not be evaluated (NaN) are left out."""
    kept = values[np.isfinite(values)]
    if not len(kept):
        return float("nan"), float("nan")
    low, high = np.quantile(kept, (0.025, 0.975))
    return float(low), float(high)


def bootstrap(
    statistic: Callable[[np.ndarray], float], count: int, draws: int = 400, seed: int = 0
) -> tuple[float, float]:
    """Interval of a statistic of example weights [count]."""
    return interval(np.array([statistic(w) for w in weights(count, draws, seed)]))


def per_group(values: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
    """Sums of values by group. [count]"""
    return np.bincount(group, values, minlength=count)


def finite(value: Any) -> Any:
    """The same data with None for what is not a number, ready for JSON."""
    if isinstance(value, Mapping):
        return {k: finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, np.generic):
        return finite(value.item())
    return None if isinstance(value, float) and not np.isfinite(value) else value
