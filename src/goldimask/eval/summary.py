"""From samples to the figures of a results table: which length counts, and how two runs compare.

The published tables take, per benchmark, the best of the lengths 128, 256 and 512. That choice is
made on the test data and flatters every method; the fixed-length table beside it is not selected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.eval.records import Sample, read_samples
from goldimask.eval.run import TaskResult, aggregate
from goldimask.eval.stats import Paired, paired
from goldimask.eval.tasks import get_task, known_tasks

SELECTED = "best length per task, selected on the test data"
FIXED = "fixed length per task, not selected"


def mean_by_length(results: Iterable[TaskResult]) -> dict[str, dict[int, float]]:
    """Accuracy per task and length, the mean over sampling seeds."""
    values: dict[str, dict[int, list[float]]] = {}
    for r in results:
        values.setdefault(r.task, {}).setdefault(r.length, []).append(r.accuracy)
    return {t: {n: sum(v) / len(v) for n, v in rows.items()} for t, rows in values.items()}


def best_lengths(results: Iterable[TaskResult]) -> dict[str, tuple[int, float]]:
    """Per task the length with the highest accuracy, the shortest of equals. Selected on test."""
    return {
        task: max(rows.items(), key=lambda x: (x[1], -x[0]))
        for task, rows in mean_by_length(results).items()
    }


def fixed_lengths(results: Iterable[TaskResult]) -> dict[str, tuple[int, float]]:
    """Per task its own fixed length (512, 512, 128, 128, 256 in the paper), where it was run."""
    chosen = {}
    for task, rows in mean_by_length(results).items():
        length = own_length(task) if len(rows) > 1 else next(iter(rows))
        if length in rows:
            chosen[task] = (length, rows[length])
    return chosen


def own_length(task: str) -> int:
    """The fixed length of a task by its name in sample files."""
    name = task.removesuffix("-standard")
    return get_task(name).length if name in known_tasks() else 0


def folder_of(path: Path | str) -> Path:
    """An evaluation folder, or the `eval` folder of a run."""
    path = Path(path)
    for folder in (path, path / "eval"):
        if any(folder.glob("samples-*.jsonl")):
            return folder
    raise GoldimaskError(f"{path}: no samples-*.jsonl here or in eval/; run `goldimask eval` first")


def load_results(path: Path | str) -> tuple[list[Sample], tuple[TaskResult, ...]]:
    """Samples and results of an evaluation folder; each sample counts once."""
    samples = list(read_samples(folder_of(path)).values())
    ways = sorted({s.decoding for s in samples})
    if len(ways) > 1:
        raise GoldimaskError(
            f"{path}: holds samples of {len(ways)} ways of decoding ({', '.join(ways)}); "
            "evaluate each into a folder of its own"
        )
    return samples, aggregate(samples)


def chosen_scores(results: Sequence[TaskResult], length: str) -> dict[str, float]:
    """Per task the accuracy at the `best` length, its `fixed` one, or a given number."""
    if length == "best":
        return {t: x[1] for t, x in best_lengths(results).items()}
    if length == "fixed":
        return {t: x[1] for t, x in fixed_lengths(results).items()}
    if not length.isdigit():
        raise GoldimaskError(f"--length: expected best, fixed or a number, got '{length}'")
    by_length = mean_by_length(results)
    return {t: rows[int(length)] for t, rows in by_length.items() if int(length) in rows}


def compare_pair(
    first: Sequence[Sample], second: Sequence[Sample], task: str, length: int
) -> tuple[Paired, int]:
    """Paired comparison on the problems both hold, and how many only one of them holds."""
    runs = [_by_problem(s, task, length) for s in (first, second)]
    shared = [k for k in runs[0] if k in runs[1]]
    if not shared:
        raise GoldimaskError(f"{task}, length {length}: the two runs share no problem")
    lists = [[_entry(run[k]) for k in shared] for run in runs]
    alone = len(set(runs[0]) ^ set(runs[1]))
    return paired(lists[0], lists[1]), alone


def _by_problem(samples: Sequence[Sample], task: str, length: int) -> Mapping[Any, Sample]:
    return {(s.id, s.seed): s for s in samples if s.task == task and s.length == length}


def _entry(sample: Sample) -> tuple[float, float, bool]:
    if sample.of:
        return sample.hits, sample.of, sample.correct
    return float(sample.correct), 1.0, sample.correct
