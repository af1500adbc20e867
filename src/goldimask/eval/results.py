"""Everything one evaluation found, and how it is saved beside the answers.

scores.json     one entry per score: the figure with its interval, every setting of the decoder
                with its default written out, hashes of the prompts (as worded, and as token ids
                after the chat template), calls of the model, tokens a call, seconds, and the
                published figures of the same model and task
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from goldimask.eval.published import beside
from goldimask.eval.tasks import own_samples
from goldimask.files import write_json
from goldimask.records import (
    RECIPE,
    Decoding,
    Outcome,
    digest,
    read_manifest,
    read_outcomes,
    unfinished,
)
from goldimask.stats import TaskResult, aggregate, pass_at_k

SCORES = "scores.json"


@dataclass(frozen=True)
class EvalResult:
    """Everything one evaluation found."""

    results: tuple[TaskResult, ...]
    outcomes: tuple[Outcome, ...] = field(repr=False, default=())

    def __getitem__(self, task: str) -> TaskResult:
        """The result of a task; its first length, seed and decoding."""
        for result in self.results:
            if result.task == task:
                return result
        raise KeyError(task)

    def pass_at(
        self, task: str, k: int, length: int | None = None, decoding: Decoding | None = None
    ) -> float:
        """pass@k over all sampling seeds of a task (and length, and way of decoding)."""
        counts: dict[object, list[bool]] = {}
        for o in self.outcomes:
            if o.task == task and length in (None, o.length) and decoding in (None, o.decoding):
                counts.setdefault((o.length, o.decoding, o.item), []).append(o.correct)
        return pass_at_k([(len(c), sum(c)) for c in counts.values()], k)

    def to_json(self) -> list[dict[str, Any]]:
        return [r.to_json() for r in self.results]


def write_scores(folder: Path, model: str) -> Path:
    """Save what all answers of a folder are worth, those of other shards and commands included.

    The model card of the run that holds the folder tells them too.
    """
    manifest = read_manifest(folder)
    outcomes = list(read_outcomes(folder).values())
    found = aggregate(outcomes, samples=own_samples)
    missing = {t.place for t, _ in unfinished(manifest, outcomes)} if manifest else set()
    entries = []
    for r in found:
        group = [o for o in outcomes if same_score(o, r)]
        entry = r.to_json() | saved(r, group)
        entry["complete"] = not any(o.place in missing for o in group)
        entry["published"] = [b.to_json() for b in beside(model, [r])]
        entries.append(entry)
    file = write_json(folder / SCORES, {"model": model, "scores": entries})
    if (folder.parent / RECIPE).is_file():
        from goldimask.train.card import write_card  # nobody else needs it

        write_card(folder.parent)
    return file


def full_settings(r: TaskResult) -> dict[str, Any]:
    """Every setting that the decoder uses, its defaults and the number of planned steps too."""
    from goldimask.decoding.options import make_settings
    from goldimask.decoding.plan import block_steps
    from goldimask.decoding.rules import DECODERS

    options: dict[str, Any] = dict(r.decoding.options)
    made = make_settings(r.decoding.decoder, length=r.length, **options)
    own = DECODERS.get(r.decoding.decoder, "decoder")
    unused = {"tau", "factor", "steps", "alg_temp", "eps"} - set(own.options)
    found = {k: v for k, v in asdict(made).items() if k not in unused}
    if "steps" in found:
        sizes = [min(made.block, r.length - i) for i in range(0, r.length, made.block)]
        found["steps"] = sum(block_steps(n, made, own.rate) for n in sizes)
    return found


def same_score(o: Outcome, r: TaskResult) -> bool:
    return (o.task, o.length, o.decoding) == (r.task, r.length, r.decoding) and r.seed in (
        None,
        o.seed,
    )


def saved(r: TaskResult, group: Sequence[Outcome]) -> dict[str, Any]:
    """Everything that a score depends on or costs, in full."""
    settings = full_settings(r) | {"seed": sorted({o.seed for o in group})}
    rendered = sorted({(o.item, o.rendered) for o in group})
    return {
        "settings": settings,
        "prompts": digest(sorted({(o.item, o.prompt) for o in group})),
        "rendered_prompts": digest(rendered) if all(x for _, x in rendered) else None,
        "calls": sum(o.steps for o in group),
        "seconds_in_all": sum(o.seconds for o in group),
    }
