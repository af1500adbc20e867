"""What a run folder holds, read for a report: recipe, manifest, metrics, evaluated samples, pages.

Nothing heavy is imported. A line of metrics cut short by a kill is left out and counted; a folder
without `recipe.yaml` is an error, one without the other parts simply has less to show.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goldimask.errors import GoldimaskError
from goldimask.records import SAMPLES, Outcome

if TYPE_CHECKING:
    from goldimask.eval.results import TaskResult

# how the files of `goldimask study` begin
EXTRAS = ("study", "eligibility", "budget", "response", "support", "quality")


@dataclass(frozen=True)
class RunData:
    """One run, as far as it got."""

    name: str
    folder: Path
    recipe: Mapping[str, Any]
    manifest: Mapping[str, Any] = field(default_factory=dict)
    metrics: tuple[Mapping[str, Any], ...] = ()
    torn: int = 0  # unreadable lines of metrics
    samples: tuple[Outcome, ...] = ()
    results: tuple[TaskResult, ...] = ()
    pages: tuple[Path, ...] = ()
    extras: Mapping[str, Any] = field(default_factory=dict)  # study files by name

    @property
    def method(self) -> str:
        section = self.recipe.get("method")
        return str(section.get("preset", "goldimask-d")) if isinstance(section, Mapping) else "–"


def read_run(path: Path | str, name: str | None = None) -> RunData:
    """Read one run folder."""
    from goldimask.config import read_yaml

    folder = Path(path)
    if not (folder / "recipe.yaml").is_file():
        raise GoldimaskError(
            f"{path}: not a run folder (no recipe.yaml); give folders of `goldimask train`, "
            "or folders or JSON files written by `goldimask study`"
        )
    metrics, torn = read_lines(folder / "metrics.jsonl")
    samples, results = read_evaluation(folder)
    return RunData(
        name=name or folder.resolve().name,
        folder=folder,
        recipe=read_yaml(folder / "recipe.yaml"),
        manifest=read_object(folder / "manifest.json"),
        metrics=metrics,
        torn=torn,
        samples=samples,
        results=results,
        pages=tuple(sorted([*folder.glob("*.html"), *folder.glob("*/*.html")])),
        extras=read_extras(folder),
    )


def read_extras(folder: Path) -> dict[str, Any]:
    """Study results in a folder or in one of its folders, by name."""
    files = sorted([*folder.glob("*.json"), *folder.glob("*/*.json")])
    return {p.stem: read_object(p) for p in files if p.stem.startswith(EXTRAS)}


def read_object(path: Path) -> dict[str, Any]:
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


def read_lines(path: Path) -> tuple[tuple[dict[str, Any], ...], int]:
    """JSON lines and how many could not be read."""
    if not path.is_file():
        return (), 0
    found, torn = [], 0
    for line in path.read_text("utf-8", errors="replace").splitlines():
        try:
            row = json.loads(line)
            found.append({**row, "step": float(row["step"])})
        except (ValueError, KeyError, TypeError):
            torn += bool(line.strip())
    return tuple(found), torn


def read_evaluation(folder: Path) -> tuple[tuple[Outcome, ...], tuple[TaskResult, ...]]:
    """Answers and results under `eval/`, if the run was evaluated."""
    if not any((folder / "eval").glob(SAMPLES)):
        return (), ()
    from goldimask.eval.summary import load_results

    samples, results = load_results(folder / "eval")
    return tuple(samples), tuple(results)


def read_sources(paths: Sequence[str]) -> tuple[list[RunData], dict[str, Any]]:
    """(runs, study results) as named; runs of equal names are told apart by path."""
    found: dict[str, Any] = {}
    folders = []
    for p in (p for p in paths if not p.endswith(".json")):
        inside = {} if (Path(p) / "recipe.yaml").is_file() else read_extras(Path(p))
        found |= inside  # the folder of a study
        folders += [] if inside else [p]
    names = [Path(p).resolve().name for p in folders]
    runs = [
        read_run(p, name if names.count(name) == 1 else str(Path(p)))
        for p, name in zip(folders, names, strict=True)
    ]
    files = {Path(p).stem: p for p in paths if p.endswith(".json")}
    for path in files.values():
        if not Path(path).is_file():
            raise GoldimaskError(f"{path}: no such file")
    extras = found | {stem: read_object(Path(path)) for stem, path in files.items()}
    for run in runs:
        extras |= {f"{run.name}-{stem}": value for stem, value in run.extras.items()}
    return runs, extras


def differences(runs: Sequence[RunData]) -> tuple[list[tuple[str, ...]], int]:
    """Recipe keys whose values differ (key, value per run), and how many are equal."""
    from goldimask.report.tables import flat

    recipes = [flat(expanded(r.recipe)) for r in runs]
    keys = list(dict.fromkeys(k for r in recipes for k in r))
    rows = [(k, *("–" if k not in r else str(r[k]) for r in recipes)) for k in keys]
    changed = [row for row in rows if len(set(row[1:])) > 1]
    return changed, len(rows) - len(changed)


def expanded(recipe: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as text, so that they compare and print like other values."""
    return {
        k: expanded(v) if isinstance(v, Mapping) else str(v) if isinstance(v, list | tuple) else v
        for k, v in recipe.items()
    }
