"""The records that flow through one training step. Shapes are documented here and nowhere else.

    Example -> Batch -> Corruption -> Signals -> Reveal -> supervised -> Weights -> StepOutput

B is the number of examples, T the padded length, N the largest number of candidates in the batch.
Symbols are the paper's: C candidates, R reveal, S supervised, t noise level, rho over-masking,
K = floor(tL) the supervised count, L the number of supervisable positions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from goldimask.keys import Keys
from goldimask.processes import send


class Signal(StrEnum):
    """What a scoring pass can be asked for."""

    LOGP = "logp"  # log-probability of the ground-truth token
    ENTROPY = "entropy"  # entropy of the predicted distribution, in nats
    ATTENTION = "attention"  # head-mean attention rows of the candidates
    RECEIVED = "received"  # attention received by each position, summed over all real queries


@dataclass(frozen=True)
class Example:
    """One prompt-response pair as token ids; the boundary is exact."""

    ids: Sequence[int]  # prompt followed by response
    prompt_length: int
    supervisable: Sequence[bool]  # one flag per position; never true inside the prompt
    example_id: int  # stable, from content, 0 <= id < 2**63
    classes: Sequence[int] | None = None  # kind of every token, where the corpus tells them apart

    def __len__(self) -> int:
        return len(self.ids)


@dataclass(frozen=True)
class Batch:
    """Right- or left-padded examples."""

    ids: Tensor  # [B, T] int64
    response: Tensor  # [B, T] bool, the supervisable positions (L per row)
    valid: Tensor  # [B, T] bool, false at padding
    example_id: Tensor  # [B] int64
    padded: bool = True  # known when the batch is made, so that nobody has to ask the device
    host: tuple[np.ndarray, np.ndarray] | None = (
        None  # response and example_id, for the same reason
    )

    @property
    def size(self) -> int:
        return self.ids.shape[0]

    def lengths(self) -> Tensor:
        """L per example, [B] int64."""
        return self.response.sum(1)

    def attention_mask(self) -> Tensor | None:
        """The 2-D padding mask, or None when nothing is padded (the fastest kernels need None)."""
        return self.valid if self.padded else None

    def on_host(self) -> tuple[np.ndarray, list[int]]:
        """`response` and `example_id`, without a wait where they are known."""
        response, numbers = self.host or (
            self.response.cpu().numpy(),
            self.example_id.cpu().numpy(),
        )
        return response, numbers.tolist()

    def to(self, device: torch.device | str) -> Batch:
        response, numbers = self.on_host()
        place, first = torch.device(device), self.ids.device.type == "cpu"
        tensors = (self.ids, self.response, self.valid, self.example_id)
        moved = (send(x, place) if first else x.to(place) for x in tensors)
        return Batch(*moved, padded=self.padded, host=(response, np.array(numbers)))


@dataclass(frozen=True)
class Corruption:
    """What the noise did to a batch."""

    candidates: Tensor  # [B, T] bool, masked before any reveal (C)
    t: Tensor  # [B] float32, target noise level
    rho: Tensor  # [B] float32, over-masking; zero where a method does not over-mask
    keep: Tensor  # [B] int64, the supervised count K; |C| where a method has no budget
    host: tuple[np.ndarray, np.ndarray] | None = None  # candidates and keep: drawn on the host

    def on_host(self) -> tuple[np.ndarray, np.ndarray]:
        """`candidates` and `keep`, without a wait where they are known."""
        return self.host or (self.candidates.cpu().numpy(), self.keep.cpu().numpy())

    def budget(self) -> Tensor:
        """B = |C| - K, at least zero. [B] int64"""
        return (self.candidates.sum(1) - self.keep).clamp_min(0)


@dataclass(frozen=True)
class Signals:
    """What one scoring pass measured. Unrequested fields are None."""

    logp: Tensor | None = None  # [B, T] float32, zero outside the scored positions
    entropy: Tensor | None = None  # [B, T] float32, zero outside the scored positions
    attention: Tensor | None = None  # [B, N, T] float32: row n is candidate `rows[b, n]`, all keys
    rows: Tensor | None = None  # [B, N] int64 positions of the candidates in order, -1 = padding
    received: Tensor | None = None  # [B, T] float32


@dataclass(frozen=True)
class Reveal:
    """The reveal set R, and how it came about."""

    mask: Tensor  # [B, T] bool, a subset of the candidates
    order: Sequence[Sequence[int]] | None = None  # per example: positions in the order of choice
    gains: Sequence[Sequence[float]] | None = None  # per example: marginal gain of each choice
    value: Sequence[float] | None = None  # per example: F(R)
    host: np.ndarray | None = None  # `mask`, where it was made on the host


@dataclass(frozen=True)
class Weights:
    """loss_b = -scale_b * sum_i value_bi * log p_bi"""

    value: Tensor  # [B, T] float32, zero off the supervised set, detached
    scale: Tensor  # [B] float32, 1/(tL) unless the method says otherwise


@dataclass(frozen=True)
class StepOutput:
    """Everything one step decided; trainers, studies and pages read this and never recompute."""

    loss: Tensor  # scalar, on the graph
    per_example: Tensor  # [B] detached
    corruption: Corruption
    signals: Signals  # of the probe pass; empty when the method needs none
    reveal: Reveal
    supervised: Tensor  # [B, T] bool (S)
    logp: Tensor  # [B, T] detached, of the training pass at S
    weights: Weights
    seconds: Mapping[str, float] = field(default_factory=dict)  # per phase
    extra: Mapping[str, Any] = field(default_factory=dict)  # what a method wants logged or shown


@runtime_checkable
class Overlapping(Protocol):
    """A selector whose work can go on beside the model's."""

    def runs(self, device: torch.device) -> str:
        """`host` where another thread may do it."""
        ...

    def begin(
        self, c: Corruption, s: Signals, batch: Batch, keys: Keys, spare: float = 0.0
    ) -> Callable[[], Reveal]: ...
