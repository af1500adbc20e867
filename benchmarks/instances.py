"""Attention-like matrices for the benchmarks of selection.

real     softmax of low-rank + local logits and a sink outside the candidates, heads averaged
sink     a few popular keys      peaked   nearly sparse      flat   nearly uniform
"""

from __future__ import annotations

import numpy as np

from goldimask.errors import GoldimaskError, nearest
from goldimask.objective import Priority

FAMILIES = ("real", "sink", "peaked", "flat")


def instance(family: str, n: int, seed: int = 0, heads: int = 32) -> tuple[np.ndarray, np.ndarray]:
    """(attention [n, n] float32 with rows summing to about 0.42, priority [n])."""
    if family not in FAMILIES:
        raise GoldimaskError(f"--family: unknown '{family}'; {nearest(family, FAMILIES)}")
    rng = np.random.default_rng(seed)
    total = np.zeros((n, n), dtype=np.float32)
    for _ in range(heads if family == "real" else 1):
        weight = np.exp(logits(family, n, rng))
        mass = weight.sum(1, keepdims=True)
        outside = 1.4 * (mass.mean() if family == "real" else mass)  # keys that are no candidates
        total += weight / (mass + outside)
    total /= heads if family == "real" else 1
    np.fill_diagonal(total, 0.0)
    kind = rng.integers(0, 3, n)
    p = np.choose(kind, [rng.beta(1, 8, n), rng.beta(2, 2, n), rng.beta(8, 1, n)])
    return total, Priority()(p)


def logits(family: str, n: int, rng: np.random.Generator) -> np.ndarray:
    if family == "flat":
        return rng.normal(0.0, 0.05, (n, n)).astype(np.float32)
    if family == "peaked":
        return rng.normal(0.0, 4.0, (n, n)).astype(np.float32)
    if family == "sink":
        return (rng.normal(0.0, 2.0, n) + rng.normal(0.0, 0.5, (n, n))).astype(np.float32)
    query, key = rng.normal(size=(2, n, 8)).astype(np.float32)
    apart = np.abs(np.subtract.outer(np.arange(n, dtype=np.float32), np.arange(n)))
    band = 3.0 * np.exp(-apart / np.float32(rng.uniform(2.0, 20.0)))
    return query @ key.T * np.float32(0.35) + band + rng.normal(0.0, 0.5, n).astype(np.float32)
