"""Checkpoints that are either whole or not there.

A checkpoint is written under `.writing/`, sealed with the size and hash of every file, and renamed.
A kill or a full disk during the save leaves the previous checkpoints as they were. A folder whose
files do not match its seal (a bad disk, a careless copy) is reported and passed over for the one
before it. Older checkpoints are removed only after the new one has its name.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from goldimask.files import write_json

SEAL = "complete.json"
WRITING = ".writing"


def seal(folder: Path) -> None:
    """Declare a checkpoint complete."""
    write_json(folder / SEAL, {"files": _files(folder)})


def publish(written: Path, target: Path) -> None:
    """Seal what was written under a temporary name and give it its own."""
    seal(written)
    if target.exists():  # a damaged one that a resumed run writes again
        shutil.rmtree(target)
    os.replace(written, target)
    shutil.rmtree(written.parent, ignore_errors=True)


def damage(folder: Path) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        expected = json.loads((folder / SEAL).read_text(encoding="utf-8"))["files"]
    except FileNotFoundError:
        return "it was not completely written"
    except (OSError, ValueError, KeyError, TypeError):
        return f"its {SEAL} cannot be read"
    found = _files(folder)
    for name, facts in expected.items():
        if name not in found:
            return f"'{name}' is missing"
        if found[name] != facts:
            return f"'{name}' is damaged"
    return None


def last_sound(folder: Path, say: Callable[[str], None] = lambda _: None) -> Path | None:
    """The newest checkpoint that is whole; damaged ones are reported."""
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=_step, reverse=True):
        problem = damage(checkpoint)
        if problem is None:
            return checkpoint
        say(f"skipping {checkpoint.name}: {problem}")
    return None


def _step(checkpoint: Path) -> int:
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


def _files(folder: Path) -> dict[str, dict[str, object]]:
    """Size and hash of every file but the seal, by relative name."""
    found: dict[str, dict[str, object]] = {}
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.name != SEAL:
            with file.open("rb") as data:
                digest = hashlib.file_digest(data, "blake2b").hexdigest()[:32]
            found[str(file.relative_to(folder))] = {"bytes": file.stat().st_size, "hash": digest}
    return found
