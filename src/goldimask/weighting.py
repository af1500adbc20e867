"""How much each remaining target counts (paper, section 3.3 and appendix "Loss Weighting").

    u_i = [log p2_i - log p1_i]_+  lambda(p2_i)                 utility of target i
    w_i = min(u_i / nu, c)   with   sum over S of w_i = n = |S|   water-filling

Boundary cases of the paper's proposition, n_+ = number of positive utilities:
    (a) c n_+ > n   the level nu exists and is unique
    (b) c n_+ = n   w = c on the positive ones, 0 elsewhere
    (c) 0 < c n_+ < n   w = c on the positive ones, the rest spread evenly over the others
    (d) n_+ = 0     w = 1

Three options that the paper does not have: `share` makes the cap grow with the targets, c = max(1,
share n); `floor` gives every target at least f, w <- f + (1 - f) w, the mean staying one; `after`
leaves the weights uniform in the first epochs, until p says something about a new skill.

Where nothing was revealed the weights are uniform (D3, docs/decisions.md): without new context
there is no gain to measure. Weights are float64 inside, float32 outside, and always detached.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.objective import Priority, PrioritySpec, priority_curve
from goldimask.registry import Registry
from goldimask.types import Batch, Corruption, Signal, Signals, Weights


class Weigh(Protocol):
    """Weights of the targets from the measured response."""

    @property
    def needs(self) -> frozenset[Signal]: ...

    def __call__(
        self, c: Corruption, s: Signals, batch: Batch, supervised: Tensor, logp: Tensor, keys: Keys
    ) -> Weights: ...


WEIGHERS: Registry[Callable[..., Weigh]] = Registry("weigher")
KeptScale = Literal["paper", "match"]  # when more than K targets are kept (D26, docs/decisions.md)


def water_fill(utility: Tensor, active: Tensor, cap: float | Tensor) -> Tensor:
    """Exact water-filling by sorting, one row per example. [B, T] -> [B, T] float64

    The cap is one number, or one per row [B, 1].

    With the utilities sorted from large to small, capping the k largest leaves n - ck for the
    others, so the level is nu_k = (sum of the rest) / (n - ck). The right k is the first whose next
    utility stays within the cap, u_(k+1) <= c nu_k. Suffix sums are accumulated from the small end,
    so that one huge utility cannot swallow the others.
    """
    u = torch.where(active, utility.double(), 0.0).clamp_min(0.0)
    # the total weight does not depend on the scale of u; normalise so that tiny utilities stay
    # exact
    u = u / u.amax(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    n = active.sum(1, keepdim=True).double()
    positive = (u > 0).sum(1, keepdim=True).double()

    order, index = u.sort(dim=1, descending=True, stable=True)
    rest = order.flip(1).cumsum(1).flip(1)  # rest[k] = sum of order[k:]
    capped = torch.arange(u.shape[1], device=u.device, dtype=torch.float64)[None]
    left = n - cap * capped
    fits = (order * left <= cap * rest * (1 + 1e-15)) & (left > 0)
    k = fits.double().argmax(1, keepdim=True)  # first position that fits
    rest_k, left_k = rest.gather(1, k), left.gather(1, k)
    level = rest_k / left_k
    filled = torch.where(capped < k, cap, order / level.clamp_min(torch.finfo(torch.float64).tiny))
    w = torch.zeros_like(u).scatter(1, index, filled.clamp_max(cap))

    spread = ((n - cap * positive) / (n - positive).clamp_min(1.0)).clamp_min(0.0)
    all_capped = torch.where(u > 0, cap, spread)  # cases (b) and (c)
    w = torch.where(cap * positive <= n, all_capped, w)
    w = torch.where(positive == 0, 1.0, w)  # case (d)
    return torch.where(active, w, 0.0)


def utility(before: Tensor, after: Tensor, priority: Priority) -> Tensor:
    """u = [log p2 - log p1]_+ lambda(p2), elementwise, float64."""
    floor = -1e30  # p1 = 0 would make the gain infinite; finite and huge, it meets the cap
    gain = (after.double() - before.double().clamp_min(floor)).clamp_min(0.0)
    return gain * priority(after.double().exp().clamp(0.0, 1.0))


def n_eff(w: Tensor) -> Tensor:
    """(sum w)^2 / sum w^2 per row, 0 for an empty row."""
    square = w.double().square().sum(1)
    return torch.where(square > 0, w.double().sum(1).square() / square.clamp_min(1e-300), 0.0)


def loss_scale(
    c: Corruption,
    batch: Batch,
    supervised: Tensor | None = None,
    kept_scale: KeptScale = "paper",
) -> Tensor:
    """1/(tL) per example, 0 where there is nothing to supervise. [B] float32

    `kept_scale="match"` multiplies by K/|S| where a selector kept more than K targets, so that
    the total weight is that of K targets (D26, docs/decisions.md).
    """
    length = batch.lengths()
    scale = torch.where(length > 0, 1.0 / (c.t * length.clamp_min(1)), 0.0)
    if kept_scale == "match" and supervised is not None:
        scale = scale * (c.keep / supervised.sum(1).clamp_min(1)).clamp_max(1.0)
    return scale


def revealed_any(c: Corruption, supervised: Tensor) -> Tensor:
    """[B, 1] bool: did this example get any new context?"""
    return (c.candidates & ~supervised).any(1, keepdim=True)


@dataclass(frozen=True)
class Uniform:
    """w = 1."""

    kept_scale: KeptScale = "paper"
    needs: frozenset[Signal] = frozenset()

    def __call__(self, c, s, batch, supervised, logp, keys) -> Weights:
        return Weights(supervised.float(), loss_scale(c, batch, supervised, self.kept_scale))


@dataclass(frozen=True)
class WaterFill:
    """Measured utilities, water-filled or (ablations) only normalised."""

    priority: Priority
    cap: float
    rule: Literal["waterfill", "uncapped", "normalize-then-clip"] = "waterfill"
    kept_scale: KeptScale = "paper"
    share: float | None = None
    floor: float = 0.0
    after: int = 0
    needs: frozenset[Signal] = frozenset({Signal.LOGP})

    def __call__(self, c, s, batch, supervised, logp, keys) -> Weights:
        u = utility(s.logp, logp, self.priority)
        if self.rule == "waterfill":
            n = supervised.sum(1, keepdim=True).double()
            cap = self.cap if self.share is None else (self.share * n).clamp_min(1.0)
            w = water_fill(u, supervised, cap)
            if self.floor:
                w = self.floor * supervised + (1.0 - self.floor) * w
        else:
            w = normalised(u, supervised)
            if self.rule == "normalize-then-clip":
                w = w.clamp_max(self.cap)  # the clipped mass is lost, not redistributed
        weighed = revealed_any(c, supervised) & (keys.epoch >= self.after)
        w = torch.where(weighed, w, supervised.double())
        return Weights(w.float(), loss_scale(c, batch, supervised, self.kept_scale))


def normalised(u: Tensor, active: Tensor) -> Tensor:
    """w = n u / sum u, mean one; uniform where every utility vanishes. Float64."""
    u = torch.where(active, u.double(), 0.0)
    u = u / u.amax(1, keepdim=True).clamp_min(torch.finfo(torch.float64).tiny)
    total, n = u.sum(1, keepdim=True), active.sum(1, keepdim=True)
    w = u * n / total.clamp_min(1.0)  # the largest u is 1 unless all vanish
    return torch.where(total > 0, w, active.double())


def read_curve(priority: PrioritySpec, cap: float = float("inf")) -> Priority:
    """The priority of a weigher; refuses a cap that leaves no freedom above the mean weight."""
    if not cap > 1:
        raise GoldimaskError(f"method.weigh.cap: {cap} must be greater than 1, the mean weight")
    return priority_curve(priority, "method.weigh.priority")


@WEIGHERS.register("uniform")
def uniform(kept_scale: KeptScale = "paper") -> Weigh:
    """Every target counts the same."""
    return Uniform(kept_scale)


@WEIGHERS.register("waterfill")
def waterfill(
    cap: float = 10.0,
    priority: PrioritySpec = "p(1-p)^3",
    kept_scale: KeptScale = "paper",
    share: float | None = None,
    floor: float = 0.0,
    after: int = 0,
) -> Weigh:
    """Measured utility, water-filled to mean one under a cap (GoldiMask)."""
    for name, value in (("share", share), ("floor", floor)):
        if value is not None and not 0 <= value <= 1:
            raise GoldimaskError(f"method.weigh.{name}: {value} must be between 0 and 1")
    if after < 0:
        raise GoldimaskError(
            f"method.weigh.after: {after} must not be negative; epochs count from 0"
        )
    return WaterFill(read_curve(priority, cap), cap, "waterfill", kept_scale, share, floor, after)


@WEIGHERS.register("uncapped")
def uncapped(priority: PrioritySpec = "p(1-p)^3", kept_scale: KeptScale = "paper") -> Weigh:
    """Measured utility normalised to mean one, without a cap (ablation)."""
    return WaterFill(read_curve(priority), float("inf"), "uncapped", kept_scale)


@WEIGHERS.register("normalize-then-clip")
def normalize_then_clip(
    cap: float = 10.0,
    priority: PrioritySpec = "p(1-p)^3",
    kept_scale: KeptScale = "paper",
) -> Weigh:
    """Measured utility normalised to mean one, then clipped: clipped mass is lost (ablation)."""
    return WaterFill(read_curve(priority, cap), cap, "normalize-then-clip", kept_scale)
