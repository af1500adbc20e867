"""Score generations that some harness has stored, as the outcomes an evaluation would write.

Understood: the JSON of dllm-reasoning/d1 and divelab/LIFT (an object with a list `generations` of
`question`, `generations`, `ground_truth`), this project's evaluation folders and sample files,
lm-eval's sample logs, and JSON Lines with a text and a gold under any of the usual names. Several
files are pooled.

A stored gold may be damaged (d1 and LIFT store None for GSM8K's negative ones). When the test set
is at hand (`--data` or GOLDIMASK_DATA), each row is matched to it by its question and the gold
taken from there.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from goldimask.data.rows import Row, read_rows
from goldimask.data.shapes import asked
from goldimask.errors import GoldimaskError
from goldimask.eval.run import judged
from goldimask.eval.tasks import Item, Task, accepted, get_task, known_tasks, own_samples
from goldimask.eval.testsets import Columns
from goldimask.eval.trials import prompt_hash
from goldimask.records import (
    MANIFEST,
    SAMPLES,
    Decoding,
    Manifest,
    Outcome,
    answerer,
    read_evaluation,
    read_lines,
)
from goldimask.stats import TaskResult, aggregate, pooled, result_of, sampled_result

TEXTS = ("generations", "generation", "output", "response", "completion", "text", "raw_generation")
GOLDS = ("ground_truth", "gold", "target", "answer")
QUESTIONS = ("question", "problem", "prompt")
UNKNOWN = Decoding(decoder="unknown")  # what another harness did is not in its files


@dataclass(frozen=True)
class Stored:
    """One stored generation and the problem it answers."""

    item: Item
    outcome: Outcome  # not judged yet, or judged by whoever wrote it
    where: str  # file and row, for messages


@dataclass(frozen=True)
class Score:
    """What a set of stored generations is worth."""

    result: TaskResult
    outcomes: tuple[Outcome, ...] = field(repr=False)
    files: int = 1

    @property
    def details(self) -> dict[str, int]:
        """Why answers failed, and how many each."""
        return dict(Counter(o.detail.split(":")[0] for o in self.outcomes if not o.correct))

    def to_json(self) -> dict[str, Any]:
        keys = ("task", "protocol", "n", "correct", "accuracy", "low", "high", "unparsable")
        row = {key: getattr(self.result, key) for key in (*keys, "metric", "version")}
        row |= {"files": self.files, "details": self.details}
        if any(o.of for o in self.outcomes):
            hits, cells = pooled(self.outcomes)
            row |= {"cells": int(cells), "cells_correct": int(hits), "solved": self.result.solved}
        if (k := own_samples(self.result.task)) > 1:
            found = sampled_result(self.outcomes, k)
            row |= {"pass_at": {found.metric: found.accuracy}, "problems": found.n}
        trials = aggregate(self.outcomes)  # what the pooled figures mix
        return row | ({"trials": [t.to_json() for t in trials]} if len(trials) > 1 else {})


def score_stored(stored: Sequence[Stored], task: Task, files: int = 1) -> Score:
    """Judge what was read."""
    if task.prepare:
        task.prepare()
    outcomes = judged(task, [(s.item, s.outcome) for s in stored])
    return Score(result_of(outcomes, task.metric), tuple(outcomes), files)


def disagreements(stored: Sequence[Stored], first: Score, second: Score) -> list[dict[str, Any]]:
    """Generations on which two protocols give different verdicts."""
    return [
        {"where": s.where, "id": s.item.id, "gold": s.item.gold}
        | {x.protocol: verdict(x) for x in (a, b)}
        for s, a, b in zip(stored, first.outcomes, second.outcomes, strict=True)
        if (a.correct, a.hits) != (b.correct, b.hits)
    ]


def verdict(o: Outcome) -> dict[str, Any]:
    found = {"extracted": o.extracted, "correct": o.correct, "detail": o.detail}
    return found | ({"hits": o.hits} if o.of else {})


# --- reading -------------------------------------------------------------------------------------


def read_stored(
    files: Sequence[Path | str], task: Task, data: Path | str | None = None
) -> list[Stored]:
    """All generations of all files."""
    found: list[Stored] = []
    known = Known(task, data)
    owners: dict[str, tuple[str, Path]] = {}  # of our own answers; two models are never pooled
    for path in map(Path, files):
        own = own_outcomes(path)
        if own is not None:
            owner, own = own
            if owner is not None:
                owners.setdefault(owner.weights, (owner.model, path))
            if len(owners) > 1:
                (a, one), (b, other) = owners.values()
                raise GoldimaskError(
                    f"'{one}' holds answers of {a} and '{other}' of {b}, which are other weights; "
                    "score them apart"
                )
            mine = [o for o in own if o.task == task.name]
            known.cover(max((o.index for o in mine), default=-1) + 1)
            for o in mine:
                where = f"{path}: {o.item}"
                found.append(Stored(known.find({"id": o.item}, o.index, where), o, where))
            continue
        for i, row in enumerate(r.values for r in read_rows(path)):
            found += stored_of(row, i, f"{path}:{i + 1}", task, known)
    if not found:
        raise GoldimaskError(f"{', '.join(map(str, files))}: no generations of task '{task.name}'")
    return found


def own_outcomes(path: Path) -> tuple[Manifest | None, list[Outcome]] | None:
    """Whose and which outcomes an evaluation folder or one of its files holds, if it is one.

    A file that was taken out of its folder is nobody's.
    """
    if path.is_dir():
        return read_evaluation(path)
    if not (path.match(SAMPLES) and path.is_file()):
        return None
    own = answerer(path.parent) if (path.parent / MANIFEST).is_file() else None
    return own, read_lines(path, Outcome)[0]


def stored_of(row: Columns, index: int, where: str, task: Task, known: Known) -> list[Stored]:
    """A row's generations; lm-eval may hold several for one problem."""
    if not isinstance(row, Mapping):
        raise GoldimaskError(f"{where}: expected an object, got {type(row).__name__}")
    item = known.find(row, index, where)
    return [
        Stored(item, outcome_of(task, item, index, copy, text), where)
        for copy, text in enumerate(texts_of(row, where))
    ]


