"""Score generations that some harness has stored.

Understood: the JSON of dllm-reasoning/d1 and divelab/LIFT (an object with a list `generations` of
`question`, `generations`, `ground_truth`), this project's sample files, lm-eval's sample logs, and
JSON Lines with a text and a gold under any of the usual names. Several files are pooled.

A stored gold may be damaged (d1 and LIFT store None for GSM8K's negative ones). When the test set
is at hand (`--data` or GOLDIMASK_DATA), each row is matched to it by its question and the gold
taken from there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.eval.sources import read_rows
from goldimask.eval.tasks import Item, Task, Verdict, get_task
from goldimask.stats import wilson

TEXTS = ("generations", "generation", "output", "response", "completion", "text", "raw_generation")
GOLDS = ("ground_truth", "gold", "target", "answer")
QUESTIONS = ("question", "problem", "prompt")


@dataclass(frozen=True)
class Stored:
    """One stored generation and the problem it answers."""

    item: Item
    text: str
    where: str  # file and row, for messages


@dataclass(frozen=True)
class Scored:
    """One generation with its verdict."""

    id: str
    where: str
    question: str
    gold: Any
    text: str
    extracted: str | None
    verdict: Verdict


@dataclass(frozen=True)
class Score:
    """What a set of stored generations is worth."""

    task: str
    protocol: str
    n: int
    correct: int
    accuracy: float  # of cells where a task pools them
    low: float
    high: float
    unparsable: int
    metric: str = "accuracy"
    version: str = ""
    files: int = 1
    details: dict[str, int] = field(default_factory=dict)  # why answers failed
    extra: dict[str, float] = field(default_factory=dict)  # Sudoku: cells, cells_correct, solved
    samples: tuple[Scored, ...] = field(default=(), repr=False)

    def to_json(self) -> dict[str, Any]:
        row = asdict(self)
        del row["samples"]
        return row | row.pop("extra")


def score_files(
    files: Sequence[Path | str],
    task: str,
    protocol: str = "fixed",
    *,
    data: Path | str | None = None,
    **options: Any,
) -> Score:
    """Read, extract and judge; `options` go to the task."""
    chosen = get_task(task, protocol=protocol, **options)
    stored = read_stored(files, chosen, data)
    return score_stored(stored, chosen, len(files))


def score_stored(stored: Sequence[Stored], task: Task, files: int = 1) -> Score:
    """Judge what was read."""
    if task.prepare:
        task.prepare()
    extracted = [task.extract(s.text) for s in stored]
    verdicts = task.judge_all([s.item for s in stored], extracted)
    samples = tuple(
        Scored(s.item.id, s.where, str(s.item.meta.get("question", "")), s.item.gold, s.text, x, v)
        for s, x, v in zip(stored, extracted, verdicts, strict=True)
    )
    n, correct = len(samples), sum(v.correct for v in verdicts)
    of = sum(v.of for v in verdicts)
    hits, total = (sum(v.hits for v in verdicts), of) if of else (correct, n)
    low, high = wilson(hits, total)
    cells = {"cells": int(of), "cells_correct": int(hits), "solved": correct / n} if of else {}
    return Score(
        task=task.name,
        protocol=task.protocol,
        n=n,
        correct=correct,
        accuracy=hits / total,
        low=low,
        high=high,
        unparsable=sum(x is None for x in extracted),
        metric=task.metric,
        version=task.version,
        files=files,
        details=dict(Counter(v.detail.split(":")[0] for v in verdicts if not v.correct)),
        extra=cells,
        samples=samples,
    )


def disagreements(stored: Sequence[Stored], first: Score, second: Score) -> list[dict[str, Any]]:
    """Samples on which two protocols give different verdicts."""
    out = []
    for row, a, b in zip(stored, first.samples, second.samples, strict=True):
        if (a.verdict.correct, a.verdict.hits) != (b.verdict.correct, b.verdict.hits):
            out.append(
                {
                    "where": row.where,
                    "id": a.id,
                    "gold": a.gold,
                    **{
                        score.protocol: {
                            "extracted": x.extracted,
                            "correct": x.verdict.correct,
                            "detail": x.verdict.detail,
                            **({"hits": x.verdict.hits} if x.verdict.of else {}),
                        }
                        for score, x in ((first, a), (second, b))
                    },
                }
            )
    return out


# ---------------------------------------------------------------- reading


def read_stored(
    files: Sequence[Path | str], task: Task, data: Path | str | None = None
) -> list[Stored]:
    """All generations of all files."""
    found: list[Stored] = []
    known = Known(task, data)
    for name in files:
        path = Path(name)
        paths = sorted(path.glob("samples-*.jsonl")) if path.is_dir() else [path]
        if not paths:
            raise GoldimaskError(f"{path}: a folder without samples-*.jsonl")
        for file in paths:
            rows = generations(file)
            known.expect(rows)
            for i, row in enumerate(rows):
                found += stored_of(row, i, f"{file}:{i + 1}", task, known)
    if not found:
        raise GoldimaskError(f"{', '.join(map(str, files))}: no generations of task '{task.name}'")
    return found


def generations(path: Path) -> list[Mapping[str, Any]]:
    """The rows of a file; the list `generations` of d1's and LIFT's objects."""
    if path.name.removesuffix(".gz").endswith(".json"):
        import gzip
        import json

        try:
            data = path.read_bytes()
            value = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        except (OSError, ValueError) as error:
            raise GoldimaskError(f"{path}: cannot be read as JSON ({error})") from error
        if isinstance(value, dict) and isinstance(value.get("generations"), list):
            return value["generations"]
    return read_rows(path)


def stored_of(
    row: Mapping[str, Any], index: int, where: str, task: Task, known: Known
) -> list[Stored]:
    """A row's generations; lm-eval may hold several for one problem."""
    if not isinstance(row, Mapping):
        raise GoldimaskError(f"{where}: expected an object, got {type(row).__name__}")
    if "decoding" in row and row.get("task") not in (None, task.name):
        return []  # our own file may hold several tasks
    item = known.find(row, index, where)
    return [Stored(item, text, where) for text in texts_of(row, where)]


