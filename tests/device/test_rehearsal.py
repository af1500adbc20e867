"""Everything a user runs, on a device that is not the CPU (`rehearsal.cpp`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from device.rehearsal import can_build
from needs import need

HERE = Path(__file__).parent


@pytest.mark.real
def test_aboard_the_rehearsal_device() -> None:
    need("a C++ compiler", can_build(), "apt install g++")
    words = [sys.executable, str(HERE / "rehearsal.py"), "-m", "pytest", str(HERE / "aboard.py")]
    done = subprocess.run(
        [*words, "-q", "-s", "-p", "no:cacheprovider", "-p", "no:xdist"],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=1500,
    )
    print(done.stdout[-6000:])
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
