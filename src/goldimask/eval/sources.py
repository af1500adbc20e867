"""Where test sets come from: a file, the folder named by GOLDIMASK_DATA, or the Hugging Face Hub.

A folder is searched for `<set>/test.jsonl`, `<set>.jsonl` and the like under the names a task
lists. Files: JSON Lines, JSON (a list, or an object with one list), CSV; gzip by the ending `.gz`.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError

Row = Mapping[str, Any]
ENDINGS = (".jsonl", ".jsonl.gz", ".json", ".json.gz", ".csv", ".csv.gz")


def load_rows(
    source: Path | str | None,
    *,
    task: str,
    names: Sequence[str],
    hub: tuple[str, str | None, str] | None,
    how: str,
) -> list[Row]:
    """Rows of a test set. `hub` is (dataset, configuration, split); `how` says where to get it."""
    if source is not None:
        return read_rows(find_file(Path(source), names, f"--data for {task}"))
    folder = os.environ.get("GOLDIMASK_DATA")
    if folder:
        return read_rows(find_file(Path(folder), names, f"GOLDIMASK_DATA for {task}"))
    if hub is None:
        raise GoldimaskError(
            f"task '{task}': its test set is not on the Hub; {how} and name it with --data, "
            f"or put it into the folder that GOLDIMASK_DATA names, as {names[0]}/test.jsonl"
        )
    return hub_rows(*hub, task=task, how=how)


def find_file(path: Path, names: Sequence[str], where: str) -> Path:
    """The file itself, or the first of the expected names inside a folder."""
    if path.is_file():
        return path
    if not path.is_dir():
        raise GoldimaskError(f"{where}: '{path}' does not exist")
    tried = [
        path / stem
        for name in names
        for ending in ENDINGS
        for stem in (f"{name}/test{ending}", f"{name}{ending}")
    ]
    tried += [path / f"test{ending}" for ending in ENDINGS]
    for candidate in tried:
        if candidate.is_file():
            return candidate
    raise GoldimaskError(
        f"{where}: no test set in '{path}'; expected one of "
        + ", ".join(f"{n}/test.jsonl or {n}.jsonl" for n in names)
    )


def read_rows(path: Path) -> list[Row]:
    """All rows of a file."""
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError, EOFError) as error:
        raise GoldimaskError(f"{path}: cannot be read ({error})") from error
    kind = path.name.removesuffix(".gz").rsplit(".", 1)[-1].lower()
    if kind == "csv":
        return list(csv.DictReader(io.StringIO(text)))
    if kind == "json":
        return _rows_of_json(path, text)
    rows = []
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                rows.append(json.loads(line))
            except ValueError as error:
                raise GoldimaskError(f"{path}:{number}: not JSON ({error})") from error
    return rows


def _rows_of_json(path: Path, text: str) -> list[Row]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise GoldimaskError(f"{path}: not JSON ({error})") from error
    if isinstance(value, list):
        return value
    if isinstance(value, dict) and isinstance(value.get("generations"), list):
        return value["generations"]  # d1's and LIFT's outputs, which hold other lists too
    lists = [v for v in value.values() if isinstance(v, list)] if isinstance(value, dict) else []
    if len(lists) != 1:
        raise GoldimaskError(f"{path}: expected a list of objects, or an object holding one list")
    return lists[0]


def hub_rows(name: str, config: str | None, split: str, *, task: str, how: str) -> list[Row]:
    """Rows from the Hub; a failure says how to do without."""
    try:
        from datasets import load_dataset

        return list(load_dataset(name, config, split=split))  # type: ignore[arg-type]
    except Exception as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        raise GoldimaskError(
            f"task '{task}': could not load '{name}' from the Hub "
            f"({type(error).__name__}: {first}); {how} and name it with --data or GOLDIMASK_DATA"
        ) from error


def pick(row: Row, *keys: str, task: str) -> Any:
    """The first of several keys that a row has."""
    for key in keys:
        if key in row and row[key] is not None:
            return row[key]
    raise GoldimaskError(
        f"task '{task}': a row has none of the keys {', '.join(keys)} (it has {', '.join(row)})"
    )
