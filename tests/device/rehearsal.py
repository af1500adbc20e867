"""`python rehearsal.py -m MODULE ...` or `SCRIPT ...`: with a device `rehearsal` (two of them).

The device is `rehearsal.cpp`, built once by the local compiler into a folder that all test
processes share, under a lock. It becomes torch's accelerator for the whole process, so tests that
use it run in processes of their own.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from filelock import FileLock

NAME = "rehearsal"
SOURCE = Path(__file__).with_name("rehearsal.cpp")
COMPILER = os.environ.get("CXX", "g++")


def can_build() -> bool:
    return shutil.which(COMPILER) is not None


def build() -> Path:
    """The compiled device; made anew when its source, torch or the compiler changes."""
    root = Path(torch.__file__).parent
    words = [COMPILER, "-O0", "-w", "-std=c++20", "-shared", "-fPIC"]
    words += [f"-I{root / 'include'}", f"-I{root / 'include/torch/csrc/api/include'}"]
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    words += [f"-D_GLIBCXX_USE_CXX11_ABI={abi}"]
    key = hashlib.sha256(SOURCE.read_bytes() + repr((torch.__version__, words)).encode())
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"goldimask-rehearsal-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    made = folder / f"{key.hexdigest()[:16]}.so"
    with FileLock(folder / "lock"):
        if not made.exists():
            part = made.with_suffix(".part")
            links = [f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu", f"-Wl,-rpath,{root / 'lib'}"]
            subprocess.run([*words, str(SOURCE), *links, "-o", str(part)], check=True)
            part.replace(made)
    return made


def register() -> None:
    """Make the device torch's accelerator; before goldimask is imported."""
    global C
    C = ctypes.CDLL(str(build()), mode=ctypes.RTLD_GLOBAL)
    C.rehearsal_memory.restype = ctypes.c_int64
    C.rehearsal_counts.restype = ctypes.c_char_p
    C.rehearsal_start()
    torch.utils.rename_privateuse1_backend(NAME)
    module: Any = ModuleType(f"torch.{NAME}")
    module.is_available = lambda: True
    module.is_initialized = lambda: True
    module._is_in_bad_fork = lambda: False
    module.device_count = lambda: 2
    module.current_device = lambda: C.rehearsal_device(-1)
    module.set_device = lambda d: C.rehearsal_device(d if isinstance(d, int) else d.index or 0)
    module.synchronize = lambda d=None: torch.accelerator.synchronize()
    module.manual_seed = module.manual_seed_all = lambda seed: None  # the CPU's generator draws
    module.get_rng_state = lambda d=None: torch.get_rng_state()
    module.set_rng_state = lambda state, d=None: torch.set_rng_state(state)
    module.get_amp_supported_dtype = lambda: [torch.bfloat16, torch.float16, torch.float32]
    module.is_bf16_supported = lambda: True
    module.memory_allocated = lambda d=None: C.rehearsal_memory(0)
    module.max_memory_allocated = lambda d=None: C.rehearsal_memory(1)
    module.reset_peak_memory_stats = lambda d=None: reset()
    module.empty_cache = lambda: None
    torch._register_device_module(NAME, module)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)


C: Any = None


def counts(kernels: bool = False) -> dict[str, int]:
    """How often the host waited and where, or which kernels ran, since `reset`."""
    lines = C.rehearsal_counts(int(kernels)).decode().splitlines()
    return {name: int(n) for n, _, name in (line.partition(" ") for line in lines)}


def reset() -> None:
    C.rehearsal_reset()


@contextmanager
def strict() -> Iterator[None]:
    """A host wait inside is an error that says where."""
    C.rehearsal_strict(1)
    try:
        yield
    finally:
        C.rehearsal_strict(0)


def main(words: list[str]) -> None:
    register()
    sys.modules["device.rehearsal"] = sys.modules["__main__"]  # so that what runs sees this one
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
