"""Where test sets come from: a file, the folder named by GOLDIMASK_DATA, or the Hugging Face Hub.

A folder is searched for `<set>/test.jsonl`, `<set>.jsonl` and the like under the names a task
lists; what a file may be is said in `data/rows.py`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from goldimask.data.rows import FILES, read_rows
from goldimask.errors import GoldimaskError

Columns = Mapping[str, Any]


def load_rows(
    source: Path | str | None,
    *,
    task: str,
    names: Sequence[str],
    hub: tuple[str, str | None, str] | None,
    how: str,
) -> list[Columns]:
    """Rows of a test set. `hub` is (dataset, configuration, split); `how` says where to get it."""
    folder = os.environ.get("GOLDIMASK_DATA")
    if source is not None or folder:
        place, where = (folder, "GOLDIMASK_DATA") if source is None else (source, "--data")
        file = find_file(Path(str(place)), names, f"{where} for {task}")
        return [row.values for row in read_rows(file, key=where)]
    if hub is None:
        raise GoldimaskError(
            f"task '{task}': its test set is not on the Hub; {how} and name it with --data, "
            f"or put it into the folder that GOLDIMASK_DATA names, as {names[0]}/test.jsonl"
        )
    name, subset, split = hub
    try:
        return [row.values for row in read_rows(name, split, subset)]
    except GoldimaskError as error:
        raise GoldimaskError(
            f"task '{task}': {error}; or {how} and name it with --data or GOLDIMASK_DATA"
        ) from error


def find_file(path: Path, names: Sequence[str], where: str) -> Path:
    """The file itself, or the first of the expected names inside a folder."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise GoldimaskError(f"{where}: '{path}' does not exist")
    tried = [
        path / stem
        for name in names
        for ending in FILES
        for stem in (f"{name}/test{ending}", f"{name}{ending}")
    ]
    tried += [path / f"test{ending}" for ending in FILES]
    for candidate in tried:
        if candidate.is_file():
            return candidate
    raise GoldimaskError(
        f"{where}: no test set in '{path}'; expected one of "
        + ", ".join(f"{n}/test.jsonl or {n}.jsonl" for n in names)
    )


def pick(row: Columns, *keys: str, task: str) -> Any:
    """The first of several keys that a row has."""
    for key in keys:
        if key in row and row[key] is not None:
            return row[key]
    raise GoldimaskError(
        f"task '{task}': a row has none of the keys {', '.join(keys)} (it has {', '.join(row)})"
    )
