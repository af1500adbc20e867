"""Countdown: reach a target from three numbers, each used exactly once (256 items).

`fixed`: the last box (else the last answer block) is parsed as an expression of + - * / and
parentheses, evaluated in exact rationals; the integers in it must be the given ones. A right-hand
side after an equals sign is dropped. `lift`: the released rules, the value by Python's arithmetic
within 1e-5, without calling `eval`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from goldimask.eval import answers
from goldimask.eval.expression import from_latex, lift_value, rational
from goldimask.eval.tasks.base import Item, Protocol, Task, Verdict, reasoned
from goldimask.eval.testsets import load_rows, pick

INSTRUCTION = (
    "Using only the provided numbers, create an arithmetic expression that evaluates to exactly "
    "the provided target number. You may use the operations +, -, *, and / as needed, but each "
    "number must be used exactly once. Think step-by-step. After reasoning, provide only your "
    "final expression inside \\boxed{} tags without including an equals sign or the target number. "
    "For example: \\boxed{a + b * c}"
    "Respond in the following format:\n"
    "<reasoning>\nYour reasoning here\n</reasoning>\n<answer>\n\\boxed{...}\n</answer>"
)
_NUMBERS = re.compile(r"Numbers: \[([\d, ]{1,200})\]", re.IGNORECASE)
_TARGET = re.compile(r"Target: (-?\d{1,30})", re.IGNORECASE)
_LEFT_SIDE = frozenset("0123456789+-*/() ")
_RIGHT_SIDE = frozenset("0123456789. ")


def countdown(protocol: Protocol = "fixed") -> Task:
    """Countdown with three numbers, 256 problems; the answer is an expression."""
    fixed = protocol == "fixed"
    return reasoned(
        "countdown",
        128,
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
        task="countdown",
        names=("countdown", "countdown_cd3_test"),
        hub=None,
        how="take dataset/countdown_cd3_test.jsonl from dllm-reasoning/d1 or divelab/LIFT",
    )


def item_of(row: Mapping[str, Any], index: int) -> Item:
    """`numbers` and `target`, or the released file's `input` and `output`."""
    numbers = pick(row, "numbers", "input", task="countdown")
    if isinstance(numbers, str):
        numbers = [int(x) for x in numbers.split(",")]
    target = int(pick(row, "target", "output", task="countdown"))
    return make_item(str(row.get("id", f"countdown/{index}")), list(numbers), target)


def make_item(item_id: str, numbers: list[int], target: int) -> Item:
    question = f"Numbers: {numbers}\nTarget: {target}"
    gold = {"numbers": numbers, "target": target}
    return Item(item_id, f"{INSTRUCTION}\n\n{question}", gold, {"question": question})


def stored(row: Mapping[str, Any], index: int) -> Item | None:
    """Stored by d1 and LIFT as [numbers, target]; else both are read out of the question."""
    gold = row.get("ground_truth")
    if isinstance(gold, list) and len(gold) == 2 and isinstance(gold[0], list):
        return make_item(str(index), [int(x) for x in gold[0]], int(gold[1]))
    question = str(row.get("question", ""))
    numbers, target = _NUMBERS.search(question), _TARGET.search(question)
    if numbers is None or target is None:
        return None
    return make_item(str(index), [int(x) for x in numbers[1].split(",")], int(target[1]))


def extract_fixed(text: str) -> str | None:
    answer = answers.last_box(text)
    if answer is None:
        answer = answers.answer_block(text)
    if not answer:
        return None
    sides = from_latex(answer).split("=")
    return next((s.strip() for s in sides if any(op in s for op in "+-*/")), sides[0].strip())


def check_fixed(item: Item, answer: str) -> Verdict:
    value = rational(answer)
    if value is None:
        return Verdict(False, "not an expression")
    if sorted(value[1]) != sorted(item.gold["numbers"]):
        return Verdict(False, "wrong numbers")
    reached = value[0] == item.gold["target"]
    return Verdict(reached, "" if reached else "wrong value")


def extract_lift(text: str) -> str | None:
    found = answers.lift_last_box(text)
    if found is None:
        block = answers.lift_first_block(text)
        found = text if block is None else block
    for old, new in (("\\div", "/"), ("\\times", "*"), ("\\cdot", "*")):
        found = found.replace(old, new)
    left = lift_left_side(found)
    return found if left is None else left


def lift_left_side(text: str) -> str | None:
    """The first `expression = number`: what stands before the equals sign, stripped.

    Left of the sign at least one character of an expression, right of it one of a number.
    """
    at = text.find("=")
    while at >= 0:
        start = at
        while start > 0 and text[start - 1] in _LEFT_SIDE:
            start -= 1
        if start < at and at + 1 < len(text) and text[at + 1] in _RIGHT_SIDE:
            return text[start:at].strip()
        at = text.find("=", at + 1)
    return None


def check_lift(item: Item, answer: str) -> Verdict:
    found = sorted(map(int, re.findall(r"\d+", answer[:2000]))) if len(answer) < 2000 else []
    if found != sorted(item.gold["numbers"]):
        return Verdict(False, "wrong numbers")
    reached = abs(lift_value(answer) - item.gold["target"]) < 1e-5
    return Verdict(reached, "" if reached else "wrong value")
