"""Random numbers of the sampling maximisers, defined so that every engine can make the same draws.

A maximiser takes exactly one number from its generator, `seed = rng.integers(2**63)`. Step j then gives
candidate x the key

    key(j, x) = mix(seed + GOLDEN * (j * 2**32 + x))  >> 1        (mod 2**64, mix = splitmix64's finaliser)

and "a uniform draw from a pool" is the pool member with the lowest key (lowest index on equal keys).
Since the keys of a step are independent of the pool, that member is uniform over the pool. No engine
has to rank the pool, to draw in a certain order, or to know how many numbers another step consumed:
a lazy engine tries candidates in the order of their keys until one is in the pool, a batched one takes
a masked argmin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15
MIX1 = 0xBF58476D1CE4E5B9
MIX2 = 0x94D049BB133111EB


def draw_seed(rng: np.random.Generator) -> int:
    """The one number a maximiser takes from its generator."""
    return int(rng.integers(2**63))


def step_keys(seed: int, step: int, n: int) -> NDArray[np.int64]:
    """Keys of candidates 0..n-1 at a step, nonnegative. [n]"""
    z = np.uint64(seed) + np.uint64(GOLDEN) * (
        (np.uint64(step) << np.uint64(32)) + np.arange(n, dtype=np.uint64)
    )
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX2)
    return ((z ^ (z >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
