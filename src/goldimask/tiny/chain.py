"""Chains: a start number and a list of numbered operations, one line of work for each.

start 7. first + 5, second * 3.    ->    first: 7 + 5 = 2
                                          second: 2 * 3 = 6        (last digit)
"""

from __future__ import annotations

import numpy as np

from goldimask.tiny.arithmetic import NARROW, VERBS, WIDE, Numbers, draw_literal, draw_symbol
from goldimask.tiny.problem import Draft, Level, Sizes, Task, pick

SIZES = Sizes(easy=(1, 8), hard=(8, 11), shifted=(7, 9))
ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh", "twelfth"),
)


def draft(rng: np.random.Generator, level: Level) -> Draft:
    count = pick(rng, SIZES, level)
    numbers = WIDE if level.wide else NARROW
    start = int(rng.integers(numbers.modulus))
    steps = [draw_step(rng, numbers) for _ in range(count)]
    lines, value = [], start
    for ordinal, (symbol, operand) in zip(ORDINALS, steps, strict=False):
        result = numbers.apply(symbol, value, operand)
        if level.response_style == 0:
            lines.append(f"{ordinal}: {value} {symbol} {operand} = {result}")
        else:
            lines.append(f"{ordinal}, {value} {VERBS[symbol]} {operand} makes {result}.")
        value = result
    content = " ".join([str(start), *(f"{s}{n}" for s, n in steps)])
    return Draft(content, prompt(start, steps, level.prompt_style), tuple(lines), str(value))


def draw_step(rng: np.random.Generator, numbers: Numbers) -> tuple[str, int]:
    symbol = draw_symbol(rng)
    return symbol, draw_literal(rng, symbol, numbers)


def prompt(start: int, steps: list[tuple[str, int]], style: int) -> str:
    named = list(zip(ORDINALS, steps, strict=False))
    if style == 0:
        body = ", ".join(f"{o} {s} {n}" for o, (s, n) in named)
        return f"start {start}. {body}."
    body = ", ".join(f"{o} {VERBS[s]} {n}" for o, (s, n) in named)
    return f"begin with {start}, {body}. what is left?"


TASK = Task(
    name="chain",
    summary="A start number and 7-9 operations on the last digit, one line each.",
    draft=draft,
    words=(*ORDINALS, *VERBS.values(), "makes", "start", "begin", "with", "what", "is", "left"),
)
