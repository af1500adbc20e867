"""Straight-line programs: assignments to single letters, then the value of one of them.

    a = 5; k = a + 3; c = k min a; c?    ->    a = 5
                                               k = a + 3 = 5 + 3 = 8
                                               c = k min a = 8 min 5 = 5

`max` and `min` take two variables, + and - a literal; values stay below 20.
"""

from __future__ import annotations

import string

import numpy as np

from goldimask.tiny.arithmetic import LIMIT, apply, draw_step
from goldimask.tiny.problem import Draft, Level, ProblemFamily, Sizes, pick

SIZES = Sizes(easy=(1, 4), hard=(3, 6), shifted=(4, 5))
LETTERS = tuple(string.ascii_lowercase)
Operand = tuple[bool, int]  # (is a variable, its number or the literal)


def draft(rng: np.random.Generator, level: Level) -> Draft:
    count = pick(rng, SIZES, level)
    inputs = 1 if count == 1 else 2
    letters = [LETTERS[i] for i in rng.choice(len(LETTERS), inputs + count, replace=False)]
    values = [int(x) for x in rng.integers(LIMIT, size=inputs)]
    statements = [f"{letters[i]} = {values[i]}" for i in range(inputs)]
    lines, parts = list(statements), [str(x) for x in values]
    if level.response_style == 1:
        lines = [f"let {letters[i]} be {values[i]}." for i in range(inputs)]
    for _ in range(count):
        symbol, left, right = draw_statement(rng, values)
        target = letters[len(values)]
        second = letters[right[1]] if right[0] else str(right[1])
        number = values[right[1]] if right[0] else right[1]
        result = apply(symbol, values[left], number)
        source = f"{letters[left]} {symbol} {second}"
        statements.append(f"{target} = {source}")
        lines.append(
            line(target, source, values[left], symbol, number, result, level.response_style)
        )
        parts.append(f"{left}{symbol}{'v' if right[0] else 'n'}{right[1]}")
        values.append(result)
    asked = letters[len(values) - 1]
    body = "; ".join(statements)
    prompt = f"{body}; {asked}?" if level.prompt_style == 0 else f"run this: {body}; print {asked}"
    return Draft(" ".join(parts), prompt, tuple(lines), str(values[-1]))


def draw_statement(rng: np.random.Generator, values: list[int]) -> tuple[str, int, Operand]:
    """An operator and two operands; the left one is recent, so that most lines matter."""
    known = len(values)
    left = known - 1 - int(rng.integers(min(2, known)))
    if known > 1 and rng.random() < 0.4:
        symbol = ("max", "min")[int(rng.integers(2))]
        others = [i for i in range(known) if i != left]
        return symbol, left, (True, others[int(rng.integers(len(others)))])
    symbol, amount = draw_step(rng, values[left])
    return symbol, left, (False, amount)


def line(
    target: str, source: str, left: int, symbol: str, right: int, result: int, style: int
) -> str:
    if style == 0:
        return f"{target} = {source} = {left} {symbol} {right} = {result}"
    return f"now {target} is {source}, so {left} {symbol} {right} makes {result}."


FAMILY = ProblemFamily(
    name="program",
    summary="Two inputs and 4-5 assignments, evaluated line by line.",
    draft=draft,
    words=(
        *LETTERS,
        "max",
        "min",
        "let",
        "be",
        "now",
        "is",
        "so",
        "makes",
        "run",
        "this",
        "print",
    ),
)
