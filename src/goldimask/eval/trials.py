"""What an evaluation consists of: every task, length, seed and way of decoding, with its problems.

Each task names the decoder it is published with; a caller's decoder, options and thresholds go on
top of it. Everything that can be refused is refused here, before a model is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from goldimask.errors import GoldimaskError, nearest
from goldimask.eval.tasks import Item, Task, accepted, get_task
from goldimask.records import Decoding, Key, Outcome, Scalar, Trial, digest, text_hash
from goldimask.thresholds import THRESHOLDS

Say = Callable[[str], None]
Sources = Mapping[str, Path | str] | Path | str | None
Lengths = Sequence[int] | Mapping[str, Sequence[int]] | None  # of all tasks, or per task ("": rest)


@dataclass(frozen=True)
class Planned:
    """A trial with its task and problems."""

    task: Task
    items: tuple[Item, ...]
    length: int
    seed: int
    decoding: Decoding

    def key(self, item: Item) -> Key:
        prompt = prompt_hash(self.task, item)
        return (self.task.name, item.id, self.length, self.seed, prompt, self.decoding)

    def part(self, shard: tuple[int, int]) -> list[tuple[int, Item]]:
        """The problems of a shard with their positions."""
        rank, world = shard
        return [(i, item) for i, item in enumerate(self.items) if i % world == rank]

    def record(self) -> Trial:
        return Trial(
            task=self.task.name,
            length=self.length,
            seed=self.seed,
            decoding=self.decoding,
            items=len(self.items),
            prompts=digest([self.key(item)[4] for item in self.items]),
            version=self.task.version,
            protocol=self.task.protocol,
        )


def prompt_hash(task: Task, item: Item) -> str:
    asked = task.prompt(item)
    text = asked if isinstance(asked, str) else json.dumps(asked, ensure_ascii=False)
    return text_hash(text + "\0" + task.prefill)


def plan_trials(
    tasks: Sequence[str | Task],
    *,
    lengths: Lengths = None,
    seeds: Sequence[int] | None = None,
    decoder: str | None = None,
    options: Mapping[str, Scalar] | None = None,
    taus: Sequence[float] = (),
    limit: int | None = None,
    protocol: str = "fixed",
    task_options: Mapping[str, object] | None = None,
    data: Sources = None,
    say: Say | None = None,
) -> list[Planned]:
    """Every trial of an evaluation; nothing is decoded or loaded but the test sets."""
    say = say or (lambda text: None)
    found = []
    by_task = lengths if isinstance(lengths, Mapping) else {"": lengths or ()}
    names = [x if isinstance(x, str) else x.name for x in tasks]
    if strange := [x for x in by_task if x and x not in names]:
        raise GoldimaskError(
            f"--lengths: '{strange[0]}' is not evaluated; {nearest(strange[0], names)}"
        )
    for name, asked in zip(tasks, names, strict=True):
        if isinstance(name, str):
            more = dict(task_options or {}) | ({"n": limit} if limit else {})
            name = get_task(name, protocol=protocol, **accepted(name, more))
        given = by_task.get(name.name) or by_task.get(asked) or by_task.get("")
        sizes = tuple(given or (name.length,))
        draws = tuple(range(name.samples) if seeds is None else seeds)
        if not draws or not all(x > 0 for x in sizes):
            raise GoldimaskError("seeds and lengths: expected at least one seed, positive lengths")
        found.append((name, sizes, draws, decodings(name, sizes, decoder, options or {}, taus)))
    trials = []
    for task, sizes, draws, ways in found:
        if task.prepare:
            say(f"{task.name}: {task.prepare()}")
        say(f"{task.name}: decoded with {', '.join(way.label for way in ways)}")
        source = data.get(task.name) if isinstance(data, Mapping) else data
        items = tuple(task.load(source)[:limit])
        trials += [
            Planned(task, items, length, seed, way)
            for way in ways
            for length in sizes
            for seed in draws
        ]
    return trials


def decodings(
    task: Task,
    lengths: Sequence[int],
    decoder: str | None,
    options: Mapping[str, Scalar],
    taus: Sequence[float],
) -> list[Decoding]:
    """The caller's decoder and options over the task's own, one per threshold; None is not given.

    A threshold is what the decoder has as one: `tau`, or the `factor` of the factor rule.

    Defaults are written out, so that two spellings of the same decoding find the same answers.
    """
    from goldimask.decoding.options import make_settings
    from goldimask.decoding.rules import DECODERS
    from goldimask.decoding.types import Settings

    known = {field.name for field in fields(Settings)}
    for option in options:
        if option not in known:
            raise GoldimaskError(f"decoding.{option}: unknown option; {nearest(option, known)}")
    own = task.decoding
    name = DECODERS.entry(decoder or own.decoder, "decoder").name
    rule = DECODERS.get(name)
    threshold = next((t for t in THRESHOLDS if t in rule.options), None)
    if threshold is None and (taus or options.get("tau") is not None):
        raise GoldimaskError(
            f"--tau: '{task.name}' is decoded with '{name}', which has no threshold; "
            "add --decoder threshold, or leave --tau out"
        )
    kept = own.options if name == own.decoder else {}
    kept = {k: v for k, v in own.options.items() if k in kept or k == "temperature"}
    rules = {"block": 32 if rule.blocks else None}
    rules |= {threshold: rule.options[threshold]} if threshold else {}
    given: dict[str, Scalar] = {}
    for layer in (rules, kept, options):
        given |= {k: v for k, v in layer.items() if v is not None}
    ways = [{**given, threshold or "tau": tau} for tau in dict.fromkeys(taus)] or [given]
    for way in ways:
        for length in lengths:
            make_settings(name, length=length, **way)
    return [Decoding(decoder=name, options=way) for way in ways]


def judged(task: Task, pairs: Sequence[tuple[Item, Outcome]]) -> list[Outcome]:
    """Fill in the extracted answers and verdicts."""
    extracted = [task.extract(o.output) for _, o in pairs]
    verdicts = task.judge_all([item for item, _ in pairs], extracted)
    rules = {"version": task.version, "protocol": task.protocol}
    return [
        o.model_copy(update={**rules, "extracted": x, **asdict(verdict)})
        for (_, o), x, verdict in zip(pairs, extracted, verdicts, strict=True)
    ]