def outcome_of(task: Task, item: Item, index: int, copy: int, text: str) -> Outcome:
    """As far as a foreign file tells; the copies of an answer count as sampling seeds."""
    return Outcome(
        task=task.name,
        version="",
        protocol="",
        item=item.id,
        index=index,
        length=0,
        seed=copy,
        decoding=UNKNOWN,
        prompt=prompt_hash(task, item),
        output=text,
        extracted=None,
        correct=False,
        detail="",
        hits=0.0,
        of=0.0,
        steps=0,
        seconds=0.0,
    )


def texts_of(row: Columns, where: str) -> list[str]:
    if "resps" in row:  # lm-eval: one list per request
        parts = row["resps"] if isinstance(row["resps"], list) else [row["resps"]]
        flat = [x for part in parts for x in (part if isinstance(part, list) else [part])]
        return [str(x) for x in flat]
    if {"text", "tokens", "steps"} <= row.keys():  # of `decode --file`, beside the row's columns
        return [str(row["text"])]
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
        if data is not None or task.at_hand:
            self.load(task)
        elif os.environ.get("GOLDIMASK_DATA") and task.stored:
            with suppress(GoldimaskError):  # a help, not a need: rows carry golds of their own
                self.load(task)

    def load(self, task: Task) -> None:
        items = task.load(self.data)
        self.by_id = {i.id: i for i in items}
        self.by_question = {squeezed(str(i.meta.get("question", i.prompt))): i for i in items}

    def cover(self, count: int) -> None:
        """Our own outcomes carry no gold: the test set has to be loaded, `count` problems of it."""
        if count and not self.by_id:
            name = self.task.name
            more = accepted(name, {"n": count}) if name in known_tasks() else {}
            self.load(get_task(name, **more) if more else self.task)

    def find(self, row: Columns, index: int, where: str) -> Item:
        document = row.get("doc")
        document = document if isinstance(document, Mapping) else {}
        question = next((row[k] for k in QUESTIONS if isinstance(row.get(k), str)), None)
        question = question or next((document[k] for k in QUESTIONS if k in document), "")
        if self.task.at_hand and "doc" not in row:
            with suppress(GoldimaskError):
                question = asked(Row(where, row))  # in any shape that a question can have
        item = self.by_id.get(str(row.get("id"))) or self.by_question.get(squeezed(str(question)))
        if item is not None:
            return item
        if self.task.at_hand:
            raise GoldimaskError(f"{where}: not one of the questions of '{self.task.name}'")
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
