"""Arithmetic on the last digit, shared by the families that count.

One small modulus for all of them: the tables can be learned by a small model. Multiplication by 3,
7 and 9 is a bijection modulo 10, so that a chain of operations does not collapse to zero.
"""

from __future__ import annotations

import numpy as np

MODULUS = 10
SYMBOLS = ("+", "-", "*")
VERBS = {"+": "add", "-": "take", "*": "times"}  # the wordy form
FACTORS = (3, 7, 9)


def apply(symbol: str, left: int, right: int) -> int:
    """`left symbol right`, last digit."""
    value = {"+": left + right, "-": left - right, "*": left * right}[symbol]
    return value % MODULUS


def draw_operation(rng: np.random.Generator) -> tuple[str, int]:
    """An operator and a literal for its right side."""
    symbol = SYMBOLS[int(rng.integers(3))]
    if symbol == "*":
        return symbol, FACTORS[int(rng.integers(len(FACTORS)))]
    return symbol, int(rng.integers(1, MODULUS))
