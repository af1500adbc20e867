"""Fine-tuning corpora: solved problems, plain or with flaws so that it matters what is supervised.

    tiny-sft            hard problems of every family in turn, all with wordy prompts
    tiny-1k, tiny-12k   the problems of `tiny-sft` with two flaws:
        wrong labels    the last number of each line of the trace is, with probability eta = 0.15,
                        another one; the rest of the trace stays as it was, so the line contradicts
                        what follows. One number of the answer is replaced with the same probability
        identifiers     the trace opens with `case ka lo mu:`, three words drawn uniformly from
                        `IDENTIFIERS`; nothing foretells them
    tiny-1k-clean       the same problems and identifiers, eta = 0
    tiny-1k-labels      the same problems and wrong labels, no identifiers
    tiny-skills         a skill that the bases lack, and some that they have (`skills.py`), with
                        wrong labels, eta = 0.2 (`replayed_eta` of those that are replayed, unless
                        it is the same); rows say which are taught and which replayed

A wrong number is drawn uniformly from the others between the smallest and the largest number of the
row, so that it is never betrayed by its size. `answer` keeps the true answer, `clean` the response
without wrong numbers, `wrong` counts the replaced ones, `identifiers` lists the words of the
opening line. The flaws of a row depend on the seed and on its text alone. Problems are on the
training side of the split, so they are disjoint from every test set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from goldimask.errors import GoldimaskError, nearest
from goldimask.keys import Keys, Stream, content_id
from goldimask.tiny.families import PROBLEM_FAMILIES
from goldimask.tiny.identifiers import IDENTIFIERS, OPENING
from goldimask.tiny.problem import Problem, Split
from goldimask.tiny.skills import REPLAYED, SKILLS, TAUGHT

Columns = dict[str, str]  # prompt, response, answer, task; flawed rows also wrong, identifiers
ETA, COUNT, SKILLS_ETA = 0.15, 3, 0.2
_NUMBER = re.compile(r"\d+")
_PARTS = re.compile(r"(<reasoning>\n)(.*?)(\n</reasoning>\n<answer> )(.*?)( </answer>)", re.DOTALL)


@dataclass(frozen=True)
class Flaws:
    """How a corpus departs from the worked solutions."""

    eta: float = ETA  # probability that a result is wrong
    identifiers: int = COUNT  # random words in the opening line; 0: no such line

    def __post_init__(self) -> None:
        if not 0 <= self.eta <= 1:
            raise GoldimaskError(f"eta: {self.eta} must be a probability")
        if self.identifiers < 0:
            raise GoldimaskError(f"identifiers: {self.identifiers} must not be negative")


def tiny_sft(n: int = 1000, seed: int = 0) -> list[Columns]:
    """1,000 rows as they should be: hard problems of every family, all with wordy prompts."""
    return mixed(Split.SFT, n, seed)


def tiny_1k(
    n: int = 1000, seed: int = 0, eta: float = ETA, identifiers: int = COUNT
) -> list[Columns]:
    """1,000 rows with wrong labels (15 % of results) and random identifiers."""
    return flawed(mixed(Split.SFT, n, seed), Flaws(eta, identifiers), seed)


def tiny_12k(
    n: int = 12_000, seed: int = 0, eta: float = ETA, identifiers: int = COUNT
) -> list[Columns]:
    """12,000 rows with wrong labels (15 % of results) and random identifiers."""
    return tiny_1k(n, seed, eta, identifiers)


def tiny_1k_clean(
    n: int = 1000, seed: int = 0, eta: float = 0.0, identifiers: int = COUNT
) -> list[Columns]:
    """The rows of tiny-1k without the wrong labels; the identifiers stay."""
    return tiny_1k(n, seed, eta, identifiers)


def tiny_1k_labels(
    n: int = 1000, seed: int = 0, eta: float = ETA, identifiers: int = 0
) -> list[Columns]:
    """The rows of tiny-1k without the identifiers; 15 % of the results are wrong."""
    return tiny_1k(n, seed, eta, identifiers)


def tiny_skills(
    n: int = 1000,
    seed: int = 0,
    eta: float = SKILLS_ETA,
    taught: Sequence[str] = TAUGHT,
    replayed: Sequence[str] = REPLAYED,
    replayed_eta: float | None = None,
) -> list[Columns]:
    """1,000 rows, a taught skill and three replayed ones in turn; 20 % of the results are wrong."""
    roles = dict.fromkeys(taught, "taught") | dict.fromkeys(replayed, "replayed")
    for name in roles:
        if name not in SKILLS:
            raise GoldimaskError(f"tiny-skills: unknown skill '{name}'; {nearest(name, SKILLS)}")
    if not roles:
        raise GoldimaskError("tiny-skills: name at least one skill to teach or to replay")
    each = [SKILLS[name].problems(-(-n // len(roles)), seed, Split.SFT) for name in roles]
    rows = [
        as_row(problem) | {"role": roles[problem.task]}
        for turn in zip(*each, strict=True)
        for problem in turn
    ]
    etas = {"taught": eta, "replayed": eta if replayed_eta is None else replayed_eta}
    flaws = {role: Flaws(share, identifiers=0) for role, share in etas.items()}
    return [flawed_row(row, flaws[row["role"]], seed) for row in rows[:n]]


GENERATED: dict[str, Callable[..., list[Columns]]] = {
    "tiny-sft": tiny_sft,
    "tiny-1k": tiny_1k,
    "tiny-12k": tiny_12k,
    "tiny-1k-clean": tiny_1k_clean,
    "tiny-1k-labels": tiny_1k_labels,
    "tiny-skills": tiny_skills,
}


def corpus(name: str = "tiny-sft", n: int = 1000, seed: int = 0) -> list[Columns]:
    """Training rows of a named corpus; a longer one starts with the shorter."""
    if name not in GENERATED:
        raise GoldimaskError(f"unknown generated corpus '{name}'; {nearest(name, GENERATED)}")
    if n < 0:
        raise GoldimaskError(f"corpus '{name}': n = {n} is negative; ask for 0 or more rows")
    return GENERATED[name](n, seed)


def mixed(split: Split, n: int, seed: int) -> list[Columns]:
    """`n` rows, the families in turn."""
    families = PROBLEM_FAMILIES.values()
    each = [family.problems(-(-n // len(families)), seed, split) for family in families]
    turns = [problem for turn in zip(*each, strict=True) for problem in turn]
    return [as_row(problem) for problem in turns[:n]]


def as_row(problem: Problem) -> Columns:
    """The columns of a training row."""
    return {
        "prompt": problem.prompt,
        "response": problem.response,
        "answer": problem.answer,
        "task": problem.task,
    }


def flawed(rows: list[Columns], flaws: Flaws, seed: int = 0) -> list[Columns]:
    """Copies of the rows with flaws."""
    return [flawed_row(row, flaws, seed) for row in rows]


def flawed_row(row: Columns, flaws: Flaws, seed: int = 0) -> Columns:
    """One row; identifiers do not depend on eta, so that clean and noisy corpora are paired."""
    found = _PARTS.fullmatch(row["response"])
    if found is None:
        raise GoldimaskError(f"task '{row['task']}': not a response with a trace and an answer")
    keys, own = Keys(seed), content_id("flaws", row["prompt"], row["response"])
    words = keys.rng(own, Stream.RESPONSE).choice(IDENTIFIERS, flaws.identifiers).tolist()
    rng = keys.rng(own, Stream.TASK)
    numbers = [int(x) for x in _NUMBER.findall(row["prompt"] + " " + row["response"])]
    bounds = (min(numbers), max(numbers)) if numbers else (0, 9)
    start, trace, middle, answer, end = found.groups()
    lines = [spoil(x, rng, flaws.eta, bounds, last=True) for x in trace.split("\n")]
    stated, wrong = spoil(answer, rng, flaws.eta, bounds, last=False)
    opening = f"{OPENING} {' '.join(words)}:\n" if words else ""
    text = "\n".join(line for line, _ in lines)
    return {
        **row,
        "response": f"{start}{opening}{text}{middle}{stated}{end}",
        "clean": f"{start}{opening}{trace}{middle}{answer}{end}",
        "wrong": str(wrong + sum(n for _, n in lines)),
        "identifiers": " ".join(words),
    }


def spoil(
    text: str, rng: np.random.Generator, eta: float, bounds: tuple[int, int], last: bool
) -> tuple[str, int]:
    """Replace one number with probability eta: the last one, or any; (text, replaced numbers)."""
    places = list(_NUMBER.finditer(text))
    chance, which, other = rng.random(3)  # always three draws: rows stay paired over eta
    if not places or chance >= eta:
        return text, 0
    place = places[-1] if last else places[int(which * len(places))]
    low, high = bounds if bounds[0] < bounds[1] else (0, 9)
    choices = [n for n in range(low, high + 1) if n != int(place.group())]
    number = choices[int(other * len(choices))]
    return f"{text[: place.start()]}{number}{text[place.end() :]}", 1
