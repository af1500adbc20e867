"""Reading rows: the only reader of data files, saved datasets and the Hub.

    file      .jsonl, .json (a list of objects, or an object that holds one list), .csv, each also
              packed as .gz; .parquet
    folder    what `datasets` saved to disk, or every data file in it, in order of name
    a/b       a dataset on the Hub, where no such file or folder exists

Every row carries its place, `file.jsonl:3`, for the messages about it. What a row means is the
business of who asked for it: training (`examples.py`), prompts to decode, problems to judge. A line
that cannot be read is a row as well, which says so when its values are asked for: so it can be
counted and skipped. A file that cannot be read on is an error.
"""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from goldimask.errors import GoldimaskError, short
from goldimask.files import parse_json

TEXTS = (".jsonl", ".json", ".csv")
LONGEST = 64_000_000  # bytes of a line
WHOLE = 500_000_000  # bytes of a .json, which is held as one value
FILES = (*TEXTS, *(f"{suffix}.gz" for suffix in TEXTS), ".parquet")


@dataclass(frozen=True, slots=True)
class Row:
    """One row as it was read, and where."""

    where: str
    content: Any  # an object with columns, unless the file is wrong; or why it cannot be read
    format: Callable[[Any], Any] | None = None  # of its corpus: what makes a prompt and a response

    @property
    def values(self) -> Any:
        if isinstance(self.content, GoldimaskError):
            raise self.content
        return self.content


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
        yield from _library(lambda: _parquet(file), str(file))
        return
    opened = gzip.open if suffix.endswith(".gz") else open
    try:
        with opened(file, "rb") as data:
            yield from _READERS[suffix.removesuffix(".gz")](data, file)  # type: ignore[arg-type]
    except (OSError, EOFError, zlib.error) as error:
        raise GoldimaskError(f"{file}: cannot be read ({error})") from error


def _lines(data: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Numbered lines; of one that is too long, its beginning."""
    number = 0
    while line := data.readline(LONGEST + 1):
        number += 1
        yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        while len(line) > LONGEST and not line.endswith(b"\n"):
            line = data.readline(LONGEST + 1)
            if not line:
                return


def _json_lines(data: BinaryIO, file: Path) -> Iterator[Row]:
    for number, line in _lines(data):
        if line.strip():
            where = f"{file}:{number}"
            try:
                yield Row(where, parse_json(_text(line, where), where))
            except GoldimaskError as error:
                yield Row(where, error)


def _text(line: bytes, where: str) -> str:
    if len(line) > LONGEST:
        raise GoldimaskError(f"{where}: a line of more than {LONGEST} bytes; is it one row?")
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise GoldimaskError(f"{where}: not UTF-8 at byte {error.start + 1} of the line") from error


def _json_list(data: BinaryIO, file: Path) -> Iterator[Row]:
    text = data.read(WHOLE + 1)
    if len(text) > WHOLE:
        raise GoldimaskError(f"{file}: more than {WHOLE} bytes; write one object a line (.jsonl)")
    loaded = parse_json(text.removeprefix(b"\xef\xbb\xbf"), str(file))
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


def _csv_rows(data: BinaryIO, file: Path) -> Iterator[Row]:
    lines = (_text(line, f"{file}:{number}") for number, line in _lines(data))
    reader, number = csv.DictReader(lines), 0
    while True:
        number += 1
        where = f"{file}: row {number}"
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise GoldimaskError(f"{where}: not valid CSV: {error}") from error
        surplus = GoldimaskError(f"{where}: more fields than the header has columns")
        yield Row(where, surplus if None in row else dict(row))


_READERS = {".jsonl": _json_lines, ".json": _json_list, ".csv": _csv_rows}


def _parquet(file: Path) -> Iterator[Any]:
    from pyarrow import parquet

    with parquet.ParquetFile(file) as opened:
        for batch in opened.iter_batches(batch_size=1000):
            yield from batch.to_pylist()


def _library(read: Callable[[], Iterable[Any]], where: str) -> Iterator[Row]:
    """Numbered rows of a library that raises many kinds of errors."""
    try:
        yield from _numbered(read(), where)
    except GoldimaskError:
        raise
    except Exception as error:
        reason = short(" ".join(str(error).split()))
        raise GoldimaskError(f"{where}: cannot be read ({reason})") from error


def _folder(folder: Path, split: str | None, key: str) -> Iterator[Row]:
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        from datasets import load_from_disk

        where = str(folder)
        yield from _library(lambda: _one_split(load_from_disk(where), split, where), where)
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
