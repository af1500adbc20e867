"""What there is: versions, driver, devices, how they reach each other, cores, disk."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from goldimask.processes import devices, hardware
from goldimask.selftest import Line, check, skipped

PACKAGES = ("goldimask", "torch", "transformers", "accelerate", "peft", "numba", "numpy")


def run(device: torch.device) -> Iterator[Line]:
    yield Line("python", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    yield Line("packages", ", ".join(f"{p} {installed(p)}" for p in PACKAGES))
    yield Line("hardware", hardware())
    yield Line("driver", driver(device))
    module = torch.get_device_module(device)
    for i in range(devices()):
        known: Any = getattr(module, "get_device_properties", lambda _: None)(i)
        memory = getattr(known, "total_memory", 0) / 2**30
        name = getattr(known, "name", device.type)
        yield Line(f"device {i}", f"{name}, {memory:.0f} GiB" if memory else name)
    yield check("bfloat16 product, largest error", bf16_error(device), 0.05)
    if device.type == "cuda":
        there = torch.distributed.is_nccl_available()
        found = import_module("torch.cuda.nccl").version() if there else ("absent",)
        yield Line("NCCL", ".".join(map(str, found)))
        yield peers()
    else:
        yield skipped("NCCL, peer access", f"of CUDA devices; this is {device.type}")
    usable = getattr(os, "sched_getaffinity", lambda _: range(os.cpu_count() or 1))(0)
    yield Line("cores", f"{len(usable)} usable")
    yield check("free disk, GB, here", shutil.disk_usage(os.getcwd()).free / 1e9, 1.0, least=True)


def installed(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "?"


def driver(device: torch.device) -> str:
    if device.type != "cuda":
        return "none"
    raw: int = torch._C._cuda_getDriverVersion()  # pyright: ignore[reportAttributeAccessIssue]
    return f"CUDA {raw // 1000}.{raw % 1000 // 10}, torch built for {torch.version.cuda}"


def bf16_error(device: torch.device) -> float:
    """Against float64, relative to the largest entry."""
    rows = torch.arange(64 * 64).reshape(64, 64).mul(37).remainder(101).double() / 101 - 0.5
    found = (rows.to(device, torch.bfloat16) @ rows.to(device, torch.bfloat16)).double().cpu()
    exact = rows @ rows
    return float((found - exact).abs().max() / exact.abs().max())


def peers() -> Line:
    """Can every card read every other one's memory?"""
    pairs = [(i, j) for i in range(devices()) for j in range(devices()) if i != j]
    if not pairs:
        return skipped("peer access", "one device")
    good = sum(torch.cuda.can_device_access_peer(i, j) for i, j in pairs)
    return Line("peer access", f"{good} of {len(pairs)} pairs")
