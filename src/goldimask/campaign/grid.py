"""The cells of a campaign as jobs, and their folders read back.

    cells/NAME-KEY/        a run folder of `goldimask train`, its evaluation in eval/
    cells/BASE-KEY/eval/   the untuned backbone

The key is that of the training (settings, weights, data), so a changed recipe, corpus or base makes
a new cell, and renaming the campaign's folder or adding rows, seeds and backbones does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from goldimask.backbones.identity import weights_hash
from goldimask.campaign.executors import Job
from goldimask.campaign.settings import (
    BASE,
    Campaign,
    Cell,
    cell_recipe,
    cell_words,
    cells,
    problems_at,
    shard,
    tasks_of,
)
from goldimask.config import Recipe
from goldimask.errors import GoldimaskError
from goldimask.jobs import partial_of
from goldimask.records import DIGESTS, Metric, Outcome, open_run, read_manifest, read_outcomes
from goldimask.registry import passed_on
from goldimask.train.prepare import train_key

same_weights = cache(weights_hash)


@dataclass(frozen=True)
class Place:
    """A cell and its folder."""

    cell: Cell
    folder: Path
    recipe: Recipe | None  # None: the untuned backbone

    @property
    def model(self) -> str:
        """What is evaluated."""
        return self.cell.backbone if self.recipe is None else str(self.folder)

    @property
    def evaluation(self) -> Path:
        return self.folder / "eval"


@dataclass(frozen=True)
class Finished:
    """What a cell found: every answer, and the facts of its training."""

    outcomes: tuple[Outcome, ...]
    facts: Mapping[str, Any]  # of the training's manifest; empty for the untuned backbone


def places(campaign: Campaign, folder: Path) -> list[Place]:
    """Every cell with its folder; nothing is loaded but the text of the data."""
    out = []
    for cell in cells(campaign):
        recipe = cell_recipe(campaign, cell)
        if recipe is None:  # one folder for all seeds
            name = Cell(cell.backbone, BASE, 0).name.removesuffix("_s0")
            key = same_weights(cell.backbone)[:16]
        else:
            name, key = cell.name, train_key(recipe, same_weights(cell.backbone))
        out.append(Place(cell, folder / "cells" / f"{name}-{key}", recipe))
    return out


def jobs_of(campaign: Campaign, place: Place) -> list[Job]:
    """What a cell still lacks: its training, and its evaluation."""
    out = []
    name = place.cell.name
    if place.recipe is not None and read_manifest(place.folder) is None:
        words = ["train", campaign.recipe, *cell_words(campaign, place.cell)]
        words += [f"output={place.folder}", *passed_on()]
        words += ["--resume"] * partial_of(place.folder).is_dir()
        out.append(Job(f"{name}-train", tuple(words), place.folder))
    needs = tuple(job.name for job in out)
    for taus, problems in evaluations(campaign):
        if not needs and judged(campaign, place, taus, problems):
            continue
        job = Job(
            f"{name}-eval-{'-'.join(f'{tau:g}' for tau in taus)}",
            tuple(evaluation_words(campaign, place, taus, problems)),
            place.evaluation,
            needs,
        )
        out.append(job)
        needs = (*needs, job.name)  # one writer at a time
    return out


def evaluations(campaign: Campaign) -> list[tuple[list[float], int]]:
    """(thresholds, problems): the main one, and the others where they take fewer problems."""
    groups: dict[int, list[float]] = {}
    for tau in sorted(campaign.judging.taus):
        groups.setdefault(problems_at(campaign.judging, tau), []).append(tau)
    return [(taus, problems) for problems, taus in groups.items()]


def evaluation_words(
    campaign: Campaign, place: Place, taus: Sequence[float], problems: int
) -> list[str]:
    judging = campaign.judging
    first, every = shard(campaign, place.cell.seed)
    words = ["eval", place.model, "--tasks", ",".join(tasks_of(campaign))]
    words += ["--decoder", "threshold", "--tau", ",".join(f"{tau:g}" for tau in taus)]
    words += ["--block", str(judging.block), "--limit", str(problems)]
    words += ["--batch-size", str(judging.batch_size), "--out", str(place.evaluation)]
    words += passed_on()
    return words if every == 1 else [*words, "--shard", f"{first}/{every}"]


def judged(campaign: Campaign, place: Place, taus: Iterable[float], problems: int) -> bool:
    """Whether every problem of the cell's share has its answer at every threshold."""
    found = own_answers(campaign, place)
    first, every = shard(campaign, place.cell.seed)
    wanted = len(range(first, problems, every))
    return all(
        sum(o.task == task and tau_of(o) == tau and o.index < problems for o in found) == wanted
        for task in tasks_of(campaign)
        for tau in taus
    )


def own_answers(campaign: Campaign, place: Place) -> list[Outcome]:
    """Answers of the campaign's settings in the cell's folder, to its share of the problems."""
    first, every = shard(campaign, place.cell.seed)
    judging, tasks = campaign.judging, set(tasks_of(campaign))
    return [
        o
        for o in read_outcomes(place.evaluation).values()
        if o.task in tasks
        and o.decoding.decoder == "threshold"
        and o.decoding.options.get("block") == judging.block
        and tau_of(o) in judging.taus
        and o.index % every == first
        and o.index < problems_at(judging, tau_of(o))
    ]


def tau_of(outcome: Outcome) -> float:
    tau = outcome.decoding.options.get("tau")
    return float(tau) if isinstance(tau, int | float) else float("nan")


def finished(campaign: Campaign, place: Place) -> Finished | None:
    """The result of a cell; None while something is missing."""
    facts: Mapping[str, Any] = {}
    if place.recipe is not None:
        manifest = read_manifest(place.folder)
        if manifest is None:
            return None
        facts = {**manifest.facts, "metrics": mean_metrics(open_run(place.folder).metrics)}
    if not all(judged(campaign, place, taus, n) for taus, n in evaluations(campaign)):
        return None
    check_weights(place)
    return Finished(tuple(own_answers(campaign, place)), facts)


def mean_metrics(logged: Sequence[Metric]) -> dict[str, float]:
    """Every logged quantity, averaged over the lines that have it."""
    found: dict[str, list[float]] = {}
    for line in logged:
        for name, value in line.values.items():
            if isinstance(value, int | float):
                found.setdefault(name, []).append(float(value))
    return {name: sum(values) / len(values) for name, values in found.items()}


def check_weights(place: Place) -> None:
    """Answers of other weights than the folder holds are never shown."""
    manifest = read_manifest(place.evaluation)
    now = weights_hash(place.model, remember=place.evaluation / DIGESTS)
    if manifest is None or manifest.weights != now:
        then = "nobody knows whom" if manifest is None else f"{manifest.model} ({manifest.weights})"
        raise GoldimaskError(
            f"{place.evaluation}: holds answers of {then}, which are other weights than "
            f"{place.model} has now ({now}); remove the folder, and they are decoded again"
        )
