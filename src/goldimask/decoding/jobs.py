"""Decoding a file of prompts: one JSON line per answer, in any order, resumable.

Input lines are objects with `prompt` (a string, one user turn) or `messages`; other keys are copied
to the answer. Every answer carries a key made of model, settings and prompt. A later call skips the
answers it finds, drops a line torn by a kill, and refuses a file of other settings or prompts. When
all are done the file is rewritten in the order of the prompts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from goldimask.decoding.engine import decode_iter
from goldimask.decoding.forward import Decodable
from goldimask.decoding.prompts import make_settings
from goldimask.errors import GoldimaskError
from goldimask.files import write_text
from goldimask.keys import content_id


@dataclass(frozen=True)
class JobReport:
    """What a call did."""

    prompts: int
    decoded: int  # by this call
    found: int  # already in the file
    steps_mean: float
    out: str


def read_prompts(path: Path | str) -> list[dict[str, Any]]:
    """The lines of a prompt file, each with `prompt` or `messages`."""
    path = Path(path)
    if not path.is_file():
        raise GoldimaskError(f"{path}: no such file; --file takes a .jsonl of prompts")
    rows = []
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise GoldimaskError(f"{path}:{number}: not valid JSON ({error.msg})") from error
        if not isinstance(row, dict) or ("prompt" in row) == ("messages" in row):
            raise GoldimaskError(
                f"{path}:{number}: expected an object with either 'prompt' or 'messages'"
            )
        rows.append(row)
    return rows


def run_job(
    backbone: Decodable,
    rows: Sequence[dict[str, Any]],
    out: Path | str,
    *,
    model: str,
    decoder: str = "threshold",
    batch_size: int = 16,
    prefill: str = "",
    trace: bool = False,
    advance: Callable[[int], None] = lambda n: None,
    **options: Any,
) -> JobReport:
    """Decode the rows that `out` does not hold yet."""
    out = Path(out)
    settings, _ = make_settings(decoder, **options)
    fixed = json.dumps([model, asdict(settings), prefill], sort_keys=True)
    keys = [
        content_id(fixed, json.dumps(row, sort_keys=True), str(i)) for i, row in enumerate(rows)
    ]
    done = read_answers(out, keys)
    advance(len(done))
    todo = [i for i in range(len(rows)) if i not in done]
    prompts = [rows[i].get("prompt", rows[i].get("messages")) for i in todo]
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", encoding="utf-8") as file:
        for place, made in decode_iter(
            backbone,
            prompts,
            decoder,
            batch_size=batch_size,
            prefill=prefill,
            samples=[keys[i] for i in todo],  # so that a resumed file samples as a whole one
            **options,
        ):
            i = todo[place]
            answer = {"index": i, "key": keys[i], **rows[i], **made.record(trace)}
            file.write(json.dumps(answer, ensure_ascii=False) + "\n")
            file.flush()
            done[i] = answer
            advance(1)
    ordered = [done[i] for i in range(len(rows))]
    write_text(out, "".join(json.dumps(a, ensure_ascii=False) + "\n" for a in ordered))
    steps = [a["steps"] for a in ordered]
    mean = sum(steps) / len(steps) if steps else 0.0
    return JobReport(len(rows), len(todo), len(rows) - len(todo), mean, str(out))


def read_answers(out: Path, keys: Sequence[int]) -> dict[int, dict[str, Any]]:
    """Answers already in the file; a torn last line is cut off."""
    if not out.exists():
        return {}
    data = out.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        write_text(out, whole.decode("utf-8"))
    found: dict[int, dict[str, Any]] = {}
    for number, line in enumerate(whole.decode("utf-8").splitlines(), start=1):
        try:
            answer = json.loads(line)
            index, key = int(answer["index"]), int(answer["key"])
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise GoldimaskError(
                f"{out}:{number}: not an answer of goldimask decode; choose another --out"
            ) from error
        if index >= len(keys) or key != keys[index]:
            raise GoldimaskError(
                f"{out}:{number}: made with another model, other settings or other prompts; "
                "choose another --out"
            )
        found[index] = answer
    return found
