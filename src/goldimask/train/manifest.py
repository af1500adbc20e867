"""What a run was made from: enough to tell two runs apart and to repeat one."""

from __future__ import annotations

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "goldimask",
    "torch",
    "transformers",
    "peft",
    "accelerate",
    "numpy",
    "numba",
    "tokenizers",
)


def manifest(**facts: Any) -> dict[str, Any]:
    """Versions, git state and command, with the caller's facts (seed, data hash, sizes)."""
    return {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "versions": {name: _version(name) for name in PACKAGES},
        "git": git_state(),
        **facts,
    }


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def git_state() -> dict[str, Any] | None:
    """Commit and cleanliness of the working directory's repository, if there is one."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ("git", *words), capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None
