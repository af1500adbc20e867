"""Tokens per second between two log lines, without the time of evaluations and saves.

Tokens are real ones, counted when a batch is made; padding is reported as a share of all cells.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch


class Speed:
    """Adds up tokens and time on this process."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self.tokens = self.cells = 0
        self.began, self.paused = time.perf_counter(), 0.0

    def add(self, tokens: int, cells: int) -> None:
        self.tokens += tokens
        self.cells += cells

    def skip(self, seconds: float) -> None:
        self.paused += seconds

    @contextmanager
    def pause(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.skip(time.perf_counter() - began)

    def pop(self, reduce: Callable[..., Any] | None = None, device: Any = None) -> dict[str, float]:
        """Figures since the last call; `reduce(tensor, "sum")` adds over ranks."""
        seconds = time.perf_counter() - self.began - self.paused
        tokens, cells = float(self.tokens), float(self.cells)
        self._reset()
        if reduce is not None:
            sums = torch.tensor([tokens, cells], dtype=torch.float64, device=device)
            tokens, cells = reduce(sums, "sum").tolist()
        if not cells or seconds <= 0:
            return {}
        return {"tokens_per_s": tokens / seconds, "pad_share": 1.0 - tokens / cells}
