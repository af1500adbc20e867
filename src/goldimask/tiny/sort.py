"""Selection sort of distinct numbers, with the list that remains after each choice.

sort up: 12 4 17    ->    pick 4 keep 12 17 / pick 12 keep 17 / pick 17 keep none
"""

from __future__ import annotations

import numpy as np

from goldimask.tiny.arithmetic import LIMIT
from goldimask.tiny.problem import Draft, Level, ProblemFamily, Sizes, pick

SIZES = Sizes(easy=(2, 5), hard=(5, 8), shifted=(7, 7))


def draft(rng: np.random.Generator, level: Level, sizes: Sizes = SIZES) -> Draft:
    count = pick(rng, sizes, level)
    rest = [int(x) for x in rng.choice(LIMIT, count, replace=False)]
    up = bool(rng.random() < 0.6)
    direction = "up" if up else "down"
    content = " ".join([direction, *map(str, rest)])
    if level.prompt_style == 0:
        prompt = f"sort {direction}: {spaced(rest)}"
    else:
        prompt = f"please order these numbers {direction}: {spaced(rest)}."
    lines, chosen = [], []
    while rest:
        best = min(rest) if up else max(rest)
        left = [x for x in rest if x != best]
        if level.response_style == 0:
            lines.append(f"pick {best} keep {spaced(left) or 'none'}")
        else:
            lines.append(f"from {spaced(rest)} take {best};")
        rest = left
        chosen.append(best)
    return Draft(content, prompt, tuple(lines), spaced(chosen))


def spaced(numbers: list[int]) -> str:
    return " ".join(map(str, numbers))


FAMILY = ProblemFamily(
    name="sort",
    summary="Selection sort of 7 numbers with the remaining list in each line.",
    draft=draft,
    words=(
        *("sort", "please", "order", "these", "numbers", "up", "down"),
        *("pick", "keep", "none", "from", "take"),
    ),
)
