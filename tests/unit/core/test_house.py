"""The house keeps its shape: dependency direction, file size, no machine's paths."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import goldimask

SOURCE = Path(goldimask.__file__).parent
ROOT = Path(__file__).parents[3]
MODULES = sorted(SOURCE.rglob("*.py"))


def imports(file: Path) -> set[str]:
    """Modules imported at module level."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


def test_core_knows_no_framework() -> None:
    """The step and what it is made of load neither transformers nor accelerate nor datasets."""
    code = (
        "import sys, goldimask.step, goldimask.methods, goldimask.metrics, goldimask.config\n"
        "heavy = {'transformers', 'accelerate', 'datasets', 'peft'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


LAYERS = (  # a layer may import from itself and from those before it
    {"errors", "settings", "types", "keys", "registry", "files", "console", "processes"},
    {"objective", "noise", "weighting", "select", "baselines", "config"},
    {"methods", "presets"},
    {
        "step",
        "metrics",
        "backbones",
        "data",
        "tiny",
        "runs",
    },
    {"train", "decoding", "eval", "studies", "report"},
    {"bench", "campaign", "cli"},
)


def layer(module: str) -> int | None:
    part = module.split(".")[1] if "." in module else ""
    return next((i for i, names in enumerate(LAYERS) if part in names), None)


@pytest.mark.parametrize("file", MODULES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_dependencies_point_one_way(file: Path) -> None:
    module = ".".join(("goldimask", *file.relative_to(SOURCE).with_suffix("").parts))
    own = layer(module)
    if own is None:
        return
    later = {m for m in imports(file) if m.startswith("goldimask.") and (layer(m) or 0) > own}
    assert not later, f"{module} imports from a later layer: {sorted(later)}"


def test_files_stay_small() -> None:
    long = {
        str(f.relative_to(SOURCE)): n
        for f in MODULES
        if (n := len(f.read_text().splitlines())) > 350
    }
    assert not long, long


def test_no_paths_or_addresses_of_a_machine() -> None:
    files = [*MODULES, *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("recipes/*.yaml")]
    pattern = re.compile(r"(^|[\s'\"(=:])/(home|root|Users|mnt|work|data|scratch)/[A-Za-z0-9._-]+")
    found = [f"{f.name}: {m.group()}" for f in files for m in pattern.finditer(f.read_text())]
    assert not found, found
