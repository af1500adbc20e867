"""Published scores beside ours: which figure a source gives, with which settings, and what differs.

    published.yaml      one row per model, task and settings, each with its source
    beside(result)      the rows of a measured score: the published figure, whether it lies inside
                        the measured 95 % interval, and every setting that is not the same
    settings_of(row)    what an evaluation must be told to run a row's very settings

A setting that a source does not state is no difference; it is listed as not stated. Our prompts are
LIFT's, without shots. What a row needs beyond that (shots, another harness) is named as a
difference, never imitated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError, nearest
from goldimask.records import Record, Scalar
from goldimask.stats import TaskResult, best_lengths


class Row(Record):
    """One published score. None is not stated; `half` and `all` are shares of the length."""

    source: str
    model: str
    task: str
    score: float  # per cent
    length: int | list[int] | None = None  # several: the best of them, chosen on the test data
    decoder: str | None = None
    steps: int | str | None = None
    block: int | str | None = None
    temperature: float | None = 0.0
    top_p: float | None = None
    shots: int | None = None
    protocol: str = ""
    note: str = ""

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(self.length) if isinstance(self.length, list) else (self.length or 0,)

    def option(self, name: str, length: int) -> int | None:
        """`steps` or `block` in positions."""
        value = getattr(self, name)
        return {"half": length // 2, "all": length}.get(value, value)


@dataclass(frozen=True)
class Beside:
    """A published score and the measured one."""

    row: Row
    measured: float  # share
    low: float
    high: float
    length: int
    differs: tuple[str, ...] = field(default=())

    @property
    def inside(self) -> bool:
        return self.low <= self.row.score / 100 <= self.high

    def to_json(self) -> dict[str, Any]:
        row = self.row.model_dump(exclude_none=True)
        place = {"measured": self.measured, "low": self.low, "high": self.high}
        place |= {"length": self.length, "inside": self.inside, "differs": list(self.differs)}
        return place | {"published": row | {"from": sources()[self.row.source]}}


@cache
def read() -> Mapping[str, Any]:
    import yaml

    return yaml.safe_load((files("goldimask.eval") / "published.yaml").read_text("utf-8"))


def sources() -> Mapping[str, str]:
    """What each source is."""
    return read()["sources"]


@cache
def rows() -> tuple[Row, ...]:
    """Every published row, with what its source says of all of them."""
    found = read()
    return tuple(Row(**{**found["defaults"][r["source"]], **r}) for r in found["rows"])


def registered(model: str) -> str:
    """`GSAI-ML/LLaDA-8B-Instruct`, and a folder of that name, are `llada-8b-instruct`."""
    from goldimask.known import PUBLISHED

    last = Path(model).name.lower()
    return next((x.name for x in PUBLISHED if last == Path(x.hub).name.lower()), model)


def find_row(model: str, name: str) -> Row:
    """The first row of a model by `TASK`, or that of `SOURCE/TASK`."""
    model = registered(model)
    source, _, task = name.rpartition("/")
    mine = [r for r in rows() if r.model == model]
    if not mine:
        known = dict.fromkeys(r.model for r in rows())
        raise GoldimaskError(f"--published: no row of '{model}'; {nearest(model, known)}")
    found = [r for r in mine if r.task == task and source in ("", r.source) and r.decoder]
    if not found:
        known = dict.fromkeys(f"{r.source}/{r.task}" for r in mine if r.decoder)
        raise GoldimaskError(
            f"--published: no row '{name}' of {model} with settings; {nearest(name, known)}"
        )
    return found[0]


def settings_of(row: Row) -> dict[str, Any]:
    """Arguments of `plan_trials` that are the row's own: lengths, decoder, options, protocol."""
    from goldimask.eval.tasks import get_task

    own = get_task(row.task)
    lengths = row.lengths if row.length else (own.length,)
    options: dict[str, Scalar] = {"block": row.option("block", lengths[0])}
    if row.steps == "half":  # of low-confidence, where it is the default of every length
        options["steps"] = None
    else:
        options["steps"] = row.option("steps", lengths[0])
    options["temperature"] = row.temperature or None
    options["top_p"] = row.top_p
    protocol = row.protocol if row.protocol in ("lift", "fixed") else "fixed"
    return {"lengths": lengths, "decoder": row.decoder, "options": options, "protocol": protocol}


def beside(model: str, results: Sequence[TaskResult]) -> list[Beside]:
    """Every published row of a model beside what was measured on its task.

    A row of one length stands beside the score at that length, or else beside the longest one; a
    row that is the best of several beside the best of those measured.
    """
    model = registered(model)
    out = []
    for row in rows():
        mine = [r for r in results if r.task == row.task and row.model == model]
        for way in dict.fromkeys(r.decoding for r in mine):
            some = [r for r in mine if r.decoding == way]
            if len(row.lengths) > 1:
                length = next(iter(best_lengths(some).values()))[0]
            else:
                length = max((r.length for r in some), key=lambda n: (n in row.lengths, n))
            one = next(r for r in some if r.length == length)
            tried = sorted({r.length for r in some})
            found = differences(row, one, tried)
            out.append(Beside(row, one.accuracy, one.low, one.high, length, found))
    return out


def differences(row: Row, measured: TaskResult, tried: Sequence[int]) -> tuple[str, ...]:
    """`steps: 512, here 256`, for every setting that is not the same; and what is not stated."""
    options, length = measured.decoding.options, measured.length
    steps = options.get("steps")
    if steps is None and measured.decoding.decoder in ("low-confidence", "random"):
        steps = length // 2
    there_lengths = list(row.lengths) if row.length else None
    here_lengths = tried if len(row.lengths) > 1 else [length]
    pairs: dict[str, tuple[Any, Any]] = {
        "length": (there_lengths and shown(there_lengths), shown(here_lengths)),
        "decoder": (row.decoder, measured.decoding.decoder),
        "block": (row.option("block", length), options.get("block", length)),
        "steps": (row.option("steps", length), steps or length),
        "temperature": (row.temperature, float(options.get("temperature") or 0.0)),
        "top_p": (row.top_p or 1.0, options.get("top_p") or 1.0),
        "shots": (row.shots, 0),
        "protocol": (row.protocol or None, measured.protocol),
    }
    if row.decoder is None:  # a source without settings has no greedy default either
        pairs |= {"temperature": (None, 0), "top_p": (None, 0)}
    unknown = [name for name, (there, _) in pairs.items() if there is None]
    found = [
        f"{name}: {there}, here {here}"
        for name, (there, here) in pairs.items()
        if there is not None and there != here
    ]
    found += [f"not stated: {', '.join(unknown)}"] if unknown else []
    return (*found, *([row.note] if row.note else []))


def shown(lengths: Sequence[int]) -> str:
    return "best of " + ", ".join(map(str, lengths)) if len(lengths) > 1 else str(lengths[0])
