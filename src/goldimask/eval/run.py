"""Evaluate a model: plan, decode, judge; resumable and shardable.

    trials  = plan_trials(tasks, ...)    every task, length, seed and way of decoding, its problems
                                         loaded; all that can be refused is refused here
    result  = run_trials(trials, ...)    per trial: decode what is not on disk in one running batch,
                                         judge and append it as it finishes, aggregate everything

Problem i belongs to shard i mod world, so that shards are disjoint and a test set is spread evenly.
With `out`, finished answers are found again after a kill, none is decoded or counted twice, and a
folder of another model is refused: its manifest holds the hash of the weights that answered. An
answer whose protocol or task version differs is judged again from its text, not decoded again.
A sweep over thresholds is an evaluation with several of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from goldimask.errors import GoldimaskError
from goldimask.eval.results import EvalResult, write_scores
from goldimask.eval.tasks import Item, Task
from goldimask.eval.tasks.base import Prompt
from goldimask.eval.trials import Lengths, Planned, Say, Sources, judged, plan_trials
from goldimask.jobs import job_key, locked, make_manifest, same_job
from goldimask.records import (
    DIGESTS,
    SAMPLES,
    Decoding,
    Key,
    Manifest,
    Outcome,
    Scalar,
    append_lines,
    digest,
    read_manifest,
    read_outcomes,
    write_manifest,
)
from goldimask.stats import TaskResult, aggregate

if TYPE_CHECKING:
    from goldimask.backbones import Backbone

__all__ = ["Answer", "EvalResult", "Model", "TaskResult", "evaluate", "plan_trials", "run_trials"]


class Response(NamedTuple):
    """What came of one prompt."""

    index: int  # of the prompt
    text: str
    calls: int  # of the model
    tokens: int = 0  # before the first end token
    rendered: str = ""  # hash of the prompt's token ids
    seconds: float = 0.0  # of the decoder since the response before


class Answer(Protocol):
    """Decodes user turns; yields a `Response` to each as it is finished.

    A response begins after `prefill`; a raw text keeps its special tokens.
    """

    def __call__(
        self,
        prompts: Sequence[Prompt],
        *,
        prefill: str,
        length: int,
        seed: int,
        raw: bool,
        decoding: Decoding,
    ) -> Iterable[Response]: ...


@dataclass(frozen=True)
class Model:
    """Whose answers are judged."""

    name: str
    weights: str  # hash of weights, adapter and tokenizer
    dtype: str = ""  # precision, where it is not the model's own
    source: str = ""  # where it was found


def identify(source: str | Path, dtype: str | None = None, out: Path | None = None) -> Model:
    """The model behind a run folder, a model folder or a name; `out` remembers hashes."""
    from goldimask.backbones.identity import weights_hash
    from goldimask.backbones.lookup import find_model

    remember = out / DIGESTS if out is not None else None
    weights = weights_hash(source, remember)
    return Model(find_model(source).name, weights, dtype or "", str(source))


def only_writer(out: Path | str | None, shard: tuple[int, int]) -> AbstractContextManager[None]:
    """Hold the lock of a shard, from before anything is prepared to the last answer."""
    return nullcontext() if out is None else locked(Path(out), part=str(shard[0]))


def evaluate(
    backbone: Backbone | None,
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
    out: Path | str | None = None,
    model: Model | str | Path | None = None,
    batch_size: int = 16,
    shard: tuple[int, int] = (0, 1),
    progress: Callable[[int], None] | None = None,
    say: Say | None = None,
    answer: Answer | None = None,
) -> EvalResult:
    """Accuracy of `backbone` on `tasks`.

    `lengths`, `seeds` and `decoder` None mean each task's own (AIME: 16 samples at temperature
    0.7); `lengths` may differ per task (`{"gsm8k": (256,), "": (128,)}`); `options` go to the
    decoder (`block`, `tau`, ...), and each of `taus` is a decoding of its own; `task_options` go
    to the tasks that take them; `limit` keeps the first problems of each
    task (and draws that many where a task generates them); `data` is a folder or file of test sets,
    or one per task. `out` keeps the answers of `model`, which is what the backbone was loaded from.
    `progress` is called with the number of answers that became available; `answer` replaces
    decoding with the backbone.
    """
    with only_writer(out, shard):
        trials = plan_trials(
            tasks,
            lengths=lengths,
            seeds=seeds,
            decoder=decoder,
            options=options,
            taus=taus,
            limit=limit,
            protocol=protocol,
            task_options=task_options,
            data=data,
            say=say,
        )
        if answer is None:
            if backbone is None:
                raise GoldimaskError("evaluate: give a backbone, or `answer` in its place")
            answer = backbone_answer(backbone, batch_size)
        if isinstance(model, str | Path):
            model = identify(model, out=Path(out) if out is not None else None)
        return run_trials(trials, answer, out, model, batch_size, shard, progress)


def backbone_answer(backbone: Backbone, batch_size: int) -> Answer:
    """Decode all prompts in one running batch: who is done leaves, who waits takes its place."""
    from goldimask.decoding import decode_iter, make_settings
    from goldimask.decoding.engine import end_ids
    from goldimask.decoding.types import first_end

    def answer(
        prompts: Sequence[Prompt],
        *,
        prefill: str,
        length: int,
        seed: int,
        raw: bool,
        decoding: Decoding,
    ) -> Iterator[Response]:
        ends = end_ids(backbone)
        options: dict[str, Any] = dict(decoding.options)
        settings = make_settings(decoding.decoder, length=length, seed=seed, **options)
        started = time.perf_counter()
        for index, made in decode_iter(
            backbone, list(prompts), settings, batch_size=batch_size, prefill=prefill
        ):
            took = time.perf_counter() - started
            text = made.text
            if raw:
                text = str(backbone.tokenizer.decode(made.tokens, skip_special_tokens=False))
            end = first_end(made.tokens, ends)
            tokens = len(made.tokens) if end is None else end
            rendered = digest(list(made.prompt_ids))
            yield Response(index, text, made.steps, tokens, rendered, took)
            started = time.perf_counter()

    return answer


def run_trials(
    trials: Sequence[Planned],
    answer: Answer,
    out: Path | str | None = None,
    model: Model | None = None,
    batch_size: int = 16,
    shard: tuple[int, int] = (0, 1),
    progress: Callable[[int], None] | None = None,
) -> EvalResult:
    """All answers of this shard, decoded or found, and what they are worth.

    The caller holds the lock of the shard (`only_writer`).
    """
    found: dict[Key, Outcome] = {}
    outcomes: list[Outcome] = []
    file = None
    if out is not None:
        if model is None:
            raise GoldimaskError(
                "evaluate: `out` keeps the answers of a model; say with `model` which run, "
                "folder or name the backbone was loaded from"
            )
        found = enter(Path(out), model, trials)
        file = Path(out) / SAMPLES.replace("*", str(shard[0]))
    running = [answered(t, t.part(shard), found, answer, batch_size) for t in trials]
    for trial, groups in zip(trials, running, strict=True):
        done: dict[Key, Outcome] = {}
        for fresh, is_new in groups:
            if file is not None and is_new:
                append_lines(file, fresh)
            done |= {o.key: o for o in fresh}
            if progress:
                progress(len(fresh))
        outcomes += [done[trial.key(item)] for _, item in trial.part(shard)]
        if out is not None and model is not None:
            with locked(Path(out), wait=60.0):
                write_scores(Path(out), model.name)
    metrics = {trial.task.name: trial.task.metric for trial in trials}
    samples = {trial.task.name: trial.task.samples for trial in trials}
    results = aggregate(outcomes, metrics, lambda task: samples[task])
    return EvalResult(results, tuple(outcomes))


def manifest_of(model: Model) -> Manifest:
    key = job_key("evaluate", weights=model.weights, settings={"dtype": model.dtype})
    facts = {"dtype": model.dtype, "source": model.source}
    return make_manifest("evaluate", key, model.name, model.weights, **facts)


def enter(folder: Path, model: Model, trials: Sequence[Planned]) -> dict[Key, Outcome]:
    """Write down whose answers the folder holds and to what; return those that are there."""
    manifest = manifest_of(model)
    with locked(folder, wait=60.0):  # shards that start together take turns
        found = read_outcomes(folder)
        if same_job(folder, manifest):
            manifest = read_manifest(folder) or manifest
        elif found:
            raise GoldimaskError(
                f"'{folder}' holds answers and no manifest that says whose; choose another folder"
            )
        refuse_other_prompts(folder, found, trials)
        known = {t.place: t for t in manifest.trials}
        for t in (trial.record() for trial in trials):
            before = known.get(t.place, t)  # of fewer problems now: the others are still there
            whole = t if t.items >= before.items else before
            rules = {"version": t.version, "protocol": t.protocol}
            known[t.place] = whole.model_copy(update=rules)
        write_manifest(folder, manifest.model_copy(update={"trials": [*known.values()]}))
    return found


def refuse_other_prompts(
    folder: Path, found: Mapping[Key, Outcome], trials: Sequence[Planned]
) -> None:
    """One folder holds one answer to a problem; another wording would make it two."""
    prompts = {(o.place, o.item): o.prompt for o in found.values()}
    for trial in trials:
        place = trial.record().place
        for item in trial.items:
            if prompts.get((place, item.id)) not in (None, trial.key(item)[4]):
                raise GoldimaskError(
                    f"'{folder}' holds an answer to another prompt of {trial.task.name}, "
                    f"{item.id}; choose another folder, or remove this one"
                )


def answered(
    trial: Planned,
    mine: Sequence[tuple[int, Item]],
    found: Mapping[Key, Outcome],
    answer: Answer,
    size: int,
) -> Iterator[tuple[list[Outcome], bool]]:
    """Groups of judged answers, and whether they are new: found, judged again, decoded.

    What is to be decoded is asked for at once, so that processes get the trials in one queue.
    """
    task = trial.task
    rules = (task.version, task.protocol)
    kept = [(item, found[k]) for _, item in mine if (k := trial.key(item)) in found]
    waiting = [(i, item) for i, item in mine if trial.key(item) not in found]
    decoded: Iterable[Response] = ()
    if waiting:
        decoded = answer(
            [task.prompt(item) for _, item in waiting],
            prefill=task.prefill,
            length=trial.length,
            seed=trial.seed,
            raw=task.raw,
            decoding=trial.decoding,
        )

    def groups() -> Iterator[tuple[list[Outcome], bool]]:
        if current := [o for _, o in kept if (o.version, o.protocol) == rules]:
            yield current, False
        if stale := [(item, o) for item, o in kept if (o.version, o.protocol) != rules]:
            yield judged(task, stale), True
        made: list[Response] = []
        for count, response in enumerate(decoded, start=1):
            made.append(response)
            if len(made) == size or count == len(waiting):
                seconds = sum(x.seconds for x in made) / len(made)
                asked = [(*waiting[x.index], x) for x in made]
                blank = [(item, unjudged(trial, i, item, x, seconds)) for i, item, x in asked]
                yield judged(task, blank), True
                made = []

    return groups()


def unjudged(trial: Planned, index: int, item: Item, made: Response, seconds: float) -> Outcome:
    return Outcome(
        task=trial.task.name,
        version=trial.task.version,
        protocol=trial.task.protocol,
        item=item.id,
        index=index,
        length=trial.length,
        seed=trial.seed,
        decoding=trial.decoding,
        prompt=trial.key(item)[4],
        output=made.text,
        extracted=None,
        correct=False,
        detail="",
        hits=0.0,
        of=0.0,
        steps=made.calls,
        seconds=seconds,
        tokens=made.tokens,
        rendered=made.rendered,
    )
