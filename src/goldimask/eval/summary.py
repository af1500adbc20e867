"""From answers to the figures of a results table: which length counts, and how two runs compare.

The published tables take, per benchmark, the best of the lengths 128, 256 and 512. That choice is
made on the test data and flatters every method; the fixed-length table beside it is not selected.
A task that a run decoded in several ways counts as several, named `task, decoding`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from goldimask.errors import GoldimaskError
from goldimask.eval.results import TaskResult, aggregate
from goldimask.eval.stats import Paired, paired
from goldimask.eval.tasks import get_task, known_tasks
from goldimask.records import Decoding, Outcome, read_evaluation

SELECTED = "best length per task, selected on the test data"
FIXED = "fixed length per task, not selected"


def shown_names(results: Iterable[TaskResult]) -> dict[tuple[str, Decoding], str]:
    """The name of each task, with its decoding where the task was decoded in several ways."""
    keys = dict.fromkeys((r.task, r.decoding) for r in results)
    ways = Counter(task for task, _ in keys)
    return {(t, d): f"{t}, {d.label}" if ways[t] > 1 else t for t, d in keys}


def mean_by_length(results: Iterable[TaskResult]) -> dict[str, dict[int, float]]:
    """Accuracy per task (and decoding) and length, the mean over sampling seeds."""
    results = list(results)
    names = shown_names(results)
    values: dict[str, dict[int, list[float]]] = {}
    for r in results:
        rows = values.setdefault(names[r.task, r.decoding], {})
        rows.setdefault(r.length, []).append(r.accuracy)
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
    """The fixed length of a task by its name in sample files or tables."""
    name = task.split(",")[0].removesuffix("-standard")
    return get_task(name).length if name in known_tasks() else 0


def load_results(path: Path | str) -> tuple[list[Outcome], tuple[TaskResult, ...]]:
    """Answers and results of an evaluation folder or a run; each answer counts once."""
    outcomes = read_evaluation(path)[1]
    return outcomes, aggregate(outcomes)


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
    first: Sequence[Outcome], second: Sequence[Outcome], task: str, length: int
) -> tuple[Paired, int]:
    """Paired comparison on the problems both hold, and how many only one of them holds."""
    runs = [_by_problem(s, task, length) for s in (first, second)]
    shared = [k for k in runs[0] if k in runs[1]]
    if not shared:
        raise GoldimaskError(f"{task}, length {length}: the two runs share no problem")
    lists = [[(*run[k].credit, run[k].correct) for k in shared] for run in runs]
    alone = len(set(runs[0]) ^ set(runs[1]))
    return paired(lists[0], lists[1]), alone


def _by_problem(
    outcomes: Sequence[Outcome], task: str, length: int
) -> dict[tuple[str, int], Outcome]:
    """Answers by problem and seed; `task` may name a decoding too."""
    name, _, label = task.partition(", ")
    mine = [o for o in outcomes if (o.task, o.length) == (name, length)]
    mine = [o for o in mine if not label or o.decoding.label == label]
    if len({o.decoding for o in mine}) > 1:
        raise GoldimaskError(f"{task}, length {length}: decoded in several ways; name one of them")
    return {(o.item, o.seed): o for o in mine}
