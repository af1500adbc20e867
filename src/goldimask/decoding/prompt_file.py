"""Decoding a file of prompts: one JSON line per answer, resumable.

A row of the file has `prompt` (a string, one user turn) or `messages`; its other keys are copied to
the answer. Every answer carries a key made of model, settings and row. A later call skips the
answers it finds, drops a line torn by a kill, and refuses a file of other settings or prompts. When
all are done the answers are put into the order of the prompts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from goldimask.data.rows import read_rows
from goldimask.decoding.engine import decode_iter
from goldimask.decoding.forward import Decodable
from goldimask.decoding.types import Settings
from goldimask.errors import GoldimaskError
from goldimask.files import write_text
from goldimask.keys import content_id

JsonObject = dict[str, Any]  # a row, or an answer, whatever else the user put into it


@dataclass(frozen=True)
class Answers:
    """What a call did."""

    prompts: int
    decoded: int  # by this call
    found: int  # already in the file
    steps_mean: float
    out: str


def read_prompts(file: Path) -> list[JsonObject]:
    """The rows of a prompt file, each with `prompt` or `messages`."""
    if not file.is_file():
        raise GoldimaskError(f"{file}: no such file; --file takes a .jsonl of prompts")
    rows = []
    for read in read_rows(file):
        where, row = read.where, read.values
        if not isinstance(row, Mapping) or ("prompt" in row) == ("messages" in row):
            raise GoldimaskError(f"{where}: expected an object with either 'prompt' or 'messages'")
        rows.append(dict(row))
    return rows


def decode_rows(
    backbone: Decodable,
    rows: Sequence[JsonObject],
    out: Path,
    settings: Settings,
    *,
    model: str,
    batch_size: int = 16,
    prefill: str = "",
    trace: bool = False,
    advance: Callable[[int], None] = lambda n: None,
) -> Answers:
    """Decode the rows that `out` does not hold yet; `model` is the hash of its weights."""
    made_with = json.dumps([model, asdict(settings), prefill], sort_keys=True)
    keys = [
        content_id(made_with, json.dumps(row, sort_keys=True), str(i)) for i, row in enumerate(rows)
    ]
    answers = read_answers(out, keys)
    todo = [i for i in range(len(rows)) if i not in answers]
    advance(len(answers))
    running = decode_iter(
        backbone,
        [rows[i]["prompt"] if "prompt" in rows[i] else rows[i]["messages"] for i in todo],
        settings,
        batch_size=batch_size,
        prefill=prefill,
        samples=[keys[i] for i in todo],  # so that a resumed file samples as a whole one
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", encoding="utf-8") as file:
        for place, made in running:
            i = todo[place]
            answers[i] = {"index": i, "key": keys[i], **rows[i], **made.record(trace)}
            file.write(json_line(answers[i]))
            file.flush()
            advance(1)
    ordered = [answers[i] for i in range(len(rows))]
    write_text(out, "".join(map(json_line, ordered)))
    mean = sum(a["steps"] for a in ordered) / max(1, len(ordered))
    return Answers(len(rows), len(todo), len(rows) - len(todo), mean, str(out))


def json_line(answer: JsonObject) -> str:
    return json.dumps(answer, ensure_ascii=False) + "\n"


def read_answers(out: Path, keys: Sequence[int]) -> dict[int, JsonObject]:
    """Answers already in the file, by row; a torn last line is cut off."""
    if out.suffix != ".jsonl":
        raise GoldimaskError(f"--out: '{out}' must end in .jsonl")
    if not out.exists():
        return {}
    data = out.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        write_text(out, whole.decode("utf-8"))
    answers: dict[int, JsonObject] = {}
    for read in read_rows(out):
        where, answer = read.where, read.values
        index = answer.get("index", -1) if isinstance(answer, dict) else -1
        if index not in range(len(keys)) or answer.get("key") != keys[index]:
            raise GoldimaskError(
                f"{where}: made with another model, other settings or other prompts; "
                "choose another --out"
            )
        answers[index] = answer
    return answers