def texts_of(row: Mapping[str, Any], where: str) -> list[str]:
    if "resps" in row:  # lm-eval: one list per request
        flat = [x for part in row["resps"] for x in (part if isinstance(part, list) else [part])]
        return [str(x) for x in flat]
    for key in TEXTS:
        value = row.get(key)
        if isinstance(value, str):
            return [value]
        if isinstance(value, list) and all(isinstance(x, str) for x in value):
            return list(value)
    raise GoldimaskError(f"{where}: no generated text; expected one of the keys {', '.join(TEXTS)}")


class Known:
    """Finds the problem a row answers: in the test set if it is at hand, else in the row itself."""

    def __init__(self, task: Task, data: Path | str | None) -> None:
        self.task, self.data = task, data
        self.by_id: dict[str, Item] = {}
        self.by_question: dict[str, Item] = {}
        if data is not None:
            self.load(task)
        elif os.environ.get("GOLDIMASK_DATA") and task.stored:
            with suppress(GoldimaskError):  # a help, not a need: rows carry golds of their own
                self.load(task)

    def load(self, task: Task) -> None:
        items = task.load(self.data)
        self.by_id = {i.id: i for i in items}
        self.by_question = {squeezed(str(i.meta.get("question", i.prompt))): i for i in items}

    def expect(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Our own samples carry no gold: the test set has to be loaded."""
        ours = [r for r in rows if isinstance(r, Mapping) and "prompt_hash" in r and "index" in r]
        if ours and not self.by_id:
            last = max(int(r["index"]) for r in ours) + 1
            name = self.task.name
            self.load(get_task(name, n=last) if name.startswith("tiny-") else self.task)

    def find(self, row: Mapping[str, Any], index: int, where: str) -> Item:
        document = row.get("doc")
        document = document if isinstance(document, Mapping) else {}
        question = next((row[k] for k in QUESTIONS if isinstance(row.get(k), str)), None)
        question = question or next((document[k] for k in QUESTIONS if k in document), "")
        item = self.by_id.get(str(row.get("id"))) or self.by_question.get(squeezed(str(question)))
        if item is not None:
            return item
        if document and self.task.row:
            return self.task.row(document, index)
        gold = next((row[k] for k in GOLDS if k in row), None)
        has_gold = any(k in row for k in GOLDS)
        if self.task.stored and has_gold:
            item = self.task.stored({**row, "question": question, "ground_truth": gold}, index)
        if item is None:
            raise GoldimaskError(
                f"{where}: no gold answer for task '{self.task.name}' in the row and none in a "
                f"test set; expected one of the keys {', '.join(GOLDS)}, or name the test set "
                "with --data"
            )
        return item


def squeezed(text: str) -> str:
    """Questions are compared without regard to spacing."""
    return " ".join(text.split())
