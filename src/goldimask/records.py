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
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from goldimask.console import say_once
from goldimask.errors import GoldimaskError, short
from goldimask.files import read_object, write_json

MANIFEST, RECIPE, METRICS, RESULT = "manifest.json", "recipe.yaml", "metrics.jsonl", "result.json"
SAMPLES = "samples-*.jsonl"
DIGESTS = "digests.json"  # of weight files that were hashed before
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

    def __hash__(self) -> int:
        return hash((self.decoder, tuple(sorted(self.options.items()))))


class Trial(Record):
    """One task at one length, sampling seed and way of decoding."""

    task: str
    length: int
    seed: int
    decoding: Decoding
    items: int  # problems of the whole trial, over all shards: fewer on disk means unfinished
    prompts: str  # hash of the rendered prompts
    version: str = ""  # of the task when it was last judged, and the protocol
    protocol: str = ""

    @property
    def place(self) -> tuple[str, int, int, Decoding]:
        """What tells two trials of a model apart."""
        return (self.task, self.length, self.seed, self.decoding)


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
    tokens: int = 0  # of the answer, before its first end token; 0 where nobody counted
    rendered: str = ""  # hash of the prompt's token ids, the chat template applied

    @cached_property
    def key(self) -> Key:
        """What it is an answer to; a later line of the same key replaces an earlier one."""
        return (
            self.task,
            self.item,
            self.length,
            self.seed,
            self.prompt,
            self.decoding,
        )

    @property
    def place(self) -> tuple[str, int, int, Decoding]:
        """The trial it belongs to."""
        return (self.task, self.length, self.seed, self.decoding)

    @property
    def credit(self) -> tuple[float, float]:
        """(hits, out of): partial credits where the task gives them, else right or wrong."""
        return (self.hits, self.of) if self.of else (float(self.correct), 1.0)


Key = tuple[str, str, int, int, str, Decoding]


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
    form = {"sort_keys": True, "ensure_ascii": False, "separators": (",", ":")}
    text = json.dumps(value, **form, default=str)  # a column of dates or bytes
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
        except (ValidationError, ValueError, RecursionError) as error:
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
    return read_object(path) if path.is_file() else {}


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
        """Answers of the evaluation inside the run; refused if other weights gave them."""
        return read_evaluation(self.folder)[1] if evaluated(self.folder) else []

    @property
    def method(self) -> str:
        section = self.recipe.get("method")
        return str(section.get("preset", "goldimask-d")) if isinstance(section, Mapping) else "–"

    @property
    def seed(self) -> int:
        seed = self.recipe.get("seed", 42)
        if not isinstance(seed, int):
            raise GoldimaskError(f"{self.folder / RECIPE}: seed: {short(seed)} is not a number")
        return seed


def open_run(path: Path | str, name: str | None = None) -> Run:
    """The record of a run folder."""
    folder = Path(path)
    if not (folder / RECIPE).is_file():
        raise GoldimaskError(
            f"{path}: not a run folder (no {RECIPE}); give one of `goldimask train`"
        )
    return Run(folder, name or folder.resolve().name)


def read_outcomes(folder: Path) -> dict[Key, Outcome]:
    """All answers of all processes; later lines replace earlier ones of the same key.

    One that was judged by the rules in force is not replaced by one that was not: an answer may be
    judged again by another process than the one that decoded it.
    """
    manifest = read_manifest(folder)
    rules = {t.place: (t.version, t.protocol) for t in (manifest.trials if manifest else ())}
    found: dict[Key, Outcome] = {}
    for path in sorted(folder.glob(SAMPLES)):
        for outcome in read_lines(path, Outcome)[0]:
            before, rule = found.get(outcome.key), rules.get(outcome.place)
            if before and judged_by(before, rule) and not judged_by(outcome, rule):
                continue
            found[outcome.key] = outcome
    return found


def judged_by(outcome: Outcome, rule: tuple[str, str] | None) -> bool:
    return (outcome.version, outcome.protocol) == rule


def evaluated(path: Path | str) -> Path | None:
    """The evaluation folder that a path is or, as a run, holds; None if it is neither."""
    folders = (Path(path), Path(path) / "eval")
    return next((folder for folder in folders if any(folder.glob(SAMPLES))), None)


def read_evaluation(path: Path | str) -> tuple[Manifest, list[Outcome]]:
    """Manifest and answers of an evaluation folder or a run; each answer counts once."""
    folder = evaluated(path)
    if folder is None:
        raise GoldimaskError(f"{path}: no {SAMPLES} here or in eval/; run `goldimask eval` first")
    return answerer(folder), list(read_outcomes(folder).values())


def answerer(folder: Path) -> Manifest:
    """Whose answers an evaluation folder holds.

    An evaluation inside a run is refused when the run's weights are no longer those that answered.
    Where they were taken away, as from cells that are kept for their answers, a line says so.
    """
    manifest = read_manifest(folder)
    if manifest is None or manifest.kind != "evaluate":
        raise GoldimaskError(
            f"{folder}: its {MANIFEST} is not one of `goldimask eval`, so that nobody can tell "
            "whose answers these are; remove the folder and evaluate again"
        )
    run = folder.resolve().parent
    if (run / RECIPE).is_file() and not any(run.glob("*/*.safetensors")):
        say_once(
            f"{run.parent}: runs without weights, so that nobody can check whose answers are there"
        )
    elif (run / RECIPE).is_file():
        from goldimask.backbones.identity import weights_hash

        weights = weights_hash(run, remember=folder / DIGESTS)
        if weights != manifest.weights:
            raise GoldimaskError(
                f"{folder}: these are answers of weights {manifest.weights[:16]}, but the run now "
                f"holds {weights[:16]}; remove the folder and evaluate again"
            )
    return manifest


def unfinished(manifest: Manifest, outcomes: Sequence[Outcome]) -> list[tuple[Trial, int]]:
    """Trials of an evaluation that lack answers, with how many are there."""
    counts = Counter(o.place for o in outcomes)
    return [(t, counts[t.place]) for t in manifest.trials if counts[t.place] < t.items]
