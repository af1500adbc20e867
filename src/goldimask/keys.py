"""Counter-based randomness: (seed, epoch, example id, stream) -> generator.

No draw depends on the batch an example sits in, on the rank that holds it, on accumulation, or on a
resume. Each purpose has its own stream, so that changing the selector cannot change the corruption:
two methods with the same seed are *paired*. The library has no other source of randomness.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Stream(IntEnum):
    """One number per purpose. Append only: a changed number changes every published run."""

    NOISE = 0  # t, rho, and which positions are masked
    SELECT = 1  # randomised maximisers, random reveals
    WEIGH = 2  # weighers that draw
    RESAMPLE = 3  # GIFT's second mask
    COMPONENT = 4  # LIFT's random policy
    ORDER = 5  # order of the examples in an epoch
    SPLIT = 6  # train / validation split
    TASK = 7  # generated problems
    INIT = 8  # weights of a model made from scratch
    DECODE = 9  # sampling while decoding
    STUDY = 10  # draws of the measurement studies
    RESPONSE = 11  # style of generated responses


@dataclass(frozen=True)
class Keys:
    """The two coordinates a loop knows; the step adds example id and stream."""

    seed: int
    epoch: int = 0

    def rng(self, example_id: int, stream: Stream) -> np.random.Generator:
        entropy = [self.seed, self.epoch, int(example_id), int(stream)]
        return np.random.Generator(np.random.Philox(np.random.SeedSequence(entropy)))


def content_id(*parts: str | bytes) -> int:
    """A stable 63-bit id made from an example's content."""
    digest = hashlib.blake2b(digest_size=8)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return int.from_bytes(digest.digest(), "little") >> 1


def torch_seed(seed: int, stream: Stream, *counters: int) -> int:
    """A 63-bit seed for a `torch.Generator`, where numpy cannot serve (weights, dropout)."""
    return content_id(",".join(map(str, (seed, int(stream), *counters))))
