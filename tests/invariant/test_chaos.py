"""A small share of `make chaos`, with a fixed seed: nothing is lost, nothing differs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.real
def test_killed_commands_go_on_and_end_as_if_they_had_not_been() -> None:
    words = ["--train", "2", "--eval", "1", "--compare", "1", "--seed", "3"]
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("chaos.py")), *words],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert lines[0] == ["verb", "kills", "lives", "lost", "differing"]
    assert [(line[0], line[3], line[4]) for line in lines[1:]] == [
        (verb, "0", "0") for verb in ("train", "eval", "compare")
    ]
