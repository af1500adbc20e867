"""Arithmetic modulo a small number, shared by the families that count.

Problems are about last digits: modulo 10, with factors 3, 7 and 9, which are bijections, so that a
chain of operations does not collapse to zero. The tables are small enough for a small model.
Pretraining may begin with a wider world (modulo 17), in which the tables are too large to be
learned soon, and the model first learns to look things up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SYMBOLS = ("+", "-", "*")
VERBS = {"+": "add", "-": "take", "*": "times"}  # the wordy form


@dataclass(frozen=True)
class Numbers:
    """A modulus, and the factors that occur as literals; literal addends are 1 to 9."""

    modulus: int
    factors: tuple[int, ...]

    def apply(self, symbol: str, left: int, right: int) -> int:
        value = {"+": left + right, "-": left - right, "*": left * right}[symbol]
        return value % self.modulus


NARROW = Numbers(10, (3, 7, 9))
WIDE = Numbers(17, (2, 3, 4, 5))


def draw_symbol(rng: np.random.Generator) -> str:
    return SYMBOLS[int(rng.integers(3))]


def draw_literal(rng: np.random.Generator, symbol: str, numbers: Numbers) -> int:
    """The right side of an operation."""
    if symbol == "*":
        return numbers.factors[int(rng.integers(len(numbers.factors)))]
    return int(rng.integers(1, 10))
