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

PREFIX = "tiny-"
SECOND, THIRD, FOURTH = 1, 2, 3  # draws of the skills' test problems; the first is in the log
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

extremes = factory("extremes", draw=SECOND)
sudoku_hard = factory("sudoku-hard", draw=SECOND)
chain_kept = factory("chain-kept", draw=SECOND)
sort_kept = factory("sort-kept", draw=SECOND)

extremes_new = factory("extremes", draw=THIRD, suffix="-new")
sudoku_hard_new = factory("sudoku-hard", draw=THIRD, suffix="-new")
chain_kept_new = factory("chain-kept", draw=THIRD, suffix="-new")
sort_kept_new = factory("sort-kept", draw=THIRD, suffix="-new")

extremes_newer = factory("extremes", draw=FOURTH, suffix="-newer")
sudoku_hard_newer = factory("sudoku-hard", draw=FOURTH, suffix="-newer")
chain_kept_newer = factory("chain-kept", draw=FOURTH, suffix="-newer")
sort_kept_newer = factory("sort-kept", draw=FOURTH, suffix="-newer")

extremes_val = factory("extremes", Split.VALIDATION, suffix="-val")
sudoku_hard_val = factory("sudoku-hard", Split.VALIDATION, suffix="-val")
chain_kept_val = factory("chain-kept", Split.VALIDATION, suffix="-val")
sort_kept_val = factory("sort-kept", Split.VALIDATION, suffix="-val")
