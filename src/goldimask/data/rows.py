"""Reading rows: the only reader of data files, saved datasets and the Hub.

    file      .jsonl, .json (a list of objects, or an object that holds one list), .csv, each also
              packed as .gz; .parquet
    folder    what `datasets` saved to disk, or every data file in it, in order of name
    a/b       a dataset on the Hub, where no such file or folder exists

Every row carries its place, `file.jsonl:3`, for the messages about it. What a row means is the
business of who asked for it: training (`examples.py`), prompts to decode, problems to judge.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from goldimask.errors import GoldimaskError

TEXTS = (".jsonl", ".json", ".csv")
FILES = (*TEXTS, *(f"{suffix}.gz" for suffix in TEXTS), ".parquet")


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it was read, and where."""

    where: str
    values: Any  # an object with columns, unless the file is wrong
    format: Callable[[Any], Any] | None = None  # of its corpus: what makes a prompt and a response


def read_rows(
    place: str | Path, split: str | None = None, subset: str | None = None, key: str = "data.path"
) -> Iterator[Row]:
    """Rows of a data file, a folder or a Hub id; `key` is what messages call the place."""
    path = Path(place).expanduser()
    if path.is_dir():
        yield from _folder(path, split, key)
    elif is_hub_id(str(place)) and not path.exists():
        yield from _hub(str(place), split or "train", subset)
    else:
        yield from _file(path, key)


def is_hub_id(place: str) -> bool:
    """`owner/name` that does not look like a file."""
    plain = place.count("/") == 1 and not place.startswith((".", "/", "~"))
    return plain and suffix_of(Path(place)) not in FILES and all(place.split("/"))


def suffix_of(file: Path) -> str:
    """`.jsonl.gz` counts as one suffix."""
    return "".join(file.suffixes[-2:] if file.suffix.lower() == ".gz" else [file.suffix]).lower()


def _file(file: Path, key: str) -> Iterator[Row]:
    if not file.is_file():
        raise GoldimaskError(
            f"{key}: '{file}' does not exist; give a .jsonl, .json, .csv or .parquet file"
        )
    suffix = suffix_of(file)
    if suffix not in FILES:
        raise GoldimaskError(f"{key}: '{file}' must end in .jsonl, .json, .csv or .parquet")
    if suffix == ".parquet":
        from pyarrow import parquet

        yield from _numbered(parquet.read_table(file).to_pylist(), str(file))
        return
    opened = gzip.open if suffix.endswith(".gz") else open
    try:
        with opened(file, "rt", encoding="utf-8-sig", newline="") as text:
            yield from _READERS[suffix.removesuffix(".gz")](text, file)  # type: ignore[arg-type]
    except (UnicodeDecodeError, OSError, EOFError) as error:
        raise GoldimaskError(f"{file}: cannot be read as text ({error})") from error


def _json_lines(text: TextIO, file: Path) -> Iterator[Row]:
    for number, line in enumerate(text, 1):
        if line.strip():
            yield Row(f"{file}:{number}", _json(line, f"{file}:{number}"))


def _json_list(text: TextIO, file: Path) -> Iterator[Row]:
    loaded = _json(text.read(), str(file))
    if isinstance(loaded, dict):
        lists = [v for v in loaded.values() if isinstance(v, list)]
        if isinstance(loaded.get("generations"), list):  # d1's and LIFT's, with lists beside it
            lists = [loaded["generations"]]
        loaded = lists[0] if len(lists) == 1 else None
    if not isinstance(loaded, list):
        raise GoldimaskError(
            f"{file}: a .json data file holds a list of objects, or an object with one list"
        )
    return (Row(f"{file}: item {i}", row) for i, row in enumerate(loaded))


def _csv_rows(text: TextIO, file: Path) -> Iterator[Row]:
    return (Row(f"{file}: row {i}", dict(row)) for i, row in enumerate(csv.DictReader(text), 1))


_READERS = {".jsonl": _json_lines, ".json": _json_list, ".csv": _csv_rows}


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise GoldimaskError(
            f"{where}: not valid JSON: {error.msg} at column {error.colno}"
        ) from error


def _folder(folder: Path, split: str | None, key: str) -> Iterator[Row]:
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        from datasets import load_from_disk

        loaded: Any = load_from_disk(str(folder))
        yield from _numbered(_one_split(loaded, split, str(folder)), str(folder))
        return
    files = sorted(f for f in folder.iterdir() if f.is_file() and suffix_of(f) in FILES)
    if split is not None:
        files = [f for f in files if f.name.startswith(split)]
    if not files:
        named = f" whose name starts with '{split}'" if split else ""
        raise GoldimaskError(
            f"{key}: '{folder}' holds neither a saved dataset nor a {', '.join(FILES)} file{named}"
        )
    for file in files:
        yield from _file(file, key)


def _one_split(loaded: Any, split: str | None, where: str) -> Any:
    if not hasattr(loaded, "keys"):
        return loaded
    names = list(loaded.keys())
    wanted = split or ("train" if "train" in names or len(names) > 1 else names[0])
    if wanted not in names:
        raise GoldimaskError(f"data.split: '{wanted}' is not in {where}; it has {', '.join(names)}")
    return loaded[wanted]


def _hub(name: str, split: str, subset: str | None) -> Iterator[Row]:
    from datasets import load_dataset

    try:
        loaded = load_dataset(name, subset, split=split)
    except Exception as error:  # the library raises many kinds: network, names, formats
        reason = " ".join(str(error).split())[:200]
        raise GoldimaskError(
            f"data: '{name}' (split {split}) could not be fetched from the Hub: {reason}; connect, "
            "or download it elsewhere and set data.path to the file or folder"
        ) from error
    yield from _numbered(loaded, name)


def _numbered(loaded: Any, where: str) -> Iterator[Row]:
    return (Row(f"{where}: row {i}", row) for i, row in enumerate(loaded))
