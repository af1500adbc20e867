"""The cells of a campaign as jobs, and their folders.

    cells/NAME-KEY/        a run folder of `goldimask train`, its evaluation in eval/
    cells/BASE-KEY/eval/   the untuned backbone

The key is that of the training (settings, weights, data), so a changed recipe, corpus or base makes
a new cell, and renaming the campaign's folder or adding rows, seeds and backbones does not. Parts
that ask for the same cell share its folder, and their questions are put to it one after another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from goldimask.campaign.executors import Job
from goldimask.campaign.judging import Evaluation, evaluations
from goldimask.campaign.settings import (
    BASE,
    Campaign,
    Cell,
    cell_recipe,
    cell_words,
    cells,
    model_of,
)
from goldimask.config import Recipe, read_yaml, recipe_dict
from goldimask.errors import GoldimaskError
from goldimask.jobs import partial_of
from goldimask.records import (
    DIGESTS,
    MANIFEST,
    RECIPE,
    Metric,
    Outcome,
    digest,
    open_run,
    read_manifest,
)
from goldimask.registry import passed_on

CELLS = "cells"


@dataclass(frozen=True)
class Place:
    """A cell, its folder, and what is asked of it."""

    cell: Cell
    folder: Path | None  # None: not keyed, and not found by its recipe
    recipe: Recipe | None  # None: the untuned backbone
    words: tuple[str, ...]  # of its training: recipe and changes
    base: str  # what the weights are loaded from
    asked: tuple[Evaluation, ...]
    parts: tuple[str, ...]  # names of the campaigns that want it

    @property
    def model(self) -> str:
        """What is evaluated."""
        return self.base if self.recipe is None else str(self.folder)

    @property
    def evaluation(self) -> Path:
        return (self.folder or Path()) / "eval"

    @property
    def name(self) -> str:
        """Of the cell; the untuned backbone has no seed."""
        return self.cell.place if self.recipe is None else self.cell.name

    @property
    def trained(self) -> bool:
        """Nothing is left to train."""
        if self.recipe is None:
            return True
        return self.folder is not None and (self.folder / MANIFEST).is_file()

    def missing(self) -> list[Evaluation]:
        """What has not been answered."""
        return [e for e in self.asked if self.folder is None or not e.done(self.evaluation)]


@dataclass(frozen=True)
class Finished:
    """What a cell found: every answer, and the facts of its training."""

    outcomes: tuple[Outcome, ...]
    facts: Mapping[str, Any]  # of the training's manifest; empty for the untuned backbone


def wanted(parts: Sequence[Campaign]) -> list[Place]:
    """Every cell once, without its folder; parts that want the same one put their questions."""
    found: dict[tuple[str, str], Place] = {}
    for part in parts:
        for cell in cells(part):
            recipe, base = cell_recipe(part, cell), model_of(part, cell)
            words = () if recipe is None else (part.recipe, *cell_words(part, cell))
            asked = tuple(evaluations(part, cell))
            place = Place(cell, None, recipe, words, base, asked, (part.name,))
            same = (place.name, identity(recipe) if recipe else base)
            if before := found.get(same):
                more = tuple(e for e in asked if e not in before.asked)
                names = dict.fromkeys((*before.parts, part.name))
                place = replace(before, asked=before.asked + more, parts=tuple(names))
            found[same] = place
    return list(found.values())


def identity(recipe: Recipe | Mapping[str, Any]) -> str:
    """A hash of a recipe's content, wherever its run is written to."""
    values = recipe_dict(recipe) if isinstance(recipe, Recipe) else recipe
    return digest({k: v for k, v in values.items() if k != "output"})


def places(parts: Sequence[Campaign], folder: Path) -> list[Place]:
    """Every cell with its folder by key: weights are hashed and the text of the data is read."""
    from goldimask.train.prepare import train_key

    out = []
    for place in wanted(parts):
        weights = same_weights(place.base, folder / DIGESTS)
        key = weights[:16] if place.recipe is None else train_key(place.recipe, weights)
        out.append(replace(place, folder=folder / CELLS / f"{place.name}-{key}"))
    return out


