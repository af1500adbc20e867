"""GSM8K: grade-school word problems with a number as answer (1,319 test items).

Published reading (`lift`): the first box that holds a number, else the last number of the first
answer block; correct when equal as a float to the gold. Golds are read without a sign, so that the
two negative ones are never correct, and `\\boxed{1,234}` is read as 1. `fixed` differs in these
points only: signs are read, thousands separators, currency signs and LaTeX spacing are removed,
Unicode digits are digits, and numbers are compared exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from goldimask.eval import answers
from goldimask.eval.tasks.base import Item, Protocol, Task, Verdict, reasoned
from goldimask.eval.testsets import load_rows, pick

INSTRUCTION = (
    "You are a math expert. You will be given a question to solve. Solve it step by step. "
    "Wrap the final answer in a \\boxed{}. \n"
    "Respond in the following format:\n"
    "<reasoning>\nYour reasoning here\n</reasoning>\n<answer>\n\\boxed{...}\n</answer>"
)
_GOLD = re.compile(r"####\s*([^\n]*)")
_LIFT_GOLD = re.compile(r"####\s*\$?([\d,]+(?:\.\d+)?)")
_LIFT_NUMBER = re.compile(r"-?\d+\.?\d*")
_DOTS = re.compile(r"\.+")


def gsm8k(protocol: Protocol = "fixed") -> Task:
    """GSM8K test set, 1,319 word problems; the answer is a number."""
    fixed = protocol == "fixed"
    return reasoned(
        "gsm8k",
        512,
        protocol,
        rows,
        item_of,
        extract_fixed if fixed else extract_lift,
        check_fixed if fixed else check_lift,
        stored,
    )


def rows(source: Path | str | None) -> list[Mapping[str, Any]]:
    return load_rows(
        source,
        task="gsm8k",
        names=("gsm8k",),
        hub=("openai/gsm8k", "main", "test"),
        how="take test.jsonl from openai/grade-school-math",
    )


def item_of(row: Mapping[str, Any], index: int) -> Item:
    question = pick(row, "question", task="gsm8k")
    solution = str(pick(row, "solution", "answer", task="gsm8k"))
    return make_item(str(row.get("id", f"gsm8k/test/{index}")), question, solution)


def make_item(item_id: str, question: str, solution: str) -> Item:
    """`solution` ends in `#### n`, or is the number itself."""
    published = _LIFT_GOLD.search(solution if "####" in solution else f"#### {solution}")
    return Item(
        id=item_id,
        prompt=f"{INSTRUCTION}\n\n{question}",
        gold=gold_number(solution),
        meta={
            "question": question,
            "lift_gold": float(published[1].replace(",", "")) if published else None,
        },
    )


def gold_number(solution: str) -> str | None:
    """The signed number after the last `####`, or of the whole text."""
    marks = _GOLD.findall(solution)
    found = answers.numbers(answers.plain(marks[-1] if marks else solution))
    return found[0] if found else None


def stored(row: Mapping[str, Any], index: int) -> Item | None:
    """d1 and LIFT store the gold as a float, None where their parser failed."""
    gold = row.get("ground_truth")
    question = str(row.get("question", ""))
    if gold is None or isinstance(gold, int | float):
        number = None if gold is None else float(gold)
        text = None if number is None else str(Decimal(repr(number)).normalize().__format__("f"))
        return Item(str(index), question, text, {"question": question, "lift_gold": number})
    return make_item(str(index), question, str(gold))


def extract_fixed(text: str) -> str | None:
    """First box with a number in it, else the last number of the last answer block."""
    for content in answers.lift_flat_boxes(answers.plain(text)):
        if found := answers.numbers(content):
            return found[0]
    block = answers.answer_block(text)
    found = answers.numbers(answers.plain(block)) if block else []
    return found[-1] if found else None


def check_fixed(item: Item, answer: str) -> Verdict:
    if item.gold is None:
        return Verdict(False, "no gold")
    same = Decimal(answer) == Decimal(item.gold)
    return Verdict(same, "" if same else "wrong")


def extract_lift(text: str) -> str | None:
    for content in answers.lift_flat_boxes(text):
        content = content.strip()
        if not content or _DOTS.fullmatch(content):
            continue
        if (number := lift_number(content, first=True)) is not None:
            return repr(number)
    block = answers.lift_first_block(text)
    number = lift_number(block, first=False) if block else None
    return None if number is None else repr(number)


def lift_number(text: str, first: bool) -> float | None:
    """The text as a float, or its first or last number."""
    try:
        return float(text)
    except ValueError:
        found = _LIFT_NUMBER.findall(text)
        return float(found[0 if first else -1]) if found else None


def check_lift(item: Item, answer: str) -> Verdict:
    gold = item.meta["lift_gold"]
    if gold is None:
        return Verdict(False, "no gold")
    same = float(answer) == gold
    return Verdict(same, "" if same else "wrong")
