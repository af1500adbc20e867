"""AIME 2024 and 2025: 30 problems each, answers are integers from 0 to 999 (decision D21).

Published as pass@16: 16 samples at temperature 0.7 and length 512, one recorded seed per sample.
Neither temperature nor length is in the released code; both are printed with the score.
"""

from __future__ import annotations

from pathlib import Path

from goldimask.eval.sources import load_rows, pick
from goldimask.eval.tasks.base import Item, Protocol, Task
from goldimask.eval.tasks.mathematics import make_item, math_task

SAMPLING = {"samples": 16, "temperature": 0.7}


def aime24(protocol: Protocol = "fixed") -> Task:
    """AIME 2024, 30 problems, pass@16; the answer is an integer."""
    return math_task("aime24", protocol, lambda s: load("aime24", s), 512, sampling=SAMPLING)


def aime25(protocol: Protocol = "fixed") -> Task:
    """AIME 2025, 30 problems, pass@16; the answer is an integer."""
    return math_task("aime25", protocol, lambda s: load("aime25", s), 512, sampling=SAMPLING)


def load(name: str, source: Path | str | None) -> list[Item]:
    hub = {
        "aime24": ("HuggingFaceH4/aime_2024", None, "train"),
        "aime25": ("math-ai/aime25", None, "test"),
    }
    rows = load_rows(
        source,
        task=name,
        names=(name,),
        hub=hub[name],
        how=f"take dataset/{name}.json from divelab/LIFT",
    )
    items = []
    for i, row in enumerate(rows):
        gold = pick(row, "answer", "sol", task=name)
        gold = gold[0] if isinstance(gold, list) else gold
        question = pick(row, "problem", "question", task=name)
        items.append(make_item(str(row.get("id", f"{name}/{i}")), question, str(gold)))
    return items
