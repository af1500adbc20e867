"""The formats on disk, and the one reader of a job's folder.

    manifest.json      Manifest: which job made the folder, from which weights, with which versions
    recipe.yaml        the resolved recipe of a training
    metrics.jsonl      Metric: one line per logged step of a training
    samples-*.jsonl    Outcome: one line per decoded and judged answer; each process has its file
    result.json        what a study found

Everything shown anywhere (tables, figures, pages) is a function of these. Lines are appended whole;
one torn by a kill is left out and counted, any other unreadable line is an error that names it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from goldimask.errors import GoldimaskError
from goldimask.files import write_json

MANIFEST, RECIPE, METRICS, RESULT = "manifest.json", "recipe.yaml", "metrics.jsonl", "result.json"
SAMPLES = "samples-*.jsonl"
Scalar = bool | int | float | str | None
Kind = Literal["train", "evaluate", "measure"]


class Record(BaseModel):
    """A strict, unchangeable record."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Decoding(Record):
    """What a decoded text depends on besides model, prompt, length and seed."""

    decoder: str
    options: dict[str, Scalar] = {}

    @property
    def label(self) -> str:
        """As tables name it: `threshold block=32 tau=0.9`."""
        return " ".join([self.decoder, *(f"{k}={v}" for k, v in sorted(self.options.items()))])


class Trial(Record):
    """One task at one length, sampling seed and way of decoding."""

    task: str
    length: int
    seed: int
    decoding: Decoding
    items: int  # problems of the whole trial, over all shards: fewer on disk means unfinished
    prompts: str  # hash of the rendered prompts


class Outcome(Record):
    """One decoded and judged answer."""

    task: str
    version: str
    protocol: str
    item: str
    index: int  # position in the test set
    length: int
    seed: int
    decoding: Decoding
    prompt: str  # hash of the prompt
    output: str
    extracted: str | None
    correct: bool
    detail: str  # why not, in a word or two
    hits: float  # partial credit, out of `of`
    of: float  # zero where the task gives none
    steps: int  # calls of the model
    seconds: float  # its share of the batch it was decoded in

    @cached_property
    def key(self) -> tuple[str, str, int, int, str, str]:
        """What it is an answer to; a later line of the same key replaces an earlier one."""
        return (
            self.task,
            self.item,
            self.length,
            self.seed,
            self.prompt,
            digest(self.decoding.model_dump()),
        )

    @property
    def credit(self) -> tuple[float, float]:
        """(hits, out of): partial credits where the task gives them, else right or wrong."""
        return (self.hits, self.of) if self.of else (float(self.correct), 1.0)


class Metric(BaseModel):
    """What one step logged, flat: `{"step": 10, "loss": 1.2, ...}`."""

    model_config = ConfigDict(extra="allow", frozen=True)
    step: float

    @property
    def values(self) -> dict[str, Any]:
        return self.model_extra or {}


class Manifest(Record):
    """What made a folder: enough to tell two apart and to make one again."""

    kind: Kind
    key: str  # of everything the result depends on (`goldimask.jobs`)
    model: str  # the name under which the weights were given
    weights: str  # hash of weights, adapter and tokenizer that were trained from or judged
    command: list[str] = []
    versions: dict[str, str | None] = {}
    git: dict[str, Any] | None = None
    trials: list[Trial] = []  # of an evaluation
    facts: dict[str, Any] = {}  # of the job: sizes, hashes, summary


R = TypeVar("R", bound=BaseModel)


