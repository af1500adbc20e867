"""Reading rows: data files become (prompt messages, response) pairs.

Accepted columns, in this order of precedence:

    messages                         the last assistant turn is the response, the rest the prompt
    prompt + completion | response   each a string, or a list of messages
    question + answer

Files: .jsonl (also .jsonl.gz), .json (a list of objects), .csv, .parquet. A bad row is an error
that names file and line; `skip_bad_rows` counts such rows and goes on.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError

Message = dict[str, str]
_COLUMNS = "messages; prompt + completion; prompt + response; question + answer"


@dataclass(frozen=True)
class Pair:
    """One example as text, with the place it came from."""

    prompt: list[Message]
    response: str
    where: str


def read_rows(file: Path) -> Iterator[tuple[str, Any]]:
    """(place, row) pairs of a data file."""
    if not file.is_file():
        raise GoldimaskError(
            f"data.path: '{file}' does not exist; give a .jsonl, .json, .csv or .parquet file"
        )
    suffix = suffix_of(file)
    if suffix in (".jsonl", ".jsonl.gz"):
        yield from _json_lines(file)
    elif suffix == ".json":
        loaded = _json(file.read_text(encoding="utf-8"), str(file))
        if not isinstance(loaded, list):
            raise GoldimaskError(f"{file}: a .json data file holds a list of objects")
        yield from ((f"{file}: item {i}", row) for i, row in enumerate(loaded))
    elif suffix == ".csv":
        with file.open(encoding="utf-8", newline="") as lines:
            yield from (
                (f"{file}: row {i}", dict(row)) for i, row in enumerate(csv.DictReader(lines), 1)
            )
    elif suffix == ".parquet":
        from pyarrow import parquet

        table = parquet.read_table(file).to_pylist()
        yield from ((f"{file}: row {i}", row) for i, row in enumerate(table))
    else:
        raise GoldimaskError(f"data.path: '{file}' must end in .jsonl, .json, .csv or .parquet")


def suffix_of(file: Path) -> str:
    """`.jsonl.gz` counts as one suffix."""
    name = file.name.lower()
    return ".jsonl.gz" if name.endswith(".jsonl.gz") else file.suffix.lower()


def _json_lines(file: Path) -> Iterator[tuple[str, Any]]:
    opened = gzip.open if file.suffix.lower() == ".gz" else open
    try:
        with opened(file, "rt", encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield f"{file}:{number}", _json(line, f"{file}:{number}")
    except (UnicodeDecodeError, OSError, EOFError) as error:
        raise GoldimaskError(f"{file}: cannot be read as text ({error})") from error


def _json(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise GoldimaskError(
            f"{where}: not valid JSON: {error.msg} at column {error.colno}"
        ) from error


def to_pair(row: Any, where: str) -> Pair:
    """Find prompt and response in a row."""
    if not isinstance(row, Mapping):
        raise GoldimaskError(f"{where}: a row is an object with columns {_COLUMNS}")
    if row.get("messages") is not None:
        messages = _messages(row["messages"], f"{where}: messages")
        if not messages or messages[-1]["role"] != "assistant":
            raise GoldimaskError(f"{where}: messages must end with an assistant turn, the response")
        return _checked(messages[:-1], messages[-1]["content"], where)
    for prompt_key, response_keys in (
        ("prompt", ("completion", "response")),
        ("question", ("answer",)),
    ):
        if row.get(prompt_key) is None:
            continue
        for key in response_keys:
            if row.get(key) is not None:
                return _checked(_turns(row[prompt_key], where), _text(row[key], where, key), where)
        wanted = " or ".join(f"'{k}'" for k in response_keys)
        raise GoldimaskError(f"{where}: the row has '{prompt_key}' but no response; add {wanted}")
    raise GoldimaskError(
        f"{where}: no known columns in {sorted(map(str, row))}; use one of: {_COLUMNS}"
    )


def _turns(value: Any, where: str) -> list[Message]:
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return _messages(value, f"{where}: prompt")


def _text(value: Any, where: str, key: str) -> str:
    if isinstance(value, str):
        return value
    messages = _messages(value, f"{where}: {key}")
    if len(messages) != 1:
        raise GoldimaskError(f"{where}: {key} must be a string or a single message")
    return messages[0]["content"]


def _messages(value: Any, where: str) -> list[Message]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise GoldimaskError(f"{where}: must be a list of {{role, content}} objects")
    for i, message in enumerate(value):
        good = isinstance(message, Mapping) and isinstance(message.get("role"), str)
        if not good or not isinstance(message.get("content"), str):
            raise GoldimaskError(
                f"{where}[{i}]: must be an object with string 'role' and 'content'"
            )
    return [{"role": m["role"], "content": m["content"]} for m in value]


def _checked(prompt: list[Message], response: str, where: str) -> Pair:
    if not prompt:
        raise GoldimaskError(f"{where}: the prompt is empty")
    if not response.strip():
        raise GoldimaskError(f"{where}: the response is empty; nothing could be supervised")
    return Pair(prompt, response, where)