@cache
def same_weights(model: str, remember: Path) -> str:
    from goldimask.backbones.identity import weights_hash

    remember.parent.mkdir(parents=True, exist_ok=True)
    return weights_hash(model, remember)


def jobs_of(place: Place, code: bool = False, gpus: int = 1) -> list[Job]:
    """What a keyed cell still lacks: its training, and its evaluations.

    `code` allows the tasks that run generated programs; `gpus` are the devices of a cell.
    """
    assert place.folder is not None
    passed = [*passed_on(), *(["--nproc", str(gpus)] if gpus > 1 else [])]
    out: list[Job] = []
    name = place.cell.name
    if not place.trained:
        words = ("train", *place.words, f"output={place.folder}", *passed)
        out.append(Job(f"{name}-train", words, place.folder, claim="train"))
    needs = tuple(job.name for job in out)
    for call in place.asked if needs else place.missing():
        words = (*call.words(place.model, place.evaluation), *passed)
        words += ("--allow-code-execution",) * (call.runs_code and code)
        claim = f"eval-{call.first}"  # one writer of a shard at a time
        job = Job(f"{name}-{call.name}", words, place.folder, needs, claim, call)
        out.append(job)
    return out


def is_done(job: Job) -> bool:
    """Whether somebody else has done a job in the meantime."""
    if job.call is None:
        return (job.folder / MANIFEST).is_file()
    return job.call.done(job.folder / "eval")


def resumed(job: Job) -> tuple[str, ...]:
    """The words of a job as it stands now: an unfinished training goes on."""
    goes_on = job.call is None and partial_of(job.folder).is_dir()
    return (*job.words, *["--resume"] * goes_on)


def finished(place: Place) -> Finished | None:
    """The result of a cell; None while something is missing."""
    facts: Mapping[str, Any] = {}
    if not place.trained or place.missing():
        return None
    assert place.folder is not None
    if place.recipe is not None:
        manifest = read_manifest(place.folder)
        assert manifest is not None
        facts = {**manifest.facts, "metrics": mean_metrics(open_run(place.folder).metrics)}
    check_weights(place)
    found = {o.key: o for call in place.asked for o in call.own(place.evaluation)}
    return Finished(tuple(found.values()), facts)


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
    from goldimask.backbones.identity import weights_hash

    manifest = read_manifest(place.evaluation)
    now = weights_hash(place.model, remember=place.evaluation / DIGESTS)
    if manifest is None or manifest.weights != now:
        then = "nobody knows whom" if manifest is None else f"{manifest.model} ({manifest.weights})"
        raise GoldimaskError(
            f"{place.evaluation}: holds answers of {then}, which are other weights than "
            f"{place.model} has now ({now}); remove the folder, and they are decoded again"
        )


def by_recipe(found: Sequence[Place], folder: Path) -> list[Place]:
    """Folders of cells by their recipe instead of their key: nothing is hashed, read or loaded.

    What the weights and the data are now is not looked at; a run looks at it.
    """
    known: dict[tuple[str, str], Path] = {}
    for manifest in folder.glob(f"{CELLS}/*/{MANIFEST}"):
        found_there = read_manifest(manifest.parent)
        recipe = found_there.facts.get("recipe") if found_there else None
        if isinstance(recipe, Mapping):
            known[manifest.parent.name.rpartition("-")[0], identity(recipe)] = manifest.parent
    for answers in folder.glob(f"{CELLS}/*_{BASE}-*/eval"):
        known[answers.parent.name.rpartition("-")[0], ""] = answers.parent
    for begun in folder.glob(f"{CELLS}/*.partial/{RECIPE}"):
        at = begun.parent.with_name(begun.parent.name.removesuffix(".partial"))
        known.setdefault((at.name.rpartition("-")[0], identity(read_yaml(begun))), at)
    out = []
    for place in found:
        own = identity(place.recipe) if place.recipe else ""
        out.append(replace(place, folder=known.get((place.name, own))))
    return out
