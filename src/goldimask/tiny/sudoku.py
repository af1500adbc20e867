"""Sudoku 4x4 with a unique solution, solved row by row.

    solve 1 _ 3 4 / _ _ 1 2 / ...    ->    row 1: 1 _ 3 4 gives 1 2 3 4 / row 2: ...

There are only 288 solved grids, so training and test puzzles share solutions; the puzzles are
disjoint.
"""

from __future__ import annotations

from functools import cache
from itertools import permutations

import numpy as np

from goldimask.tiny.problem import Draft, Level, ProblemFamily, Sizes, pick

SIZES = Sizes(easy=(3, 8), hard=(7, 10), shifted=(6, 8))  # blanks


@cache
def grids() -> np.ndarray:
    """All solved grids in lexicographic order. [288, 16]"""
    rows = list(permutations((1, 2, 3, 4)))
    found: list[tuple[int, ...]] = []

    def extend(cells: tuple[int, ...]) -> None:
        if len(cells) == 16:
            found.append(cells)
            return
        for row in rows:
            if fits(cells, row):
                extend((*cells, *row))

    extend(())
    return np.array(found, dtype=np.int64)


def fits(cells: tuple[int, ...], row: tuple[int, ...]) -> bool:
    """Whether a row may follow the rows above it (columns and boxes)."""
    above = [cells[i : i + 4] for i in range(0, len(cells), 4)]
    if any(other[c] == row[c] for other in above for c in range(4)):
        return False
    if len(above) % 2 == 0:
        return True
    top = above[-1]
    return not ({*top[:2]} & {*row[:2]} or {*top[2:]} & {*row[2:]})


def draft(rng: np.random.Generator, level: Level, sizes: Sizes = SIZES) -> Draft:
    solution = grids()[int(rng.integers(len(grids())))]
    blanks = pick(rng, sizes, level)
    while True:
        known = np.ones(16, dtype=bool)
        known[rng.choice(16, blanks, replace=False)] = False
        if (grids()[:, known] == solution[known]).all(1).sum() == 1:
            break
    puzzle = [str(n) if k else "_" for n, k in zip(solution.tolist(), known, strict=True)]
    solved = [str(n) for n in solution.tolist()]
    opening = "sudoku" if level.prompt_style == 0 else "please solve this sudoku:"
    lines = [line(i, puzzle, solved, level.response_style) for i in range(4)]
    return Draft(" ".join(puzzle), f"{opening} {rows(puzzle)}", tuple(lines), rows(solved))


def line(row: int, puzzle: list[str], solved: list[str], style: int) -> str:
    asked, full = puzzle[row * 4 : row * 4 + 4], solved[row * 4 : row * 4 + 4]
    if style == 0:
        return f"row {row + 1}: {' '.join(asked)} gives {' '.join(full)}"
    missing = sorted(set(full) - set(asked))
    return f"row {row + 1} needs {' '.join(missing) or 'none'}, so it is {' '.join(full)}."


def rows(cells: list[str]) -> str:
    return " / ".join(" ".join(cells[i : i + 4]) for i in range(0, 16, 4))


FAMILY = ProblemFamily(
    name="sudoku",
    summary="Sudoku 4x4 with 6-8 blanks, row by row.",
    draft=draft,
    words=("sudoku", "please", "solve", "this", "row", "gives", "needs", "none", "so", "it", "is"),
)
