"""The families of problems as evaluation tasks, `tiny-<family>`; no file, no network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from goldimask.errors import GoldimaskError
from goldimask.eval.tasks.base import Item, Protocol, Task, Verdict, each
from goldimask.keys import content_id
from goldimask.records import Decoding
from goldimask.tiny.families import problem_family
from goldimask.tiny.problem import Split
from goldimask.tiny.skills import SKILLS

PREFIX = "tiny-"
# Draws of the skills' test problems; the first has judged a regime that is in the log alone.
DRAWS = {"": 1, "_new": 2, "_newer": 3, "_val": 0}
DECODING = Decoding(decoder="threshold", options={"block": 32, "tau": 0.9})


def tiny(
    family: str,
    n: int = 100,
    seed: int = 0,
    protocol: Protocol = "fixed",
    split: Split = Split.TEST,
    suffix: str = "",
) -> Task:
    """A family of generated problems; `n` and `seed` say which. Both protocols are the same."""
    source = problem_family(family)
    name = f"{PREFIX}{family}{suffix}"

    def load(path: Path | str | None = None) -> list[Item]:
        if path is not None:
            raise GoldimaskError(f"--data: '{name}' generates its problems; leave it out")
        return [
            Item(
                id=f"{name}/{content_id(p.prompt):016x}",
                prompt=p.prompt,
                gold=p.answer,
                meta={"problem": p},
            )
            for p in source.problems(n, seed, split)
        ]

    def check(item: Item, answer: str) -> Verdict:
        correct = source.check(item.meta["problem"], answer)
        return Verdict(correct, "" if correct else "wrong")

    return Task(
        name=name,
        version=str(source.version),
        load=load,
        extract=source.extract,
        judge=each(check),
        length=source.gen_length,
        lengths=(source.gen_length,),
        protocol=protocol,
        decoding=DECODING,
    )


def factory(
    family: str, split: Split = Split.TEST, draw: int = 0, suffix: str = ""
) -> Callable[..., Task]:
    """The factory that the registry knows as `tiny-<family>`; its signature is its options."""

    def make(n: int = 100, seed: int = draw, protocol: Protocol = "fixed") -> Task:
        return tiny(family, n, seed, protocol, split, suffix)

    return make


chain = factory("chain")
story = factory("story")
sort = factory("sort")
program = factory("program")
sudoku = factory("sudoku")


def __getattr__(name: str) -> Callable[..., Task]:
    """`extremes`, `extremes_new`, `extremes_val`, ...: the skills, by draw."""
    for skill in SKILLS:
        stem, end = skill.replace("-", "_"), name.removeprefix(skill.replace("-", "_"))
        if name.startswith(stem) and end in DRAWS:
            split = Split.VALIDATION if end == "_val" else Split.TEST
            return factory(skill, split, DRAWS[end], end.replace("_", "-"))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
