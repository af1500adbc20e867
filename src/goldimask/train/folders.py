"""The folder of a run, from its first step to its name.

A run works in `runs/x.partial` and takes its name when it is complete. One that fails before its
first checkpoint leaves no folder behind; one that fails later keeps its checkpoints for `--resume`.
Rank 0 does all of this, the others wait for its verdict.

`start.json` holds what must not change under a run that is resumed but is not in the recipe: the
data's hash, the attention layer that was measured, the number of processes.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldimask.config import Recipe, parse_recipe, read_yaml, recipe_dict, recipe_yaml
from goldimask.errors import GoldimaskError
from goldimask.files import write_json, write_text
from goldimask.processes import rank
from goldimask.train.checkpoints import WRITING, last_sound

START = "start.json"
Say = Callable[[str], None]


@dataclass(frozen=True)
class Folders:
    """Where a run works, and where it ends."""

    output: Path

    @property
    def partial(self) -> Path:
        return self.output.with_name(self.output.name + ".partial")


def non_finite_file(partial: Path, process: int = 0) -> Path:
    """Where the examples of a non-finite loss are kept: beside the run, which may leave nothing."""
    several = f"-{process}" if process else ""
    return partial.with_name(f"{partial.name.removesuffix('.partial')}.non_finite{several}.json")


def check_folders(
    recipe: Recipe, folders: Folders, resume: bool, allow_changes: bool, say: Say
) -> Path | None:
    """The checkpoint to resume from, or None; refuses what would overwrite or mix runs."""
    output, partial = folders.output, folders.partial
    if output.exists():
        raise GoldimaskError(f"output: '{output}' exists; choose another output=... or remove it")
    if not resume:
        if partial.exists():
            raise GoldimaskError(
                f"output: '{partial}' holds an unfinished run; continue with --resume or remove it"
            )
        return None
    checkpoint = last_sound(partial, say)
    if checkpoint is None:
        raise GoldimaskError(
            f"--resume: '{partial}' holds no complete checkpoint; start without --resume"
        )
    before = parse_recipe(read_yaml(partial / "recipe.yaml"), str(partial / "recipe.yaml"))
    changed = differences(recipe_dict(before), recipe_dict(recipe))
    complain(changed, allow_changes, say)
    return checkpoint


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
    try:
        return json.loads((partial / START).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise GoldimaskError(f"--resume: '{partial / START}' cannot be read ({error})") from error


@contextmanager
def working_folder(
    partial: Path, recipe: Recipe, start: dict[str, Any], say: Say
) -> Iterator[None]:
    """Make the folder of an unfinished run; take it away again if it fails without a checkpoint."""
    if rank() == 0:
        partial.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(partial / WRITING, ignore_errors=True)  # what a kill left behind
        write_text(partial / "recipe.yaml", recipe_yaml(recipe))
        write_json(partial / START, start)
    try:
        yield
    except BaseException:
        if rank() == 0:
            if last_sound(partial) is None:
                shutil.rmtree(partial, ignore_errors=True)
            else:
                say(f"checkpoints are kept in '{partial}'; continue with --resume")
        raise
