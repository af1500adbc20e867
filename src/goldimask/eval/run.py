"""Evaluate a model: decode, extract, judge; resumable and shardable.

    for task, length, seed:  decode the samples that are not on disk yet in one running batch,
                             judge and append them as they finish, aggregate everything

Sample i of a test set belongs to shard i mod world, so that shards are disjoint and a test set is
spread evenly. With `out`, finished samples are found again after a kill (`records`), none is
decoded or counted twice, and a folder holding another model's samples is refused. A stored sample
whose protocol or task version differs is judged again from its text, not decoded again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.eval.generate import Generate, Generated, Stream, backbone_stream, in_batches
from goldimask.eval.records import Key, Sample, Store, decoding_hash, short_hash
from goldimask.eval.tasks import Item, Task, accepted, get_task
from goldimask.stats import pass_at_k, wilson

__all__ = ["EvalResult", "Generate", "Generated", "TaskResult", "aggregate", "evaluate"]


@dataclass(frozen=True)
class TaskResult:
    """One task at one length and one sampling seed."""

    task: str
    length: int
    seed: int
    n: int
    correct: int
    accuracy: float  # the task's headline metric; of partial credits where there are any
    low: float  # Wilson, 95 %
    high: float
    steps: float  # mean decoding iterations
    unparsable: int
    seconds: float  # per sample
    metric: str = "accuracy"
    protocol: str = "fixed"
    version: str = ""
    solved: float = 0.0  # share of samples that are correct as a whole


@dataclass(frozen=True)
class EvalResult:
    """Everything one evaluation found."""

    results: tuple[TaskResult, ...]
    samples: tuple[Sample, ...] = field(repr=False, default=())

    def __getitem__(self, task: str) -> TaskResult:
        """The result of a task; its first length and seed."""
        for result in self.results:
            if result.task == task:
                return result
        raise KeyError(task)

    def pass_at(self, task: str, k: int, length: int | None = None) -> float:
        """pass@k over all sampling seeds of a task (and length)."""
        counts: dict[str, list[bool]] = {}
        for sample in self.samples:
            if sample.task == task and length in (None, sample.length):
                counts.setdefault(f"{sample.length}/{sample.id}", []).append(sample.correct)
        return pass_at_k([(len(c), sum(c)) for c in counts.values()], k)

    def to_json(self) -> list[dict[str, Any]]:
        return [asdict(r) for r in self.results]


def evaluate(
    backbone: Any,
    tasks: Sequence[str | Task],
    *,
    lengths: Sequence[int] | None = None,
    seeds: Sequence[int] | None = None,
    decoder: str = "threshold",
    options: Mapping[str, Any] | None = None,
    limit: int | None = None,
    protocol: str = "fixed",
    task_options: Mapping[str, Any] | None = None,
    data: Mapping[str, Path | str] | Path | str | None = None,
    out: Path | str | None = None,
    batch_size: int = 16,
    shard: tuple[int, int] = (0, 1),
    model_name: str = "",
    progress: Callable[[int], None] | None = None,
    say: Callable[[str], None] | None = None,
    generate: Generate | None = None,
) -> EvalResult:
    """Accuracy of `backbone` on `tasks`.

    `lengths` and `seeds` None mean each task's own (AIME: 16 samples at temperature 0.7); `options`
    go to the decoder (`block`, `tau`, ...), `task_options` to the tasks that take them; `limit`
    keeps the first problems of each task (and draws that many where a task generates them); `data`
    is a folder or file of test sets, or one per task; `progress` is called with the number of
    samples that became available.
    """
    plans = [
        make_plan(t, protocol, limit, task_options or {}, dict(options or {}), seeds, lengths)
        for t in tasks
    ]
    for plan in plans:  # everything that can be refused is refused before anything is decoded
        if plan.task.prepare:
            (say or (lambda text: None))(f"{plan.task.name}: {plan.task.prepare()}")
    items = [
        p.task.load(data.get(p.task.name) if isinstance(data, Mapping) else data) for p in plans
    ]
    store = Store(out, shard[0], model_name)
    found: list[Sample] = []
    for plan, rows in zip(plans, items, strict=True):
        if generate is None:
            make = backbone_stream(backbone, decoder, plan.options, batch_size)
        else:
            make = in_batches(generate, batch_size)
        for length in plan.lengths:
            for seed in plan.seeds:
                cell = Cell(plan.task, length, seed, decoding_hash(decoder, plan.options))
                found += run_cell(cell, rows[:limit], make, store, batch_size, shard, progress)
    return EvalResult(aggregate(found, [p.task for p in plans]), tuple(found))


@dataclass(frozen=True)
class Plan:
    """A task with everything the caller and the task's own protocol settled."""

    task: Task
    lengths: tuple[int, ...]
    seeds: tuple[int, ...]
    options: dict[str, Any]

    def samples(self, limit: int | None, items: int) -> int:
        """How many samples the task will take."""
        return min(items, limit or items) * len(self.lengths) * len(self.seeds)


def make_plan(
    task: str | Task,
    protocol: str,
    limit: int | None,
    task_options: Mapping[str, Any],
    options: dict[str, Any],
    seeds: Sequence[int] | None,
    lengths: Sequence[int] | None,
) -> Plan:
    """Resolve a task; a generated one draws `limit` problems; AIME brings its own sampling."""
    if isinstance(task, str):
        drawn = {"n": limit} if limit and task.startswith("tiny-") else {}
        given = accepted(task, task_options)
        task = get_task(task, protocol=protocol, **drawn, **given)
    sampling = dict(task.sampling)
    many = sampling.pop("samples", 1)
    if seeds is None:
        seeds = range(many)
        options = {**sampling, **options}
    if not seeds or not all(x > 0 for x in lengths or (1,)):
        raise GoldimaskError("seeds and lengths: expected at least one seed and positive lengths")
    return Plan(task, tuple(lengths or (task.length,)), tuple(seeds), options)