def digest(value: Any) -> str:
    """16 hexadecimal digits of any JSON value."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return text_hash(text)


def text_hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def append_lines(path: Path, records: Iterable[Record]) -> None:
    """Append whole lines and hand them to the disk; ends a line torn by a kill first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # json, not pydantic: a decoded text may hold half a character (a lone surrogate)
    data = "".join(json.dumps(r.model_dump()) + "\n" for r in records).encode()
    with open(path, "ab+") as file:
        if file.tell() > 0:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                data = b"\n" + data
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_lines(path: Path, kind: type[R]) -> tuple[list[R], int]:
    """(records, lines torn by a kill): a torn line begins like a record and does not end so."""
    found, torn = [], 0
    for number, line in enumerate(path.read_bytes().split(b"\n"), start=1):
        if not line.strip():
            continue
        try:
            found.append(kind.model_validate(json.loads(line)))
        except (ValidationError, ValueError) as error:
            if line.startswith(b"{") and not line.rstrip().endswith(b"}"):
                torn += 1
                continue
            raise GoldimaskError(
                f"{path}:{number}: not {_article(kind.__name__)}: {_reason(error)}; "
                "remove the line, and it is made again"
            ) from error
    return found, torn


def _reason(error: Exception) -> str:
    if not isinstance(error, ValidationError):
        return f"not valid JSON ({error})"
    first = error.errors()[0]
    return f"{'.'.join(str(x) for x in first['loc'])}: {first['msg']}"


def _article(name: str) -> str:
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name.lower()}"


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a job's folder; None where there is none."""
    path = folder / MANIFEST
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise GoldimaskError(f"{path}: not a manifest of goldimask ({first})") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    write_json(folder / MANIFEST, manifest.model_dump(mode="json"))


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, or nothing where there is no file."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise GoldimaskError(f"{path}: not readable as JSON ({error})") from error
    if not isinstance(value, dict):
        raise GoldimaskError(f"{path}: expected a JSON object, found a {type(value).__name__}")
    return value


@dataclass(frozen=True)
class Run:
    """A training's folder, as far as it got; parts that are not there are empty."""

    folder: Path
    name: str

    @cached_property
    def recipe(self) -> Mapping[str, Any]:
        from goldimask.config import read_yaml

        return read_yaml(self.folder / RECIPE)

    @cached_property
    def manifest(self) -> Manifest | None:
        return read_manifest(self.folder)

    @cached_property
    def metrics(self) -> list[Metric]:
        path = self.folder / METRICS
        return read_lines(path, Metric)[0] if path.is_file() else []

    @cached_property
    def outcomes(self) -> list[Outcome]:
        """Answers of the evaluation inside the run, if they were made with these weights."""
        return list(read_outcomes(self.folder / "eval").values())

    @property
    def method(self) -> str:
        section = self.recipe.get("method")
        return str(section.get("preset", "goldimask-d")) if isinstance(section, Mapping) else "–"

    @property
    def seed(self) -> int:
        return int(self.recipe.get("seed", 42))


def open_run(path: Path | str, name: str | None = None) -> Run:
    """The record of a run folder."""
    folder = Path(path)
    if not (folder / RECIPE).is_file():
        raise GoldimaskError(
            f"{path}: not a run folder (no {RECIPE}); give one of `goldimask train`"
        )
    return Run(folder, name or folder.resolve().name)


def read_outcomes(folder: Path) -> dict[tuple[str, str, int, int, str, str], Outcome]:
    """All answers of all processes; later lines replace earlier ones of the same key."""
    found: dict[tuple[str, str, int, int, str, str], Outcome] = {}
    for path in sorted(folder.glob(SAMPLES)):
        for outcome in read_lines(path, Outcome)[0]:
            found[outcome.key] = outcome
    return found


def unfinished(manifest: Manifest, outcomes: Sequence[Outcome]) -> list[tuple[Trial, int]]:
    """Trials of an evaluation that lack answers, with how many are there."""
    counts: dict[tuple[str, int, int, str], int] = {}
    for o in outcomes:
        place = (o.task, o.length, o.seed, digest(o.decoding.model_dump()))
        counts[place] = counts.get(place, 0) + 1
    return [
        (trial, done)
        for trial in manifest.trials
        if (done := counts.get(_place(trial), 0)) < trial.items
    ]


def _place(trial: Trial) -> tuple[str, int, int, str]:
    return (trial.task, trial.length, trial.seed, digest(trial.decoding.model_dump()))
