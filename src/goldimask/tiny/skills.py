"""A skill that the embedded bases lack, and some that they have, for a corpus that teaches.

    taught      extremes      chains of 9-10 operations, max and min among them, which pretraining
                              showed only in programs
    replayed    sudoku-hard   9-10 blanks; pretraining has up to 10, most of it up to 8
                chain-kept    chains of 9-10 additions and subtractions
                sort-kept     7 numbers

`tiny-skills` takes them in turn; its rows say what they are (`task`, `role`). A share `eta` of the
results is wrong, as in `tiny-1k`. Problems fall on one of three sides by their content alone: to
train on, to choose settings on (`tiny-<skill>-val`), and to report (`tiny-<skill>`; later draws to
confirm with are `tiny-<skill>-new` and `-newer`).
"""

from __future__ import annotations

from functools import partial

from goldimask.tiny import chain, sort, sudoku
from goldimask.tiny.problem import ProblemFamily, Sizes

TAUGHT = ("extremes",)
REPLAYED = ("sudoku-hard", "chain-kept", "sort-kept")
ROLES = {"taught": TAUGHT, "kept": REPLAYED}


def sized(low: int, high: int) -> Sizes:
    return Sizes((low, high), (low, high), (low, high))


def skill(name: str, summary: str, draft: partial) -> ProblemFamily:
    """A family with a side for the choice of settings."""
    return ProblemFamily(name, summary, draft, words=(), version=2, validated=True)


SKILLS: dict[str, ProblemFamily] = {
    s.name: s
    for s in (
        skill(
            "extremes",
            "A start number and 9-10 operations, max and min among them.",
            partial(chain.draft, sizes=sized(9, 10), symbols=("+", "-", "max", "min")),
        ),
        skill(
            "sudoku-hard", "Sudoku 4x4 with 9-10 blanks.", partial(sudoku.draft, sizes=sized(9, 10))
        ),
        skill(
            "chain-kept",
            "9-10 additions and subtractions.",
            partial(chain.draft, sizes=sized(9, 10)),
        ),
        skill("sort-kept", "Selection sort of 7 numbers.", partial(sort.draft, sizes=sized(7, 7))),
    )
}
