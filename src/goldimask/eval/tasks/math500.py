"""MATH-500: the 500 held-out MATH problems of "Let's Verify Step by Step"; answers are LaTeX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goldimask.eval.tasks.base import Item, Protocol, Task
from goldimask.eval.tasks.mathematics import make_item, math_task
from goldimask.eval.testsets import load_rows, pick


def math500(protocol: Protocol = "fixed") -> Task:
    """MATH-500, 500 problems; the answer is a LaTeX expression."""
    return math_task("math500", protocol, load, length=512, lengths=(128, 256, 512), row=item_of)


def load(source: Path | str | None) -> list[Item]:
    rows = load_rows(
        source,
        task="math500",
        names=("math500", "math-500"),
        hub=("HuggingFaceH4/MATH-500", None, "test"),
        how="take prm800k/math_splits/test.jsonl from openai/prm800k",
    )
    return [item_of(row, i) for i, row in enumerate(rows)]


def item_of(row: Mapping[str, Any], index: int) -> Item:
    return make_item(
        str(row.get("id") or row.get("unique_id") or f"math500/{index}"),
        pick(row, "problem", "question", task="math500"),
        str(pick(row, "answer", task="math500")),
    )
