"""The embedded tiny tasks under the names `tiny-<family>`; they need no file and no network."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError, nearest
from goldimask.eval.tasks.base import Item, Protocol, Task, Verdict, each
from goldimask.keys import content_id
from goldimask.records import Decoding
from goldimask.registry import Registry

PREFIX = "tiny-"
DECODING = Decoding(decoder="threshold", options={"block": 32, "tau": 0.9})


def families() -> dict[str, Any]:
    """The task objects of `goldimask.tiny`, by family name."""
    from goldimask import tiny

    found = getattr(tiny, "TASKS", {})
    if isinstance(found, Registry):
        return {name: found.get(name) for name in found.names()}
    return dict(found)


def tiny(family: str, n: int = 100, seed: int = 0, protocol: Protocol = "fixed") -> Task:
    """A family of generated problems; `n` and `seed` say which. Both protocols are the same."""
    found = families()
    if family not in found:
        raise GoldimaskError(f"unknown tiny task '{family}'; {nearest(family, found)}")
    source = found[family]

    def load(path: Path | str | None = None) -> list[Item]:
        if path is not None:
            raise GoldimaskError(f"--data: '{PREFIX}{family}' generates its problems; leave it out")
        return [
            Item(
                id=f"{PREFIX}{family}/{content_id(p.prompt):016x}",
                prompt=p.prompt,
                gold=p.answer,
                meta={"problem": p},
            )
            for p in source.problems(n, seed)
        ]

    def check(item: Item, answer: str) -> Verdict:
        correct = bool(source.check(item.meta["problem"], answer))
        return Verdict(correct, "" if correct else "wrong")

    return Task(
        name=f"{PREFIX}{family}",
        version=str(source.version),
        load=load,
        extract=source.extract,
        judge=each(check),
        length=int(source.gen_length),
        lengths=(int(source.gen_length),),
        protocol=protocol,
        decoding=DECODING,
    )


def tiny_factory(name: str) -> Callable[..., Task]:
    """The factory behind `tiny-<family>`."""

    def factory(n: int = 100, seed: int = 0, protocol: Protocol = "fixed") -> Task:
        return tiny(name.removeprefix(PREFIX), n=n, seed=seed, protocol=protocol)

    return factory
