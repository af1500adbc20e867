"""Shards: the units of a study measured by several processes, and merged.

    unit k of a study (a batch, a run) belongs to shard k mod N
    OUT/parts/STUDY-MODEL/I-of-N/   pieces.npz  manifest.json  complete.json

A study asks its `gather` for the pieces of all units. By itself it measures them one after the
other; a shard measures its own, keeps them, and gets the others from their parts once all are
there. The pieces and their order are the same for any N, and so is everything computed from them. A
part of other weights, settings or data has another key and is refused by name.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from goldimask.errors import GoldimaskError
from goldimask.files import write_bytes
from goldimask.jobs import damage, locked, same_job, unfinished_folder
from goldimask.records import Manifest, write_manifest

PIECES = "pieces.npz"
Arrays = dict[str, np.ndarray]  # what one unit gave
Gather = Callable[[Sequence[Any], Callable[[Any], Arrays]], list[Arrays]]


class Waiting(Exception):
    """This shard is done and others are not."""


def everything(units: Sequence[Any], measure: Callable[[Any], Arrays]) -> list[Arrays]:
    """The pieces of all units, measured here."""
    return [measure(unit) for unit in units]


def sharded(folder: Path, manifest: Manifest, shard: tuple[int, int]) -> Gather:
    """The gather of one shard of the study that `folder` will hold."""
    index, count = shard

    def part(i: int) -> Path:
        return folder.parent / "parts" / folder.name / f"{i}-of-{count}"

    def gather(units: Sequence[Any], measure: Callable[[Any], Arrays]) -> list[Arrays]:
        with locked(part(index)):
            if not same_job(part(index), manifest):
                with unfinished_folder(part(index)) as partial:
                    own = {k: measure(units[k]) for k in range(index, len(units), count)}
                    write_pieces(partial / PIECES, own)
                    write_manifest(partial, manifest)
        missing = [i for i in range(count) if not same_job(part(i), manifest)]
        if missing:
            names = ", ".join(f"{i}/{count}" for i in missing)
            raise Waiting(
                f"shard {index}/{count} is in '{part(index)}'; to come: {names}. The last one "
                "merges them"
            )
        found: dict[int, Arrays] = {}
        for i in range(count):
            if problem := damage(part(i)):
                raise GoldimaskError(f"'{part(i)}': {problem}; remove it and measure it again")
            found |= read_pieces(part(i) / PIECES)
        return [found[k] for k in range(len(units))]

    return gather


def write_pieces(path: Path, pieces: Mapping[int, Arrays]) -> None:
    buffer = io.BytesIO()
    named = {f"{k}/{name}": v for k, piece in pieces.items() for name, v in piece.items()}
    np.savez(buffer, **named)  # type: ignore[arg-type]
    write_bytes(path, buffer.getvalue())


def read_pieces(path: Path) -> dict[int, Arrays]:
    found: dict[int, Arrays] = {}
    with np.load(path, allow_pickle=False) as stored:
        for key in stored.files:
            number, _, name = key.partition("/")
            found.setdefault(int(number), {})[name] = stored[key]
    return found
