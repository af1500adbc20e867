"""What MATH-500 and AIME share: prompt, extraction, and judging by the equivalence pool.

`fixed`: the last closed box, else the last answer block; equal when the normalised strings are,
when both are numbers and equal, or when math-verify says so; each item has a deadline, past which
it is wrong. `lift`: the released extraction and judge (`lift_judge`), which also accepts answers
that are off by a factor of 100; a deadline is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.eval import answers
from goldimask.eval.tasks.base import Item, Judge, Protocol, Task, Verdict

INSTRUCTION = (
    "You are a math expert. You will be given a question to solve. Solve it step by step. "
    "Wrap the final answer in a \\boxed{}.\n"
    "Respond in the following format:\n"
    '<reasoning>\nYour reasoning here\n</reasoning>\n<answer>\n\\boxed{...}\n</answer>" \n'
)


def make_item(item_id: str, question: str, gold: str) -> Item:
    return Item(item_id, f"{INSTRUCTION}\n\n{question}", gold, {"question": question})


def stored(row: Mapping[str, Any], index: int) -> Item | None:
    gold = row.get("ground_truth")
    gold = gold[0] if isinstance(gold, list) and gold else gold
    return None if gold is None else make_item(str(index), str(row.get("question", "")), str(gold))


def extract_fixed(text: str) -> str | None:
    found = answers.last_box(text)
    return (answers.answer_block(text) or None) if found is None else found


def extract_lift(text: str) -> str | None:
    """The last box, or the whole text; the first answer block when the box is empty or open."""
    found = answers.lift_last_box(text)
    return found if found else answers.lift_first_block(text)


def prepare() -> str:
    """What the judge needs is there, and what it is."""
    missing = [name for name in ("math_verify", "pebble") if find_spec(name) is None]
    if missing:
        raise GoldimaskError(
            f"comparing mathematical answers needs {', '.join(missing).replace('_', '-')}: "
            "pip install 'goldimask[eval]'"
        )
    return "answers are compared by math-verify"


def judge(protocol: Protocol) -> Judge:
    def run(items: Sequence[Item], extracted: Sequence[str | None]) -> list[Verdict]:
        from goldimask.eval.mathpool import equivalent

        pairs = [(str(i.gold), x) for i, x in zip(items, extracted, strict=True) if x is not None]
        results = iter(equivalent(pairs, protocol))
        return [
            Verdict(False, "unparsable") if x is None else _verdict(next(results))
            for x in extracted
        ]

    return run


def _verdict(result: str) -> Verdict:
    return Verdict(True) if result == "equal" else Verdict(False, result)


def math_task(
    name: str, protocol: Protocol, load: Callable[..., list[Item]], length: int, **options: Any
) -> Task:
    return Task(
        name=name,
        version="1",
        load=load,
        extract=extract_fixed if protocol == "fixed" else extract_lift,
        judge=judge(protocol),
        length=length,
        prefill="<reasoning>",
        protocol=protocol,
        prepare=prepare,
        raw=True,
        stored=stored,
        **options,
    )
