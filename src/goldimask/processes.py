"""Rank, world, device and threads: the one place that knows them.

Outside of these helpers a run does not know how many processes there are: noise, order, loss and
metrics are the same for any number (D2, D4, docs/decisions.md).
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from goldimask.errors import GoldimaskError

if TYPE_CHECKING:
    import numpy as np
    import torch

T = TypeVar("T")
WITHOUT_FLOAT64 = ("mps",)
PATIENCE = timedelta(minutes=30)  # with a rank that reads, hashes or saves while others wait
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def rank() -> int:
    return int(os.environ.get("RANK", "0"))


def world() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def start() -> None:
    """Join the other processes, if there are any; the Trainer uses the same state later."""
    if world() > 1:
        from accelerate import PartialState

        # the Trainer's `ddp_timeout` comes too late: this is where the group is made
        PartialState(cpu=own_device().type == "cpu", timeout=PATIENCE)


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


def accelerator() -> torch.device | None:
    """What torch calls this machine's accelerator, whatever its kind, if we can use it.

    Sums, draws and close decisions are made in float64, which Apple's MPS does not have.
    """
    import torch

    found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return None if found is None or found.type in WITHOUT_FLOAT64 else found


def devices() -> int:
    """How many accelerators this machine has."""
    import torch

    return torch.accelerator.device_count() if accelerator() else 0


def own_device() -> torch.device:
    """The accelerator of this process, or the CPU."""
    import torch

    found = accelerator()
    if found is None:
        return torch.device("cpu")
    local = os.environ.get("LOCAL_RANK") if world() > 1 else None
    index = torch.accelerator.current_device_index() if local is None else int(local)
    return torch.device(found.type, index)


def check_devices(processes: int) -> None:
    """More processes than accelerators would share a card silently."""
    if devices() and processes > devices():
        raise GoldimaskError(f"--nproc: {processes} processes for {devices()} device(s)")


def worker_devices(processes: int, asked: str | None = None) -> list[str]:
    """One device for each of several processes that know nothing of each other."""
    import torch

    if world() > 1:
        raise GoldimaskError(
            "--nproc: a launcher has started this process; leave it to one of them"
        )
    place = torch.device(asked) if asked else own_device()
    if processes == 1 or place.type == "cpu":
        return [str(place)] * processes
    if asked and place.index is not None:
        raise GoldimaskError(
            f"--nproc: {processes} processes on '{asked}' alone; say --device {place.type}"
        )
    check_devices(processes)
    return [f"{place.type}:{i}" for i in range(processes)]


def use_device(name: str) -> None:
    """Make a device the current one: pinned memory and events would go to the first otherwise."""
    import torch

    place = torch.device(name)
    if place.type != "cpu" and place.index is not None:
        torch.accelerator.set_device_index(place.index)


def one_thread() -> dict[str, str]:
    """The environment of a process that shares the machine with others like it."""
    return {**dict.fromkeys(THREADS, "1"), **os.environ}


def sharded() -> bool:
    """Was FSDP2 asked for?"""
    return os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"


def send(values: np.ndarray | torch.Tensor, device: torch.device) -> torch.Tensor:
    """Host values to a device, without waiting for what it is doing."""
    import torch

    host = torch.as_tensor(values)
    return host if device.type == "cpu" else host.pin_memory().to(device, non_blocking=True)


def mark(device: torch.device, timed: bool = False) -> torch.Event:
    """An event after all that the device was asked for until now.

    Left alone, an event takes the stream of the current device, which may be another one: it would
    have passed before the work that it stands for.
    """
    import torch

    event = torch.Event(device, enable_timing=timed)
    event.record(torch.accelerator.current_stream(device))
    return event


def wait_for(event: torch.Event, device: torch.device) -> None:
    """Until the device has passed an event. A thread begins with the first device as its own, and
    CUDA would open a context there only to wait."""
    import torch

    with torch.accelerator.device_index(device.index):
        event.synchronize()


class DeviceTime:
    """A moment on the device's own clock; `later - earlier` is a `Span`."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.event = device, mark(device, timed=True)

    def __sub__(self, earlier: DeviceTime) -> Span:
        return Span(earlier, self)


class Span:
    """Seconds between two moments; asking (`float`) waits until the device has passed both."""

    def __init__(self, begin: DeviceTime, end: DeviceTime) -> None:
        self.begin, self.end = begin, end

    def __float__(self) -> float:
        wait_for(self.end.event, self.end.device)
        return self.begin.event.elapsed_time(self.end.event) / 1000.0


def clock(device: torch.device) -> Callable[[], Any]:
    """What times the phases of a step: the host runs ahead of a device, so its clock would lie."""
    return time.perf_counter if device.type == "cpu" else lambda: DeviceTime(device)


def hardware() -> str:
    """What all processes together run on: `4 x NVIDIA B200`, or a CPU with the threads in use."""
    import torch

    found = accelerator()
    if found is not None:
        module = torch.get_device_module(found)
        name = getattr(module, "get_device_name", lambda: found.type)()
        return f"{world()} x {name}"
    threads = world() * torch.get_num_threads()
    return f"{_cpu_name()}, {threads} thread{'s' * (threads > 1)}"


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            named = next((x for x in file if x.startswith("model name")), "")
    except OSError:
        named = ""
    return named.partition(":")[2].strip() or platform.processor() or platform.machine()


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
