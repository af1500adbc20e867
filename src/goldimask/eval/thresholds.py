"""Accuracy against decoding steps (paper, section "Accuracy and Parallel-Decoding Cost").

    for run, task, length, tau:   (accuracy, mean steps)   of the answers decoded at that threshold

A step reduction is measured at each tau against the *most accurate* baseline there:

    reduction = 1 - steps / steps(best baseline),   accuracy difference in points

It compares iterations, not seconds. Answers come from evaluations with several thresholds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from goldimask.errors import GoldimaskError
from goldimask.eval.results import pooled
from goldimask.records import RECIPE, Decoding, Outcome, open_run

TAUS = (0.7, 0.8, 0.9, 0.95)


@dataclass(frozen=True)
class Point:
    """One run on one task at one length and threshold."""

    run: str
    task: str
    length: int
    tau: float
    accuracy: float  # share
    steps: float  # mean model calls per example
    n: int
    baseline: bool


@dataclass(frozen=True)
class Reduction:
    """A run against the most accurate baseline at the same threshold."""

    run: str
    task: str
    length: int
    tau: float
    against: str
    steps: float
    steps_baseline: float
    reduction: float  # share of the baseline's steps that is saved
    accuracy_difference: float  # in points
    n: int


def sweep_points(
    runs: Mapping[str, Iterable[Outcome]], baselines: Collection[str] = ()
) -> list[Point]:
    """A point per run, task, length and threshold; answers decoded without one are left out.

    A run decoded at the same threshold in several other ways (blocks, temperatures) counts as
    several, named `run, decoding`.
    """
    if unknown := [name for name in baselines if name not in runs]:
        raise GoldimaskError(f"baselines: {', '.join(unknown)} is not among the runs")
    points = []
    for run, outcomes in runs.items():
        groups: dict[tuple[str, int, str, float], list[Outcome]] = {}
        for o in outcomes:
            if (tau := o.decoding.options.get("tau")) is not None:
                key = (o.task, o.length, otherwise(o.decoding), float(tau))
                groups.setdefault(key, []).append(o)
        several = len({way for _, _, way, _ in groups}) > 1
        for (task, length, way, tau), group in sorted(groups.items(), key=lambda g: g[0][2:]):
            hits, of = pooled(group)
            points.append(
                Point(
                    run=f"{run}, {way}" if several else run,
                    task=task,
                    length=length,
                    tau=tau,
                    accuracy=hits / of,
                    steps=sum(o.steps for o in group) / len(group),
                    n=len(group),
                    baseline=run in baselines,
                )
            )
    return points


def otherwise(decoding: Decoding) -> str:
    """What besides the threshold was set."""
    options = {k: v for k, v in decoding.options.items() if k != "tau"}
    return decoding.model_copy(update={"options": options}).label


def reductions(points: Sequence[Point]) -> list[Reduction]:
    """Candidates against the most accurate baseline per task, length and threshold."""
    out = []
    for p in points:
        rivals = [
            q
            for q in points
            if q.baseline and (q.task, q.length, q.tau) == (p.task, p.length, p.tau)
        ]
        if p.baseline or not rivals:
            continue
        best = max(rivals, key=lambda q: (q.accuracy, -q.steps))  # a tie goes to the cheaper one
        out.append(
            Reduction(
                run=p.run,
                task=p.task,
                length=p.length,
                tau=p.tau,
                against=best.run,
                steps=p.steps,
                steps_baseline=best.steps,
                reduction=1 - p.steps / best.steps if best.steps else 0.0,
                accuracy_difference=100 * (p.accuracy - best.accuracy),
                n=min(p.n, best.n),
            )
        )
    return out


def is_baseline(path: str | Path) -> bool:
    """A run whose recipe does not name a GoldiMask method; a plain model is one too."""
    folder = Path(path).expanduser()
    return not (folder / RECIPE).is_file() or not open_run(folder).method.startswith("goldimask")
