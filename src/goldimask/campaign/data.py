"""Texts of a comparison: what is trained on, what is held out, what is decoded.

Training rows of a tiny corpus are drawn with the seed of the cell, so that the spread over seeds
includes the choice of the examples; another corpus gives its first rows. Held-out rows of a tiny
corpus are solved test problems in the form of the corpus, without wrong labels; the loss leaves out
random identifiers, which nothing foretells. Another corpus holds out its last rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from goldimask.backbones import Backbone
from goldimask.data.corpora import named_rows
from goldimask.data.examples import to_example, to_pair
from goldimask.data.rows import Row as DataRow
from goldimask.errors import GoldimaskError
from goldimask.tiny.corpora import GENERATED, Flaws, as_row, corpus, flawed, tiny_1k
from goldimask.tiny.families import PROBLEM_FAMILIES, test_set
from goldimask.types import Example

HELDOUT_SEED = 7919  # of the held-out problems; test sets use 0
Row = dict[str, Any]


@lru_cache(maxsize=16)
def training_rows(name: str, n: int, seed: int, eta: float | None = None) -> list[Row]:
    """Rows with `prompt` and `response`; `eta` replaces the corpus's own share of wrong results."""
    if eta is not None:
        return [dict(row) for row in GENERATED[flawed_corpus(name)](n, seed, eta=eta)]
    if name in GENERATED:
        return [dict(row) for row in corpus(name, n, seed)]
    return other_rows(name, n)


def flawed_corpus(name: str) -> str:
    """The name itself, if its rows count their wrong results."""
    if name not in GENERATED or "wrong" not in corpus(name, 1, 0)[0]:
        raise GoldimaskError(f"eta: corpus '{name}' has no wrong results; 'tiny-1k-labels' has")
    return name


def clean_rows(name: str, n: int, seed: int) -> list[Row] | None:
    """The training rows without wrong labels; None for a corpus that has none."""
    rows = training_rows(name, n, seed)
    if not rows or "wrong" not in rows[0]:
        return None
    words = len(rows[0]["identifiers"].split())
    return [dict(row) for row in tiny_1k(n, seed, eta=0.0, identifiers=words)]


@lru_cache(maxsize=16)
def heldout_rows(name: str, n: int) -> list[Row]:
    """Rows that are never trained on."""
    if name not in GENERATED:
        return other_rows(name, n, last=True)
    each = -(-n // len(PROBLEM_FAMILIES))
    sets = [test_set(family, each, HELDOUT_SEED) for family in PROBLEM_FAMILIES]
    rows = [as_row(p) for turn in zip(*sets, strict=True) for p in turn][:n]
    words = len(corpus(name, 1, 0)[0].get("identifiers", "").split())
    return [dict(row) for row in flawed(rows, Flaws(0.0, words), HELDOUT_SEED)]


def other_rows(name: str, n: int, last: bool = False) -> list[Row]:
    """The first or last rows of a corpus that is not generated."""
    pairs = [to_pair(row) for row in named_rows(name)]
    if len(pairs) < n:
        raise GoldimaskError(f"corpus '{name}': {n} rows were asked for, {len(pairs)} are there")
    chosen = pairs[-n:] if last else pairs[:n]
    return [{"prompt": pair.prompt, "response": pair.response} for pair in chosen]


def to_examples(rows: Sequence[Row], backbone: Backbone) -> list[Example]:
    """Tokenised, the turn end supervised."""
    pairs = [to_pair(DataRow(f"row {i}", row)) for i, row in enumerate(rows)]
    made = [
        to_example(pair, backbone, supervise_turn_end=True, overlength="error") for pair in pairs
    ]
    return [e for e in made if e is not None]


def heldout_examples(rows: Sequence[Row], backbone: Backbone) -> list[Example]:
    """Examples whose identifiers are never masked."""
    from goldimask.tiny.identifiers import IDENTIFIERS

    out = []
    words = {i for w in IDENTIFIERS for i in backbone.response_ids(w, turn_end=False)}
    for row, example in zip(rows, to_examples(rows, backbone), strict=True):
        if row.get("identifiers"):
            kept = [
                s and i not in words for s, i in zip(example.supervisable, example.ids, strict=True)
            ]
            example = replace(example, supervisable=kept)
        out.append(example)
    return out


@lru_cache(maxsize=16)
def cached_task(name: str, n: int) -> Any:
    """An evaluation task whose problems are made once per process."""
    from goldimask.eval.tasks import get_task

    task = get_task(name, **({"n": n} if name.startswith("tiny-") else {}))
    items = task.load(None)[:n]
    if len(items) < n:
        raise GoldimaskError(f"judging.problems: task '{name}' has {len(items)} problems, not {n}")
    return replace(task, load=lambda path=None: items)


def problem_texts(task: str, n: int) -> list[str]:
    """What identifies the test problems."""
    found = cached_task(task, n)
    return [f"{found.prompt(item)}\0{item.gold}" for item in found.load(None)]
