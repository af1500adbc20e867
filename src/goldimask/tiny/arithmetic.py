"""Arithmetic modulo a small prime, shared by the families that count.

One modulus for all of them: the tables are small enough to be learned by a small model, and a prime
keeps multiplication from collapsing to zero.
"""

from __future__ import annotations

MODULUS = 17
SYMBOLS = ("+", "-", "*")
VERBS = {"+": "add", "-": "take", "*": "times"}  # the wordy form


def apply(symbol: str, left: int, right: int) -> int:
    """`left symbol right` modulo the shared modulus."""
    value = {"+": left + right, "-": left - right, "*": left * right}[symbol]
    return value % MODULUS
