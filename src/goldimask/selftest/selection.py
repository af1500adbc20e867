"""GoldiMask-D by both engines at the sizes of a short and of a long response."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch

from goldimask.keys import Keys, Stream
from goldimask.select import Selection, select_reveal, warmup
from goldimask.selftest import GPUS, Line, check, skipped

SIZES = (512, 2800)
LARGEST = 512  # without a GPU: the dense engine would take a minute at 2,800


def run(device: torch.device) -> Iterator[Line]:
    warmup(["greedy"])
    for n in SIZES:
        rng = Keys(0).rng(n, Stream.TASK)
        attention = np.exp(2 * rng.standard_normal((n, n), dtype=np.float32))
        attention *= 0.4 / attention.sum(1, keepdims=True)
        priority = rng.random(n)
        host, seconds = timed(attention, priority, "host")
        yield Line(f"host engine, N = {n}", f"{seconds * 1e3:.0f} ms", value=seconds)
        if device.type not in GPUS and n > LARGEST:
            yield skipped(f"device engine, N = {n}", "needs a GPU")
            continue
        there = torch.from_numpy(attention).to(device)
        timed(there, priority, "device")  # compiles
        dense, seconds = timed(there, priority, "device")
        yield Line(f"device engine, N = {n}", f"{seconds * 1e3:.0f} ms", value=seconds)
        common = np.intersect1d(host.order, dense.order).size / host.order.size
        yield check(f"N = {n}: sets in common", common, 1.0, least=True)


def timed(attention: np.ndarray | torch.Tensor, priority: np.ndarray, engine: str):
    """Half of the candidates revealed, and the seconds that it took."""
    start = time.perf_counter()
    found = select_reveal(attention, priority, len(priority) // 2, engine=engine)  # type: ignore[arg-type]
    assert isinstance(found, Selection)
    return found, time.perf_counter() - start
