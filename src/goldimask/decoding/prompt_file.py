"""Decoding a file of prompts: one JSON line per answer, resumable.

A row of the file asks as a training row does (`data/shapes.py`): `prompt`, `messages`, `question`,
...; a response in it is not shown to the model. Its keys are copied to the answer. Every answer
carries a key made of model, settings and row. A later call skips the answers it finds, drops a line
torn by a kill, and refuses a file of other settings or prompts. When all are done the answers are
put into the order of the prompts.

Several processes may answer (`goldimask.workers`); this one alone writes, and the answers are the
same for any number of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from goldimask.data.rows import Row, read_rows
from goldimask.data.shapes import asked
from goldimask.decoding.engine import decode_iter
from goldimask.decoding.forward import Decodable
from goldimask.decoding.prompts import Prompt
from goldimask.decoding.types import Settings
from goldimask.errors import GoldimaskError
from goldimask.files import write_text
from goldimask.keys import content_id
from goldimask.processes import use_device, worker_devices
from goldimask.workers import Numbered, Pool, Work

JsonObject = dict[str, Any]  # a row, or an answer, whatever else the user put into it
Answer = Callable[[Sequence[Prompt], Sequence[int]], Iterable[Numbered]]  # prompts, their streams
BATCHES = 4  # that a process decodes at a time


@dataclass(frozen=True)
class Answers:
    """What a call did."""

    prompts: int
    decoded: int  # by this call
    found: int  # already in the file
    steps_mean: float
    out: str


def read_prompts(file: Path) -> list[JsonObject]:
    """The rows of a prompt file, each of which asks something."""
    if not file.is_file():
        raise GoldimaskError(f"{file}: no such file; --file takes a .jsonl of prompts")
    rows = []
    for read in read_rows(file):
        asked(read)  # or an error with its place
        rows.append(dict(read.values))
    return rows


def decode_rows(
    answer: Answer,
    rows: Sequence[JsonObject],
    out: Path,
    settings: Settings,
    *,
    model: str,
    prefill: str = "",
    advance: Callable[[int], None] = lambda n: None,
) -> Answers:
    """Decode the rows that `out` does not hold yet; `model` is the hash of its weights."""
    made_with = json.dumps([model, asdict(settings), prefill], sort_keys=True)
    keys = [
        content_id(made_with, json.dumps(row, sort_keys=True), str(i)) for i, row in enumerate(rows)
    ]
    answers = read_answers(out, keys, model)
    todo = [i for i in range(len(rows)) if i not in answers]
    advance(len(answers))
    running = answer(
        [asked(Row("prompts", rows[i])) for i in todo],
        [keys[i] for i in todo],  # so that a resumed file samples as a whole one
    )
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a", encoding="utf-8") as file:
        for place, made in running:
            i = todo[place]
            own = {"index": i, "key": keys[i], "weights": model}
            answers[i] = {**own, **rows[i], **made, **own}
            file.write(json_line(answers[i]))
            file.flush()
            advance(1)
    ordered = [answers[i] for i in range(len(rows))]
    write_text(out, "".join(map(json_line, ordered)))
    mean = sum(a["steps"] for a in ordered) / max(1, len(ordered))
    return Answers(len(rows), len(todo), len(rows) - len(todo), mean, str(out))


def backbone_records(
    backbone: Decodable,
    settings: Settings,
    batch_size: int = 16,
    prefill: str = "",
    trace: bool = False,
) -> Answer:
    """Decode all prompts in one running batch."""

    def answer(prompts: Sequence[Prompt], samples: Sequence[int]) -> Iterator[Numbered]:
        running = decode_iter(
            backbone, prompts, settings, batch_size=batch_size, prefill=prefill, samples=samples
        )
        for index, made in running:
            yield index, made.record(trace)

    return answer


@contextmanager
def answering(
    run: str,
    settings: Settings,
    processes: int | None,
    *,
    dtype: str | None,
    device: str | None,
    batch_size: int,
    say: Callable[[str], None],
    **options: Any,
) -> Iterator[Answer]:
    """Who decodes: this process, or several, each with the model on a device of its own."""
    setup = {"run": run, "dtype": dtype, "batch_size": batch_size, **options}
    if processes is None:
        yield records(settings=settings, device=device, **setup)
        return
    setup["settings"] = asdict(settings)
    devices = worker_devices(processes, device)
    target = "goldimask.decoding.prompt_file:worker"
    with Pool(target, setup, devices, BATCHES * batch_size, say) as pool:
        yield lambda prompts, samples: pool.submit(list(zip(prompts, samples, strict=True)))


def records(run: str, dtype: str | None, device: str | None, **options: Any) -> Answer:
    from goldimask.backbones import load_backbone

    return backbone_records(load_backbone(run, dtype=dtype, device=device), **options)


def worker(device: str, settings: JsonObject, **options: Any) -> Work:
    """What one of several processes does."""
    use_device(device)
    asked = replace(Settings(**settings), suppress=tuple(settings["suppress"]))
    answer = records(device=device, settings=asked, **options)

    def work(items: Sequence[tuple[Prompt, int]]) -> Iterable[Numbered]:
        return answer([prompt for prompt, _ in items], [sample for _, sample in items])

    return work


def json_line(answer: JsonObject) -> str:
    return json.dumps(answer, ensure_ascii=False) + "\n"


def read_answers(out: Path, keys: Sequence[int], model: str) -> dict[int, JsonObject]:
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
            other = answer.get("weights", model) if isinstance(answer, dict) else model
            what = (
                "other settings or prompts" if other == model else f"weights {other}, not {model}"
            )
            raise GoldimaskError(f"{where}: made with {what}; choose another --out")
        answers[index] = answer
    return answers
