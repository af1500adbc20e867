"""Water-filling as the paper writes it, to hold the sorted form against."""

from __future__ import annotations

import torch
from torch import Tensor


def water_fill_bisection(
    utility: Tensor, active: Tensor, cap: float, iterations: int = 200
) -> Tensor:
    """The paper's form, one example [T] at a time: nu by bisection. Oracle of `water_fill`."""
    u = torch.where(active, utility.double(), 0.0).clamp_min(0.0)
    n, positive = int(active.sum()), int((u > 0).sum())
    if positive == 0:
        return active.double()
    if cap * positive <= n:
        spread = (n - cap * positive) / max(n - positive, 1)
        return torch.where(active, torch.where(u > 0, cap, spread), 0.0).double()
    u = u / u.max()
    low, high = 0.0, float(u.sum())  # at nu = sum u the total is at most 1 <= n
    for _ in range(iterations):
        middle = (low + high) / 2
        total = float((u / middle).clamp_max(cap).sum()) if middle > 0 else float("inf")
        low, high = (middle, high) if total > n else (low, middle)
    return (u / high).clamp_max(cap)
