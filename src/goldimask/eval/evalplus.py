"""Answers for EvalPlus (HumanEval+, MBPP+): rows {task_id, solution}, what our judge ran as a file.

    solution = helpers of the prompt + the program [+ `entry = f`]

The published HumanEval prompt does not tell the function's name; where the judge tested a function
of another name, the last line gives it the one that EvalPlus calls. A problem without a program has
an empty solution: EvalPlus refuses a file that leaves one out. Sampling seeds are repeated rows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from goldimask.errors import GoldimaskError
from goldimask.eval.tasks.base import Item, Task
from goldimask.eval.trials import Planned
from goldimask.files import write_text
from goldimask.records import Outcome

_IDS = {"humaneval": (r"HumanEval/(\d+)", "HumanEval"), "mbpp": (r"(?:[Mm]bpp/)?(\d+)", "Mbpp")}


def check_export(trials: Sequence[Planned], shard: tuple[int, int]) -> None:
    """Refuse before any decoding what cannot be exported."""
    code = [t for t in trials if t.task.program is not None]
    if not code:
        raise GoldimaskError("--export evalplus: needs humaneval or mbpp among --tasks")
    if shard[1] > 1:
        raise GoldimaskError(
            "--export evalplus: a shard has a part of the answers; evaluate the shards first, then "
            "give the command once more without --shard"
        )
    ways: dict[str, tuple[object, object]] = {}
    for t in code:
        if ways.setdefault(t.task.name, (t.length, t.decoding)) != (t.length, t.decoding):
            raise GoldimaskError(
                f"--export evalplus: {t.task.name} has several lengths or ways of decoding, which "
                "a file of samples cannot tell apart; choose one"
            )
        for item in t.items:
            evalplus_id(t.task.name, item.id)


def export(trials: Sequence[Planned], outcomes: Sequence[Outcome], folder: Path) -> list[Path]:
    """`FOLDER/evalplus-TASK.jsonl` for every code task."""
    tasks = {t.task.name: t for t in trials if t.task.program is not None}
    written = []
    for name, trial in tasks.items():
        items = {item.id: item for item in trial.items}
        rows = [
            {
                "task_id": evalplus_id(name, o.item),
                "solution": solution(trial.task, items[o.item], o.extracted),
            }
            for o in outcomes
            if o.task == name
        ]
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        written.append(write_text(folder / f"evalplus-{name}.jsonl", lines))
    return written


def evalplus_id(task: str, item: str) -> str:
    """`HumanEval/0`, and `Mbpp/11` of `11` and `mbpp/11`."""
    form, name = _IDS[task.removesuffix("-standard")]
    match = re.fullmatch(form, item, re.ASCII)
    if match is None:
        raise GoldimaskError(f"--export evalplus: {task}: EvalPlus has no problem '{item}'")
    return f"{name}/{match[1]}"


def solution(task: Task, item: Item, extracted: str | None) -> str:
    """One self-contained file with the function under the name that EvalPlus calls."""
    if extracted is None or task.program is None:
        return ""
    built = task.program(item, extracted)
    if isinstance(built, str):  # no function: as it is, and wrong
        return extracted
    entry = item.meta.get("entry")
    renamed = [f"{entry} = {built.names[0]}\n"] if entry and entry not in built.names else []
    return "\n\n".join([*[built.prelude] * bool(built.prelude.strip()), built.source, *renamed])
