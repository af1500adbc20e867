"""`select.engine: auto` on an accelerator: a race of both engines over the first batches.

The first batch warms up (compilers, caches) and is not timed. The sets must be equal; where they
are not, the host engine goes on and says so. Until the race is decided the host's sets are used, so
its outcome changes the time of a run and nothing else. Host selection that the loop can hide behind
other work (`MaskedStep.accumulate`) counts only for what is left of it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import torch

from goldimask.select.base import Selection

TIMED = 3  # batches after the first
LOG = logging.getLogger("goldimask")
Side = Callable[[], list[Selection]]


@dataclass
class Race:
    """The state of one selector's race."""

    winner: Literal["host", "device"] | None = None
    seconds: dict[str, list[float]] = field(default_factory=lambda: {"host": [], "device": []})

    def __call__(
        self, host: Side, device: Side, where: torch.device, spare: float = 0.0
    ) -> list[Selection]:
        """The host's selections; notes the time of both sides."""
        kept = self._timed("host", host, where)
        if self.winner is None:
            try:
                other = self._timed("device", device, where)
            except (RuntimeError, TypeError) as error:  # no float64, no memory, no such kernel
                self._end("host", f"the device cannot: {str(error).strip().splitlines()[0]}")
                return kept
            same = [
                set(a.order.tolist()) == set(b.order.tolist())
                for a, b in zip(kept, other, strict=True)
            ]
            if not all(same):
                self._end("host", "the engines chose different sets; please report it")
            elif len(self.seconds["host"]) > TIMED:
                on_host, on_device = (min(self.seconds[side][1:]) for side in ("host", "device"))
                spare = float(spare)  # of a device's clock: it has passed by now
                side = "host" if on_host - spare <= on_device else "device"
                hidden = f", {min(spare, on_host) * 1e3:.1f} of them hidden" if spare else ""
                self._end(
                    side,
                    f"host {on_host * 1e3:.1f} ms{hidden}, device {on_device * 1e3:.1f} ms a batch",
                )
        return kept

    def _timed(self, side: str, action: Side, where: torch.device) -> list[Selection]:
        if where.type != "cpu":
            torch.accelerator.synchronize(where)
        start = time.perf_counter()
        found = action()
        self.seconds[side].append(time.perf_counter() - start)
        return found

    def _end(self, side: Literal["host", "device"], why: str) -> None:
        self.winner = side
        LOG.warning("select.engine: auto takes '%s' (%s)", side, why)
