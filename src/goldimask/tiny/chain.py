"""Chains: a start number and a list of numbered operations, one line of work for each.

start 7. first + 4, second - 3.    ->    first + 4 = 11
                                          second - 3 = 8

A line does not repeat the number it starts from: a result stands in the text once, so that a masked
result has to be computed and cannot be copied from the line below it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from goldimask.tiny.arithmetic import LIMIT, apply, draw_step
from goldimask.tiny.problem import Draft, Level, ProblemFamily, Sizes, pick

SIZES = Sizes(easy=(1, 7), hard=(6, 11), shifted=(9, 10))
ORDINALS = (
    *("first", "second", "third", "fourth", "fifth", "sixth"),
    *("seventh", "eighth", "ninth", "tenth", "eleventh"),
)
Step = tuple[str, int]  # operation and literal


def draft(
    rng: np.random.Generator, level: Level, sizes: Sizes = SIZES, symbols: Sequence[str] = "+-"
) -> Draft:
    count = pick(rng, sizes, level)
    start = int(rng.integers(LIMIT))
    steps: list[Step] = []
    lines, value = [], start
    for ordinal in ORDINALS[:count]:
        symbol, amount = draw_step(rng, value, symbols)
        value = apply(symbol, value, amount)
        steps.append((symbol, amount))
        if level.response_style == 0:
            lines.append(f"{ordinal} {symbol} {amount} = {value}")
        else:
            lines.append(f"{ordinal}, {symbol} {amount} makes {value}.")
    content = " ".join([str(start), *(f"{s}{n}" for s, n in steps)])
    return Draft(content, prompt(start, steps, level.prompt_style), tuple(lines), str(value))


def prompt(start: int, steps: list[Step], style: int) -> str:
    body = ", ".join(f"{o} {s} {n}" for o, (s, n) in zip(ORDINALS, steps, strict=False))
    if style == 0:
        return f"start {start}. {body}."
    return f"begin with {start}, {body}. what is left?"


FAMILY = ProblemFamily(
    name="chain",
    summary="A start number and 9-10 additions and subtractions, one line each.",
    draft=draft,
    words=(*ORDINALS, "makes", "start", "begin", "with", "what", "is", "left"),
)
