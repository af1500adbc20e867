"""Arithmetic on small numbers, shared by the families that count.

    a + n, a - n        n = 1 .. 4, all values from 0 to 19
    a max b, a min b

A result is near the number it comes from. So a small model can learn the tables by steps:
it first finds out where to look, then in which direction to go, then how far. With last digits
(modulo 10) nothing is gained before all of it is known, and nothing was learned (docs/tiny.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

LIMIT = 20  # values are below it
LARGEST = 4  # literal on the right of + and -
EXTREMES = ("max", "min")


def apply(symbol: str, left: int, right: int) -> int:
    """The value of an operation."""
    if symbol in EXTREMES:
        return max(left, right) if symbol == "max" else min(left, right)
    return left + right if symbol == "+" else left - right


def draw_step(
    rng: np.random.Generator, value: int, symbols: Sequence[str] = "+-"
) -> tuple[str, int]:
    """An operation and a literal that keep the value within its limits."""
    while True:
        symbol = symbols[int(rng.integers(len(symbols)))]
        least, most = (0, LIMIT) if symbol in EXTREMES else (1, LARGEST + 1)
        amount = int(rng.integers(least, most))
        if 0 <= apply(symbol, value, amount) < LIMIT:
            return symbol, amount
