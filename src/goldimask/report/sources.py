"""What a report is made of, as named on the command line.

    RUN         a folder of `goldimask train` or `goldimask eval`
    NAME=RUN    the same under a name; a name given again is another seed of it
    STUDY       a folder of `goldimask study`, one that holds such folders, or any JSON file

An evaluation inside a run is refused when the run's weights are no longer those that answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.records import (
    METRICS,
    RECIPE,
    RESULT,
    Manifest,
    Metric,
    Outcome,
    Run,
    evaluated,
    open_run,
    read_evaluation,
    read_json,
    read_lines,
    read_manifest,
    unfinished,
)


@dataclass(frozen=True)
class Source:
    """A run, or an evaluation of a model that was not trained here."""

    name: str  # sources of one name are seeds of it
    label: str  # its own, in tables
    folder: Path
    run: Run | None = None

    @property
    def method(self) -> str:
        return self.run.method if self.run else "–"

    @property
    def baseline(self) -> bool:
        """Trained by another method than GoldiMask."""
        return self.run is not None and not self.method.startswith("goldimask")

    @cached_property
    def evaluation(self) -> tuple[Manifest | None, list[Outcome]]:
        return read_evaluation(self.folder) if evaluated(self.folder) else (None, [])

    @property
    def outcomes(self) -> list[Outcome]:
        return self.evaluation[1]

    @property
    def metrics(self) -> list[Metric]:
        return self.run.metrics if self.run else []

    @property
    def facts(self) -> dict[str, Any]:
        """What the training's manifest says of it."""
        return self.run.manifest.facts if self.run and self.run.manifest else {}

    @property
    def pages(self) -> list[Path]:
        return sorted([*self.folder.glob("*.html"), *self.folder.glob("*/*.html")])

    def notes(self) -> list[str]:
        """What is missing."""
        path, found = self.folder / METRICS, []
        torn = read_lines(path, Metric)[1] if self.run and path.is_file() else 0
        if torn:
            found.append(f"{self.label}: {torn} unreadable lines of metrics left out")
        manifest, outcomes = self.evaluation
        for trial, done in unfinished(manifest, outcomes) if manifest else ():
            found.append(
                f"{self.label}: {trial.task}, length {trial.length}, seed {trial.seed}, "
                f"{trial.decoding.label}: {done} of {trial.items} answers"
            )
        return found


def read_sources(words: Sequence[str]) -> tuple[list[Source], dict[str, Any]]:
    """(runs, results of studies by name), in the order given."""
    given: list[tuple[str, Path]] = []
    studies: dict[str, Any] = {}
    for word in words:
        name, path = named(word)
        if path.suffix == ".json":
            if not path.is_file():
                raise GoldimaskError(f"{path}: no such file")
            studies[name or path.stem] = read_json(path)
        elif (path / RECIPE).is_file() or evaluated(path):
            given.append((name, path))
        elif found := read_studies(path):
            studies |= {f"{path}/{k}" if k in studies else k: v for k, v in found.items()}
        else:
            raise GoldimaskError(
                f"{path}: not a run folder (no {RECIPE}) and no evaluation or study; give folders "
                "of `goldimask train`, `goldimask eval` or `goldimask study`"
            )
    sources = told_apart(given)
    for source in sources:
        studies |= {f"{source.label}-{k}": v for k, v in read_studies(source.folder).items()}
    return sources, studies


def named(word: str) -> tuple[str, Path]:
    """`vanilla=runs/v42` -> (vanilla, runs/v42); a path may hold the sign itself."""
    name, sign, path = word.partition("=")
    return ("", Path(word)) if not sign or Path(word).exists() else (name, Path(path))


def told_apart(given: Sequence[tuple[str, Path]]) -> list[Source]:
    """Sources whose labels differ: folders of one name by path, runs of one name by seed."""
    folders = Counter(path.resolve().name for name, path in given if not name)
    names = [
        name or (path.resolve().name if folders[path.resolve().name] == 1 else str(path))
        for name, path in given
    ]
    seeds = Counter(names)
    sources = []
    for name, (_, path) in zip(names, given, strict=True):
        run = open_run(path) if (path / RECIPE).is_file() else None
        label = name if seeds[name] == 1 else f"{name} ({path.resolve().name})"
        sources.append(Source(name, label, path, run))
    labels = Counter(s.label for s in sources)
    return [
        s if labels[s.label] == 1 else Source(s.name, f"{s.name} ({s.folder})", s.folder, s.run)
        for s in sources
    ]


def read_studies(folder: Path) -> dict[str, Any]:
    """Results of studies in a folder or in one of its folders, by the folder's name."""
    found = {}
    for file in sorted([*folder.glob(RESULT), *folder.glob(f"*/{RESULT}")]):
        manifest = read_manifest(file.parent)
        if manifest is not None and manifest.kind == "measure":
            found[file.resolve().parent.name] = read_json(file)
    return found
