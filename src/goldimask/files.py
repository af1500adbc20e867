"""Files: written so that nobody ever sees half of one, read as if a stranger had written them.

What is read is plain data: texts that can be written again, finite numbers, lists, mappings with
texts as keys, no deeper than anybody needs. YAML has no aliases, which a few lines can multiply
into gigabytes. Everything else is an error that names the file and the key.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError

from goldimask.errors import GoldimaskError, short

DEPTH = 64  # of lists and mappings within each other
LARGEST = 10**40  # of a whole number; a tokenizer may say 10^30 for "no limit"
YAML_SIZE = 200_000  # characters; a recipe has a few hundred


# --- reading -------------------------------------------------------------------------------------


def parse_json(text: str | bytes, where: str) -> Any:
    """Any JSON value; `where` is its file and line."""
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise GoldimaskError(
            f"{where}: not valid JSON: {error.msg} at column {error.colno}"
        ) from error
    except RecursionError:
        raise GoldimaskError(f"{where}: nested too deeply") from None
    except ValueError as error:  # bytes that are not UTF-8, a number of 5,000 digits
        raise GoldimaskError(f"{where}: not valid JSON: {short(str(error))}") from error
    marks = (b"[", b"{") if isinstance(text, bytes) else ("[", "{")
    if sum(text.count(mark) for mark in marks) > DEPTH:  # type: ignore[arg-type]
        shallow(value, where)
    return value


def shallow(value: Any, where: str) -> None:
    """Refuse what is nested deeper than `DEPTH`; level by level, so that nothing recurses."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > DEPTH:
            raise GoldimaskError(f"{where}: nested too deeply (more than {DEPTH} levels)")
        inner = [v.values() if isinstance(v, dict) else v for v in level]
        level = [x for part in inner for x in part if isinstance(x, dict | list)] if inner else []


def read_object(path: Path) -> dict[str, Any]:
    """A file that holds one JSON object of plain values."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise GoldimaskError(f"{path}: cannot be read ({error.strerror})") from error
    value = parse_json(data, str(path))
    if not isinstance(value, dict):
        raise GoldimaskError(f"{path}: expected a JSON object, found a {type(value).__name__}")
    check_plain(value, str(path))
    return value


class _NoAliases(yaml.SafeLoader):
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            mark = self.peek_event().start_mark
            problem = "an alias (*name); write the value out"
            raise ComposerError(problem=problem, problem_mark=mark)
        if self.depth > DEPTH:  # the reader takes quadratic time to find out
            raise RecursionError
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


def parse_yaml(text: str, where: str) -> Any:
    """Any YAML value that is plain data; `where` is its file."""
    if len(text) > YAML_SIZE:
        raise GoldimaskError(f"{where}: {len(text)} characters; more than {YAML_SIZE} are refused")
    try:
        value = yaml.load(text, _NoAliases)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        problem = short(str(error.problem or error.context))
        raise GoldimaskError(f"{place}: not valid YAML: {problem}") from error
    except RecursionError:
        raise GoldimaskError(f"{where}: nested too deeply") from None
    except Exception as error:  # wrong dates, numbers and tags raise many kinds
        raise GoldimaskError(f"{where}: not valid YAML: {short(str(error))}") from error
    check_plain(value, where)
    return value


def check_plain(value: Any, where: str, key: str = "", depth: int = 0) -> None:
    """Refuse what is not plain data, by its key."""
    at = f"{where}: {key}" if key else where
    if depth > DEPTH:
        raise GoldimaskError(f"{where}: nested too deeply (more than {DEPTH} levels)")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if not isinstance(name, str):
                raise GoldimaskError(f"{at}: the key {short(name)} is not a text; quote it")
            check_plain(name, at)
            check_plain(inner, where, f"{key}.{short(name)}" if key else short(name), depth + 1)
    elif isinstance(value, list | tuple):
        for i, inner in enumerate(value):
            check_plain(inner, where, f"{key}[{i}]", depth + 1)
    elif isinstance(value, str):
        if "\0" in value or not encodable(value):
            raise GoldimaskError(f"{at}: the text {short(value)} holds half a character or a NUL")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise GoldimaskError(f"{at}: {value} is not a finite number")
    elif isinstance(value, int):
        if abs(value) > LARGEST:
            raise GoldimaskError(f"{at}: the number is too large")
    elif value is not None:
        raise GoldimaskError(
            f"{at}: {short(value)} is a {type(value).__name__}; quote it if it is a text"
        )


def encodable(text: str) -> bool:
    """Whether a text is whole: half a character (a lone surrogate) cannot be written."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


# --- writing -------------------------------------------------------------------------------------


def write_text(path: Path | str, text: str) -> Path:
    """Write to a temporary name beside the target, then rename."""
    return write_bytes(path, text.encode("utf-8"))


def write_bytes(path: Path | str, data: bytes) -> Path:
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp is private; a result is not
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def write_json(path: Path | str, value: Any) -> Path:
    return write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


@contextmanager
def new_folder(path: Path | str) -> Iterator[Path]:
    """Yield a temporary folder beside `path` that takes its name when the block succeeds."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}."))
    try:
        yield temporary
        os.chmod(temporary, 0o755)
        if path.exists():
            shutil.rmtree(path)
        os.replace(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