@dataclass(frozen=True)
class Cell:
    """One task, length, seed and way of decoding."""

    task: Task
    length: int
    seed: int
    decoding: str

    def key(self, item: Item) -> Key:
        prompt = short_hash(self.task.prompt(item) + "\0" + self.task.prefill)
        return (self.task.name, item.id, self.length, self.seed, prompt, self.decoding)


def run_cell(
    cell: Cell,
    items: Sequence[Item],
    stream: Stream,
    store: Store,
    batch_size: int,
    shard: tuple[int, int],
    progress: Callable[[int], None] | None,
) -> list[Sample]:
    """All samples of a cell that belong to this shard, decoded or found."""
    rank, world = shard
    mine = [(i, item) for i, item in enumerate(items) if i % world == rank]
    done = rejudge(cell, mine, store)
    if done and progress:
        progress(len(done))
    pending = [(i, item) for i, item in mine if cell.key(item) not in done]
    for fresh in decoded_groups(cell, pending, stream, batch_size):
        store.add(fresh)
        done.update({s.key: s for s in fresh})
        if progress:
            progress(len(fresh))
    return [done[cell.key(item)] for _, item in mine]


def decoded_groups(
    cell: Cell, pending: Sequence[tuple[int, Item]], stream: Stream, size: int
) -> Iterator[list[Sample]]:
    """Decode; judged samples in groups of `size`, in the order they were finished."""
    task = cell.task
    prompts = [task.prompt(item) for _, item in pending]
    options = {"prefill": task.prefill, "length": cell.length, "seed": cell.seed, "raw": task.raw}
    made: list[tuple[int, Item, Generated]] = []
    started = time.perf_counter()
    for count, (place, response) in enumerate(stream(prompts, **options), start=1):
        made.append((*pending[place], response))
        if len(made) == size or count == len(pending):
            yield judged(cell, made, (time.perf_counter() - started) / len(made))
            made, started = [], time.perf_counter()


def judged(cell: Cell, made: Sequence[tuple[int, Item, Generated]], seconds: float) -> list[Sample]:
    """Samples of some responses; `seconds` is what each took to decode."""
    task = cell.task
    blank = [
        Sample(
            *(task.name, task.version, task.protocol, item.id, i, cell.length, cell.seed),
            *(cell.decoding, cell.key(item)[4], found.text, None, False, "", 0.0, 0.0),
            *(found.steps, seconds),
        )
        for i, item, found in made
    ]
    return judge_samples(task, [item for _, item, _ in made], blank)


def judge_samples(task: Task, items: Sequence[Item], samples: Sequence[Sample]) -> list[Sample]:
    """Fill in the extracted answers and verdicts."""
    extracted = [task.extract(s.output) for s in samples]
    verdicts = task.judge_all(items, extracted)
    return [
        replace(
            sample,
            version=task.version,
            protocol=task.protocol,
            extracted=answer,
            **asdict(verdict),
        )
        for sample, answer, verdict in zip(samples, extracted, verdicts, strict=True)
    ]


def rejudge(cell: Cell, mine: Sequence[tuple[int, Item]], store: Store) -> dict[Key, Sample]:
    """Samples on disk; judged again where they were judged by other rules."""
    task = cell.task
    done = {k: store.found[k] for _, item in mine if (k := cell.key(item)) in store.found}
    rules = (task.version, task.protocol)
    stale = [
        (item, done[k])
        for _, item in mine
        if (k := cell.key(item)) in done and (done[k].version, done[k].protocol) != rules
    ]
    if stale:
        again = judge_samples(task, [i for i, _ in stale], [s for _, s in stale])
        store.add(again)
        done.update({s.key: s for s in again})
    return done


def aggregate(samples: Sequence[Sample], tasks: Sequence[Task] = ()) -> tuple[TaskResult, ...]:
    """One result per (task, length, seed), in order of appearance."""
    groups: dict[tuple[str, int, int], list[Sample]] = {}
    for sample in samples:
        groups.setdefault((sample.task, sample.length, sample.seed), []).append(sample)
    metrics = {t.name: t.metric for t in tasks}
    return tuple(
        result_of(group, metrics.get(task, "accuracy")) for (task, _, _), group in groups.items()
    )


def result_of(group: Sequence[Sample], metric: str = "accuracy") -> TaskResult:
    """The figures of one group of samples."""
    first, n = group[0], len(group)
    correct = sum(s.correct for s in group)
    of = sum(s.of for s in group)
    hits, total = (sum(s.hits for s in group), of) if of else (correct, n)
    low, high = wilson(hits, total)
    return TaskResult(
        task=first.task,
        length=first.length,
        seed=first.seed,
        n=n,
        correct=correct,
        accuracy=hits / total,
        low=low,
        high=high,
        steps=sum(s.steps for s in group) / n,
        unparsable=sum(s.extracted is None for s in group),
        seconds=sum(s.seconds for s in group) / n,
        metric=metric,
        protocol=first.protocol,
        version=first.version,
        solved=correct / n,
    )
