"""The folder of a run, from its first step to its name.

A run holds the lock of its folder and works in `runs/x.partial`, which takes its name when it is
complete (`goldimask.jobs`). One that fails before its first checkpoint leaves no folder behind; one
that fails later keeps its checkpoints for `--resume`. Rank 0 does all of this, the others wait for
its verdict.

A checkpoint is written under `.writing/`, sealed and renamed, so that a kill or a full disk during
the save leaves the previous ones as they were. One whose files do not match its seal (a bad disk, a
careless copy) is reported and passed over for the one before it.

`start.json` holds what must not change under a run that is resumed but is not in the recipe: the
hashes of weights and data, the attention layer that was measured, the number of processes.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from filelock import FileLock

from goldimask.config import Recipe, parse_recipe, read_yaml, recipe_dict, recipe_yaml
from goldimask.errors import GoldimaskError
from goldimask.files import read_object, write_json, write_text
from goldimask.jobs import damage, drop_lock, missing, partial_of, take_lock, unfinished_folder
from goldimask.processes import on_main, rank
from goldimask.records import RECIPE, read_manifest

START = "start.json"
WRITING = ".writing"
Say = Callable[[str], None]


@contextmanager
def only_writer(output: Path) -> Iterator[None]:
    """Hold the lock of a run for all ranks; a second run into the folder is told who has it."""
    locks: list[FileLock] = []
    on_main(lambda: locks.append(take_lock(output)))
    try:
        yield
    finally:
        for lock in locks:
            drop_lock(lock)


@contextmanager
def run_folder(output: Path, recipe: Recipe, start: dict[str, Any], say: Say) -> Iterator[Path]:
    """The unfinished folder of a run, which takes its name at the end."""
    if rank() != 0:
        yield partial_of(output)
        return

    def keep(partial: Path) -> bool:
        if last_sound(partial) is None:
            return False
        say(f"checkpoints are kept in '{partial}'; continue with --resume")
        return True

    with unfinished_folder(output, keep) as partial:
        # by a kill: half a checkpoint, files and folders unnamed yet, the rest of a removed one
        for left in [*partial.glob(".*"), *half_removed(partial)]:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        write_text(partial / RECIPE, recipe_yaml(recipe))
        write_json(partial / START, start)
        yield partial


def non_finite_file(partial: Path, process: int = 0) -> Path:
    """Where the examples of a non-finite loss are kept: beside the run, which may leave nothing."""
    several = f"-{process}" if process else ""
    return partial.with_name(f"{partial.name.removesuffix('.partial')}.non_finite{several}.json")


def find_checkpoint(
    recipe: Recipe, output: Path, resume: bool, allow_changes: bool, say: Say
) -> Path | None:
    """The checkpoint to resume from, or None; refuses what would overwrite or mix runs.

    An unfinished folder without a sound checkpoint holds nothing to go on from: with `resume` or
    without, the run starts afresh. A finished one is `already_done`.
    """
    partial = partial_of(output)
    if output.exists():
        raise GoldimaskError(f"output: '{output}' exists; choose another output=... or remove it")
    checkpoint = last_sound(partial, say)
    if checkpoint is None:
        if partial.exists():
            say(f"'{partial}' holds no sound checkpoint: {clear_away(partial)}, starting afresh")
        elif resume:
            say(f"--resume: there is no '{partial}', starting afresh")
        return None
    if not resume:
        raise GoldimaskError(
            f"output: '{partial}' holds an unfinished run; continue with --resume or remove it"
        )
    before = parse_recipe(read_yaml(partial / RECIPE), str(partial / RECIPE))
    changed = differences(recipe_dict(before), recipe_dict(recipe))
    complain(changed, allow_changes, say)
    return checkpoint


def already_done(recipe: Recipe, output: Path, say: Say) -> dict[str, Any] | None:
    """The facts of a run that a kill, or a scheduler, ended just after it was complete."""
    if not (output / RECIPE).is_file():
        return None
    before = parse_recipe(read_yaml(output / RECIPE), str(output / RECIPE))
    manifest = read_manifest(output)
    if manifest is None or recipe_dict(before) != recipe_dict(recipe):
        return None
    say(f"--resume: '{output}' is finished, nothing is left to do")
    return manifest.facts


def clear_away(partial: Path) -> str:
    """Remove an unfinished folder; one with damaged checkpoints is only set aside."""
    if not any(partial.glob("checkpoint-*")):
        shutil.rmtree(partial)
        return "removed"
    stem = partial.name.removesuffix(".partial")
    names = (partial.with_name(f"{stem}.damaged-{n}") for n in count(1))
    aside = next(name for name in names if not name.exists())
    partial.rename(aside)
    return f"set aside as '{aside}'"


def step_of(checkpoint: Path) -> int:
    number = checkpoint.name.rpartition("-")[2]
    return int(number) if number.isdigit() else -1


def half_removed(partial: Path) -> list[Path]:
    """Checkpoints that lack files, older than one that lacks none; nothing is hashed."""
    found = sorted(partial.glob("checkpoint-*"), key=step_of)
    whole = [i for i, one in enumerate(found) if not missing(one)]
    return [one for one in found[: max(whole, default=0)] if missing(one)]


def last_sound(folder: Path, say: Say = lambda _: None) -> Path | None:
    """The newest checkpoint that is whole; damaged ones are reported."""
    for checkpoint in sorted(folder.glob("checkpoint-*"), key=step_of, reverse=True):
        problem = damage(checkpoint)
        if problem is None:
            return checkpoint
        say(f"skipping {checkpoint.name}: {problem}")
    return None


def complain(changed: list[str], allow: bool, say: Say) -> None:
    """Refuse a resume that would not be the same run, or say what was allowed."""
    if not changed:
        return
    text = "the unfinished run differs in " + "; ".join(changed)
    if not allow:
        raise GoldimaskError(
            f"--resume: {text}. Undo the change, or add --allow-changes to go on regardless"
        )
    say(f"--allow-changes: {text}")


def differences(a: dict[str, Any], b: dict[str, Any], at: str = "") -> list[str]:
    """Keys whose values differ between two recipes, with both values."""
    found = []
    for key in sorted(a.keys() | b.keys()):
        left, right = a.get(key), b.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            found += differences(left, right, f"{at}{key}.")
        elif left != right:
            found.append(f"{at}{key} ({left!r} then, {right!r} now)")
    return found


def read_start(partial: Path) -> dict[str, Any]:
    """What an unfinished run recorded when it began."""
    return read_object(partial / START)


def is_disk(error: Exception) -> bool:
    """A write that failed, as the libraries report it."""
    words = ("write", "No space", "File too large", "I/O error", "inline_container")
    return isinstance(error, OSError) or any(w in str(error) for w in words)


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
