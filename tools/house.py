"""The size of the house: lines and modules of each ring, and what a newcomer passes.

    python tools/house.py                     this tree
    python tools/house.py --before 17bf560    this tree beside a commit, as in docs/house.md

A walk counts the modules of goldimask that a real command and the processes it starts import, the
`__init__` of packages not counted. They are read from `sys.modules` when a process ends:
`python -X importtime` passes over what `importlib.import_module` brings in.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rings import RINGS, ring

ROOT = Path(__file__).parents[1]
SMALL = ["trainer.max_steps=1", "trainer.eval_strategy='no'", "trainer.save_strategy='no'"]
SMALL += ["trainer.load_best_model_at_end=false", "data.limit=40", "data.validation=8"]


def modules(tree: Path) -> dict[str, int]:
    """Module -> number of lines."""
    source = tree / "src"
    return {
        ".".join(file.relative_to(source).with_suffix("").parts): len(file.read_text().splitlines())
        for file in sorted((source / "goldimask").rglob("*.py"))
    }


def sizes(tree: Path) -> dict[str, tuple[int, int]]:
    """Ring -> (lines, modules); the `__init__` of packages count as lines, not as modules."""
    found: dict[str, tuple[int, int]] = dict.fromkeys([*RINGS, "package"], (0, 0))
    for module, lines in modules(tree).items():
        name = ring(module.removesuffix(".__init__"), before=True) or "package"
        own = not module.endswith("__init__")
        found[name] = (found[name][0] + lines, found[name][1] + own)
    found["all"] = tuple(map(sum, zip(*found.values(), strict=True)))  # type: ignore[assignment]
    return found


HOOK = """
import atexit, os, sys

def note():
    names = [m for m in sys.modules if m.startswith("goldimask.")]
    with open(os.path.join(os.environ["WALK"], str(os.getpid())), "w") as file:
        file.write("\\n".join(names))

atexit.register(note)
"""


def walks(out: Path, old: bool) -> dict[str, list[str]]:
    """Walk -> a command."""
    verb = [sys.executable, "-m", "goldimask"]
    train = [*verb, "train", "tiny-goldimask-d" if old else "tiny", f"output={out / 'run'}"]
    judge = [*verb, "eval", "tiny", "--tasks", "tiny-chain", "--limit", "2"]
    judge += ["--out", str(out / "eval")]
    cell = [*verb, "compare", "lab", "--preset", "smoke", "seeds=[0]", "backbones=[tiny]"]
    cell += ["rows=[vanilla]", "figures=[]", "judging.problems=2", "-o", str(out / "cell")]
    cell += ["tuning.steps=1", "judging.heldout=2"] if old else ["change.trainer.max_steps=1"]
    return {
        "the loss": [sys.executable, "-c", "import goldimask.step"],
        "a training run": [*train, *SMALL],
        "one decoded prompt": [*verb, "decode", "tiny", "1 + 1", "--length", "16"],
        "one evaluation": judge,
        "one cell of the grid": cell,
    }


def imported(command: list[str], tree: Path, notes: Path) -> set[str]:
    """Modules of goldimask that a command imported, packages left out."""
    notes.mkdir()
    (notes / "sitecustomize.py").write_text(HOOK)
    path = os.pathsep.join(map(str, (notes, tree / "src", tree / "tests")))
    environment = {**os.environ, "PYTHONPATH": path, "WALK": str(notes)}
    done = subprocess.run(command, env=environment, cwd=tree, capture_output=True, text=True)
    if done.returncode:
        sys.stderr.write(f"failed: {' '.join(command)}\n{done.stderr[-600:]}\n")
    found = {name for note in notes.glob("[0-9]*") for name in note.read_text().split()}
    return found & modules(tree).keys()


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """A temporary tree of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "-q", "--detach", str(tree), commit], check=True)
        try:
            yield tree
        finally:
            subprocess.run([*git, "remove", "--force", str(tree)], check=True)


def measure(tree: Path, old: bool) -> dict[str, object]:
    found: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        for number, (name, command) in enumerate(walks(out, old).items()):
            found[name] = len(imported(command, tree, out / f"notes-{number}"))
    return {"sizes": sizes(tree), "walks": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--before", help="a commit to put beside this tree")
    parser.add_argument("--json", action="store_true")
    words = parser.parse_args()
    found = {}
    if words.before:
        with checkout(words.before) as tree:
            found["before"] = measure(tree, old=True)
    found["now"] = measure(ROOT, old=False)
    if words.json:
        print(json.dumps(found))
        return
    print("| ring |" + "".join(f" lines {k} | modules {k} |" for k in found))
    print("| --- |" + " ---: |" * 2 * len(found))
    for name in next(iter(found.values()))["sizes"]:  # type: ignore[index]
        cells = [f" {m['sizes'][name][0]:,} | {m['sizes'][name][1]} |" for m in found.values()]  # type: ignore[index]
        print(f"| {name} |" + "".join(cells))
    print("\n| walk |" + "".join(f" modules {k} |" for k in found))
    print("| --- |" + " ---: |" * len(found))
    for name in next(iter(found.values()))["walks"]:  # type: ignore[index]
        print(f"| {name} |" + "".join(f" {m['walks'][name]} |" for m in found.values()))  # type: ignore[index]


if __name__ == "__main__":
    main()
