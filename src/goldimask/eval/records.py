"""Evaluated samples on disk: JSON Lines that survive a kill.

Each process appends whole lines to its own file `samples-<rank>.jsonl`. What is read back is the
union of all of them, keyed by (task, id, length, seed, prompt hash, decoding): a sample that occurs
twice counts once, the later line of it. A torn last line (the process was killed while writing) is
left out, and the sample is decoded again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.files import write_json

Key = tuple[str, str, int, int, str, str]


@dataclass(frozen=True)
class Sample:
    """One decoded and judged answer."""

    task: str
    version: str
    protocol: str
    id: str
    index: int  # position in the test set
    length: int
    seed: int
    decoding: str  # short hash of decoder and options
    prompt_hash: str
    output: str
    extracted: str | None
    correct: bool
    detail: str
    hits: float
    of: float
    steps: int
    seconds: float  # share of the batch it was decoded in

    @property
    def key(self) -> Key:
        return (self.task, self.id, self.length, self.seed, self.prompt_hash, self.decoding)


FIELDS = tuple(f.name for f in fields(Sample))


def short_hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def decoding_hash(decoder: str, options: Mapping[str, Any]) -> str:
    """What the decoded text depends on besides prompt, length and seed."""
    return short_hash(json.dumps([decoder, dict(options)], sort_keys=True, default=str))


def sample_line(sample: Sample) -> str:
    return json.dumps(asdict(sample), ensure_ascii=False) + "\n"


def append_samples(path: Path, samples: Iterable[Sample]) -> None:
    """Append whole lines and hand them to the disk; repairs a torn last line first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = "".join(sample_line(s) for s in samples).encode("utf-8", "surrogatepass")
    with open(path, "ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                data = b"\n" + data
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_samples(folder: Path) -> dict[Key, Sample]:
    """All samples of all ranks; later lines replace earlier ones of the same key."""
    found: dict[Key, Sample] = {}
    for path in sorted(folder.glob("samples-*.jsonl")):
        for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                sample = Sample(**{name: row[name] for name in FIELDS})
            except (ValueError, KeyError, TypeError) as error:
                if _torn(path, number, line):
                    continue
                raise GoldimaskError(
                    f"{path}:{number}: not a sample ({type(error).__name__}: {error}); "
                    "remove the line, its sample is then decoded again"
                ) from error
            found[sample.key] = sample
    return found


def _torn(path: Path, number: int, line: bytes) -> bool:
    """A line cut short by a kill: it begins like a sample and does not end like one."""
    return line.startswith(b"{") and not line.rstrip().endswith(b"}")


class Store:
    """The folder of an evaluation; without a folder, nothing is kept."""

    def __init__(self, out: Path | str | None, rank: int, model_name: str) -> None:
        self.folder = Path(out) if out is not None else None
        self.rank = rank
        self.found: dict[Key, Sample] = {}
        if self.folder is None:
            return
        manifest = self.folder / "evaluation.json"
        if manifest.exists():
            known = json.loads(manifest.read_text("utf-8")).get("model", "")
            if known != model_name:
                raise GoldimaskError(
                    f"{manifest}: holds samples of '{known}', not of '{model_name}'; "
                    "choose another folder with --out"
                )
        else:
            write_json(manifest, {"model": model_name, "format": 1})
        self.found = read_samples(self.folder)

    def add(self, samples: Sequence[Sample]) -> None:
        if self.folder is not None:
            append_samples(self.folder / f"samples-{self.rank}.jsonl", samples)
