"""The house keeps its shape: dependency direction, file size, no machine's paths."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import goldimask
from rings import step

SOURCE = Path(goldimask.__file__).parent
ROOT = Path(__file__).parents[2]
MODULES = sorted(SOURCE.rglob("*.py"))


def imports(file: Path) -> set[str]:
    """Modules imported anywhere in a file, also inside functions; not those for types alone."""
    found: set[str] = set()
    waiting: list[ast.AST] = [ast.parse(file.read_text())]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module == "goldimask":
            found |= {f"goldimask.{a.name}" for a in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
        waiting += ast.iter_child_nodes(node)
    return {m for m in found if m.startswith("goldimask.")}


def test_core_knows_no_framework() -> None:
    """The step and what it is made of load neither transformers nor accelerate nor datasets."""
    code = (
        "import sys, goldimask.step, goldimask.methods, goldimask.metrics, goldimask.config\n"
        "heavy = {'transformers', 'accelerate', 'datasets', 'peft'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def name_of(file: Path) -> str:
    parts = file.relative_to(SOURCE).with_suffix("").parts
    return ".".join(("goldimask", *parts)).removesuffix(".__init__")


def test_every_module_stands_in_a_ring() -> None:
    lost = [name_of(f) for f in MODULES if step(name_of(f)) is None]
    assert lost == ["goldimask"], lost  # the package itself names what it exports


@pytest.mark.parametrize("file", MODULES, ids=lambda f: str(f.relative_to(SOURCE)))
def test_imports_point_inwards(file: Path) -> None:
    own = step(name_of(file))
    if own is None:  # the package itself names what it exports
        return
    outward = {m for m in imports(file) if (step(m) or 0) > own}
    assert not outward, f"{name_of(file)} imports from further out: {sorted(outward)}"


def test_tests_mirror_the_rooms() -> None:
    rooms = {f.name for f in SOURCE.iterdir() if (f / "__init__.py").is_file()} - {"cli"}
    tests = {f.name for f in Path(__file__).parent.iterdir() if f.is_dir()} - {"__pycache__"}
    assert tests == rooms
    assert (ROOT / "tests" / "cli").is_dir()  # beside the others: it runs whole commands


def test_decisions_are_linked_from_the_source_and_absent_from_user_pages() -> None:
    code = re.compile(r"\bD([1-9]|1[0-9]|2[0-9])\b")
    bare = [
        f"{name_of(f)}: {line.strip()}"
        for f in MODULES
        for line in f.read_text().splitlines()
        if code.search(line) and "docs/decisions.md" not in f.read_text()
    ]
    assert not bare, bare
    headings = (ROOT / "docs" / "decisions.md").read_text()
    assert all(re.search(rf"^#+ D{n}\b", headings, re.MULTILINE) for n in range(1, 30))
    pages = [f for f in (ROOT / "docs").rglob("*.md") if f.name != "decisions.md"]
    pages = [f for f in pages if "log" not in f.relative_to(ROOT / "docs").parts]
    found = [f"{f.name}: {m.group()}" for f in pages for m in code.finditer(f.read_text())]
    assert not found, found


def test_files_stay_small() -> None:
    long = {
        str(f.relative_to(SOURCE)): n
        for f in MODULES
        if (n := len(f.read_text().splitlines())) > 350
    }
    assert not long, long


def test_no_paths_or_addresses_of_a_machine() -> None:
    files = [
        *MODULES,
        *ROOT.glob("*.md"),
        *ROOT.glob("docs/**/*.md"),
        *SOURCE.glob("recipes/*.yaml"),
    ]
    pattern = re.compile(r"(^|[\s'\"(=:])/(home|root|Users|mnt|work|data|scratch)/[A-Za-z0-9._-]+")
    found = [f"{f.name}: {m.group()}" for f in files for m in pattern.finditer(f.read_text())]
    assert not found, found
