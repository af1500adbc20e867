"""AIME 2024 and 2025: 30 problems each, answers are integers from 0 to 999.

Published as pass@16. Here: 16 samples at temperature 0.7 and length 512, a recorded seed each.
Neither temperature nor length is in the released code; both are printed with the score
(D21, docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goldimask.eval.tasks.base import Item, Protocol, Task
from goldimask.eval.tasks.mathematics import make_item, math_task
from goldimask.eval.testsets import load_rows, pick
from goldimask.records import Decoding

DECODING = Decoding(decoder="low-confidence", options={"block": 32, "temperature": 0.7})


def aime24(protocol: Protocol = "fixed") -> Task:
    """AIME 2024, 30 problems, pass@16; the answer is an integer."""
    return _aime("aime24", protocol)


def aime25(protocol: Protocol = "fixed") -> Task:
    """AIME 2025, 30 problems, pass@16; the answer is an integer."""
    return _aime("aime25", protocol)


def _aime(name: str, protocol: Protocol) -> Task:
    return math_task(
        name,
        protocol,
        lambda source: load(name, source),
        512,
        lengths=(512,),
        decoding=DECODING,
        samples=16,
        row=item_of,
    )


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
    return [item_of(row, i) for i, row in enumerate(rows)]


def item_of(row: Mapping[str, Any], index: int) -> Item:
    gold = pick(row, "answer", "sol", task="aime")
    gold = gold[0] if isinstance(gold, list) else gold
    question = pick(row, "problem", "question", task="aime")
    return make_item(str(row.get("id", f"aime/{index}")), question, str(gold))
