"""benchmarks/memory.py at a size that suits a test, and as a script."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import memory
from goldimask.errors import GoldimaskError

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "memory.py"


def test_memory_ratio() -> None:
    result = memory.measure(vocab=8192, length=256, width=32, layers=1, budget_mb=1.5)
    assert result["ratio"] >= 4.0, result
    assert result["difference"] < 1e-4
    assert set(result) >= {"full_logits_mb", "rows_mb", "ratio"}
    with pytest.raises(GoldimaskError, match=r"--masked: 2\.0 must lie in"):
        memory.measure(masked=2.0)


def test_script() -> None:
    command = [sys.executable, str(SCRIPT), "--vocab", "500", "--length", "32", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["passes"]) == {"probe", "train"}
