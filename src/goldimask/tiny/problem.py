"""What a programmatic problem is, and on which side of the split it falls.

A family draws a `Draft`: the content of the problem (a canonical string without names or wording),
its prompt, its response and its answer. The side of the split is a function of the content alone,

    test  <=>  content_id(task, content) mod 8 = 0,

so that training and test sets drawn anywhere, at any time, with any seed are disjoint without a
shared list: a generator redraws until the problem falls on its own side. Two problems that differ
only in names, wording or style have the same content and therefore fall on the same side. A family
with a side for the choice of settings takes the remainder 1 for it.

Responses have the paper's form, `<reasoning> ... </reasoning> <answer> ... </answer>`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from goldimask.errors import GoldimaskError
from goldimask.eval.answers import lift_first_block
from goldimask.keys import Keys, Stream, content_id

TEST_SHARE = 8  # one problem in eight belongs to the test side
HARD_SHARE = 0.3  # of the problems of pretraining, unless its stage says otherwise
REDRAWS = 2000  # a family that cannot fill its side within this many draws is broken


class Split(StrEnum):
    """Which distribution a problem is drawn from. `sft` and `test` differ only in the side."""

    PRETRAIN = "pretrain"
    SFT = "sft"
    TEST = "test"
    VALIDATION = "validation"  # to choose settings on; of families that have such a side


SIDES = (Split.TEST, Split.VALIDATION)


@dataclass(frozen=True)
class Level:
    """How hard a problem is and how it is worded."""

    hard: bool
    prompt_style: int  # 0 terse, 1 wordy
    response_style: int  # 0 terse, 1 wordy: a few rows of pretraining alone
    shifted: bool = False  # the sizes of fine-tuning and test


@dataclass(frozen=True)
class Draft:
    """A problem before the split has been asked."""

    content: str  # canonical: equal for problems that differ only in names and wording
    prompt: str
    lines: tuple[str, ...]  # the reasoning trace
    answer: str


@dataclass(frozen=True)
class Problem:
    """One problem with its worked solution."""

    task: str
    prompt: str
    response: str
    answer: str
    key: str  # the canonical content


@dataclass(frozen=True)
class ProblemFamily:
    """A family of problems with its checker."""

    name: str
    summary: str
    draft: Callable[[np.random.Generator, Level], Draft]
    words: tuple[str, ...]  # everything beyond numbers and punctuation that its texts contain
    gen_length: int = 128  # canvas: the longest response of the hard distribution fits
    version: int = 1
    validated: bool = False  # whether a side is kept for the choice of settings

    def problem(
        self, seed: int, index: int, split: Split | str = Split.TEST, hard: float = HARD_SHARE
    ) -> Problem:
        """The problem of one index; the same on every machine.

        `hard` is the share of hard problems in pretraining; the others have their own sizes.
        """
        split = Split(split)
        if split is Split.VALIDATION and not self.validated:
            raise GoldimaskError(f"family '{self.name}': has no validation problems")
        keys = Keys(seed, epoch=list(Split).index(split))
        rng = keys.rng(index, Stream.TASK)
        level = draw_level(keys.rng(index, Stream.RESPONSE), split, hard)
        for _ in range(REDRAWS):
            draft = self.draft(rng, level)
            if self.side(draft.content) is (split if split in SIDES else None):
                return Problem(self.name, draft.prompt, frame(draft), draft.answer, draft.content)
        raise GoldimaskError(f"family '{self.name}': no problem for the {split} side; report this")

    def side(self, content: str) -> Split | None:
        """Test or validation; None: to train on."""
        if is_test(self.name, content):
            return Split.TEST
        chosen = self.validated and content_id(self.name, content) % TEST_SHARE == 1
        return Split.VALIDATION if chosen else None

    def problems(self, n: int, seed: int = 0, split: Split | str = Split.TEST) -> list[Problem]:
        """`n` distinct problems; a longer list starts with the shorter one."""
        found: dict[str, Problem] = {}
        for index in range(n * 20 + 100):
            if len(found) == n:
                return list(found.values())
            problem = self.problem(seed, index, split)
            found.setdefault(problem.key, problem)
        raise GoldimaskError(
            f"family '{self.name}': has fewer than {n} distinct problems; ask for less"
        )

    def extract(self, text: str) -> str | None:
        """The text between the first pair of answer tags, single-spaced; None without one."""
        found = lift_first_block(text)
        return " ".join(found.split()) or None if found else None

    def check(self, problem: Problem, extracted: str | None) -> bool:
        return extracted is not None and extracted == problem.answer


def is_test(task: str, content: str) -> bool:
    """Whether a problem belongs to the test side."""
    return content_id(task, content) % TEST_SHARE == 0


def draw_level(rng: np.random.Generator, split: Split, share: float = HARD_SHARE) -> Level:
    """Pretraining is mostly easy and mostly in its own style; the others have their own sizes."""
    hard, wordy, style = rng.random(3)
    if split is Split.PRETRAIN:
        return Level(bool(hard < share), int(wordy < 0.5), int(style < 0.15))
    return Level(hard=True, prompt_style=1, response_style=0, shifted=True)


def frame(draft: Draft) -> str:
    """The response text of a draft."""
    trace = "\n".join(draft.lines)
    return f"<reasoning>\n{trace}\n</reasoning>\n<answer> {draft.answer} </answer>"


@dataclass(frozen=True)
class Sizes:
    """Closed ranges of the number of steps, items or blanks of a family."""

    easy: tuple[int, int]  # most of pretraining
    hard: tuple[int, int]  # the rest of it
    shifted: tuple[int, int]  # fine-tuning and test


def pick(rng: np.random.Generator, sizes: Sizes, level: Level) -> int:
    """A size from the range of the level."""
    low, high = sizes.shifted if level.shifted else sizes.hard if level.hard else sizes.easy
    return int(rng.integers(low, high + 1))
