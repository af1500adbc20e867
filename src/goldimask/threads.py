"""How many threads torch uses, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def torch_threads(count: int = 1) -> Iterator[None]:
    """Small matrices are fastest on one thread, and processes then share the cores fairly."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
