"""Rank, world, device and threads: the one place that knows them.

Outside of these helpers a run does not know how many processes there are: noise, order, loss and
metrics are the same for any number (D2, D4, docs/decisions.md).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from goldimask.errors import GoldimaskError

T = TypeVar("T")


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def start() -> None:
    """Join the other processes, if there are any; the Trainer uses the same state later."""
    if world() > 1:
        import torch
        from accelerate import PartialState

        PartialState(cpu=not torch.accelerator.is_available())


def on_main(action: Callable[[], T]) -> T:
    """Run on rank 0; every rank gets its result, or raises its error."""
    if world() == 1:
        return action()
    from accelerate.utils import broadcast_object_list

    box: list[Any] = [None, None]
    if rank() == 0:
        try:
            box[0] = action()
        except GoldimaskError as error:
            box[1] = error
    broadcast_object_list(box)
    if box[1] is not None:
        raise box[1]
    return box[0]


def any_rank(flag: bool) -> bool:
    """True on every rank when it is true on one."""
    if world() == 1:
        return flag
    import torch
    import torch.distributed as dist
    from accelerate import PartialState

    votes = torch.tensor(int(flag), device=PartialState().device)
    dist.all_reduce(votes, op=dist.ReduceOp.MAX)
    return bool(votes)


def gather(value: T) -> list[T]:
    """The values of all ranks, on all ranks."""
    if world() == 1:
        return [value]
    import torch.distributed as dist

    values: list[Any] = [None] * world()
    dist.all_gather_object(values, value)
    return values


def wait() -> None:
    """Until every rank is here."""
    if world() > 1:
        import torch.distributed as dist

        dist.barrier()


def own_device() -> str | None:
    """The accelerator of this process when there are several of each."""
    import torch

    local = os.environ.get("LOCAL_RANK")
    if world() == 1 or local is None or not torch.accelerator.is_available():
        return None
    found = torch.accelerator.current_accelerator()
    return None if found is None else f"{found.type}:{local}"


@contextmanager
def torch_threads(count: int = 1) -> Iterator[None]:
    """Small matrices are fastest on one thread, and processes then share the cores fairly."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
