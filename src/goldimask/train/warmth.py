"""Selection kernels are compiled (or read from numba's cache) before the first step."""

from __future__ import annotations

from typing import Any

import torch

from goldimask.methods import Method
from goldimask.select import warmup
from goldimask.select.api import SELECTOR_NAMES


def warm_up(method: Method, device: Any = "cpu") -> tuple[str, ...]:
    """Compile what the method's steps will run; returns the names of the maximisers.

    Methods without a maximiser need nothing, and an accelerator runs the batched torch engine. The
    metric `value_vs_greedy` runs greedy beside every other maximiser.
    """
    maximiser = method.shown["maximiser"]
    if maximiser not in SELECTOR_NAMES or torch.device(device).type != "cpu":
        return ()
    names = tuple(dict.fromkeys(("greedy", maximiser)))
    warmup(names)
    return names
