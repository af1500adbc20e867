"""Random numbers of the sampling maximisers, defined so that every engine makes the same draws.

A maximiser takes exactly one number from its generator, `seed = rng.integers(2**63)`. Step j turns
it into 64 bits, splitmix64(seed + j * GOLDEN) = (high, low), and gives candidate x the 31-bit key

    h = (x * C) ^ low;  h ^= h >> 16;  h *= M1;  h ^= h >> 13;  h += high;  h *= M2;  h ^= h >> 16
    key = h >> 1                                                          (all modulo 2**32)

"A uniform draw from a pool" is the pool member with the lowest key, lowest index on equal keys: the
keys know nothing of the pool, so every member is as likely as another. No engine has to rank the
pool, to draw in a certain order, or to know how many numbers another step consumed: a lazy engine
tries candidates in the order of their keys until one is in the pool, a batched engine takes a
masked argmin.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GOLDEN = 0x9E3779B97F4A7C15
MIX1 = 0xBF58476D1CE4E5B9
MIX2 = 0x94D049BB133111EB
C = 0x9E3779B1
M1 = 0x85EBCA6B
M2 = 0xC2B2AE35


def draw_seed(rng: np.random.Generator) -> int:
    """The one number a maximiser takes from its generator."""
    return int(rng.integers(2**63))


def step_words(seed: int, steps: int) -> NDArray[np.uint32]:
    """(low, high) of each step. [steps, 2]"""
    z = np.uint64(seed) + np.arange(steps, dtype=np.uint64) * np.uint64(GOLDEN)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(MIX1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(MIX2)
    z = z ^ (z >> np.uint64(31))
    return np.stack([z, z >> np.uint64(32)], 1).astype(np.uint32)


def step_keys(words: NDArray[np.uint32], n: int) -> NDArray[np.uint32]:
    """Keys of candidates 0..n-1 at the step with these two words. [n]"""
    h = np.arange(n, dtype=np.uint32) * np.uint32(C) ^ words[0]
    h = (h ^ (h >> np.uint32(16))) * np.uint32(M1)
    h = ((h ^ (h >> np.uint32(13))) + words[1]) * np.uint32(M2)
    return (h ^ (h >> np.uint32(16))) >> np.uint32(1)
