"""The families of problems, by name, and the test sets drawn from them."""

from __future__ import annotations

from goldimask.errors import GoldimaskError, nearest
from goldimask.tiny import chain, program, sort, story, sudoku
from goldimask.tiny.problem import Problem, ProblemFamily, Split
from goldimask.tiny.skills import SKILLS

PROBLEM_FAMILIES: dict[str, ProblemFamily] = {
    module.FAMILY.name: module.FAMILY for module in (chain, story, sort, program, sudoku)
}


def problem_family(name: str) -> ProblemFamily:
    """A family or a skill by its name."""
    known = PROBLEM_FAMILIES | SKILLS
    if name not in known:
        raise GoldimaskError(f"unknown family of problems '{name}'; {nearest(name, known)}")
    return known[name]


def test_set(family: str, n: int = 100, seed: int = 0) -> list[Problem]:
    """`n` distinct test problems of one family."""
    return problem_family(family).problems(n, seed, Split.TEST)


test_set.__test__ = False  # pyright: ignore[reportFunctionMemberAccess]  # not a test for pytest
