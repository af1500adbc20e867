"""Straight-line programs: assignments to single letters, then the value of one of them.

    a = 5; k = a + 3; c = k * a; c?    ->    a = 5
                                             k = a + 3 = 5 + 3 = 8
                                             c = k * a = 8 * 5 = 0

Only the last digit of a value is kept. Operands are earlier variables or small literals.
"""

from __future__ import annotations

import string

import numpy as np

from goldimask.tiny.arithmetic import NARROW, VERBS, WIDE, Numbers, draw_literal, draw_symbol
from goldimask.tiny.problem import Draft, Level, Sizes, Task, pick

SIZES = Sizes(easy=(1, 4), hard=(4, 6), shifted=(4, 5))
LETTERS = tuple(string.ascii_lowercase)
Operand = tuple[bool, int]  # (is a variable, its number or the literal)


def draft(rng: np.random.Generator, level: Level) -> Draft:
    count = pick(rng, SIZES, level)
    inputs = 1 if count == 1 else 2
    letters = [LETTERS[i] for i in rng.choice(len(LETTERS), inputs + count, replace=False)]
    numbers = WIDE if level.wide else NARROW
    values = [int(x) for x in rng.integers(numbers.modulus, size=inputs)]
    statements = [f"{letters[i]} = {values[i]}" for i in range(inputs)]
    lines, parts = list(statements), [str(x) for x in values]
    if level.response_style == 1:
        lines = [f"let {letters[i]} be {values[i]}." for i in range(inputs)]
    for _ in range(count):
        symbol, left, right = draw_statement(rng, len(values), numbers)
        target = letters[len(values)]
        second = letters[right[1]] if right[0] else str(right[1])
        number = values[right[1]] if right[0] else right[1]
        result = numbers.apply(symbol, values[left], number)
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


def draw_statement(
    rng: np.random.Generator, known: int, numbers: Numbers
) -> tuple[str, int, Operand]:
    """An operator and two operands; the left one is recent, so that most lines matter."""
    symbol = draw_symbol(rng)
    left = known - 1 - int(rng.integers(min(2, known)))
    if known > 1 and rng.random() < 0.5:
        return symbol, left, (True, int(rng.integers(known)))
    return symbol, left, (False, draw_literal(rng, symbol, numbers))


def line(
    target: str, source: str, left: int, symbol: str, right: int, result: int, style: int
) -> str:
    if style == 0:
        return f"{target} = {source} = {left} {symbol} {right} = {result}"
    return f"now {target} is {source}, so {left} {VERBS[symbol]} {right} makes {result}."


TASK = Task(
    name="program",
    summary="Two inputs and 4-5 assignments on last digits, evaluated line by line.",
    draft=draft,
    words=(
        *LETTERS,
        "let",
        "be",
        "now",
        "is",
        "so",
        *VERBS.values(),
        "makes",
        "run",
        "this",
        "print",
    ),
)
