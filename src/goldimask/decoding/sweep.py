"""Accuracy against decoding steps (paper, section "Accuracy and Parallel-Decoding Cost").

    for run, task, length, tau:   (accuracy, mean steps)   of threshold decoding at full length

A step reduction is measured at each tau against the *most accurate* baseline there:

    reduction = 1 - steps / steps(best baseline),   accuracy difference in points

It compares iterations, not seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from goldimask.errors import GoldimaskError

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


class Evaluate(Protocol):
    """-> (accuracy, mean steps, number of examples, length used)."""

    def __call__(
        self, name: str, model: Any, task: str, length: int | None, tau: float
    ) -> tuple[float, float, int, int]: ...


def sweep(
    runs: Sequence[tuple[str, Callable[[], Any], bool]],
    tasks: Sequence[str],
    evaluate: Evaluate,
    taus: Sequence[float] = TAUS,
    lengths: Sequence[int | None] = (None,),
    advance: Callable[[str], None] = lambda note: None,
) -> list[Point]:
    """Every setting of every run; `runs` holds (name, loader, is a baseline)."""
    names = [name for name, _, _ in runs]
    if len(set(names)) < len(names):
        raise GoldimaskError(f"sweep: two runs have the same name ({', '.join(names)}); rename one")
    points = []
    for name, load, baseline in runs:
        model = load()
        for task in tasks:
            for length in lengths:
                for tau in sorted(taus):
                    advance(f"{name} {task} tau {tau}")
                    accuracy, steps, n, used = evaluate(name, model, task, length, tau)
                    points.append(Point(name, task, used, tau, accuracy, steps, n, baseline))
    return points


def reductions(points: Iterable[Point]) -> list[Reduction]:
    """Candidates against the most accurate baseline per task, length and threshold."""
    points = list(points)
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


def evaluator(
    block: int,
    limit: int | None,
    batch_size: int,
    out: Path | None,
    protocol: str = "fixed",
    data: Any = None,
) -> Evaluate:
    """Through `goldimask.eval`; with `out`, finished samples are found again."""
    from goldimask.eval.run import evaluate

    def run(
        name: str, model: Any, task: str, length: int | None, tau: float
    ) -> tuple[float, float, int, int]:
        found = evaluate(
            model,
            [task],
            lengths=None if length is None else [length],
            seeds=[0],  # greedy: one pass
            decoder="threshold",
            options={"tau": tau, "block": block},
            limit=limit,
            protocol=protocol,
            data=data,
            out=None if out is None else out / "samples" / name.replace("/", "_"),
            batch_size=batch_size,
            model_name=name,
        )
        result = found.results[0]
        return result.accuracy, result.steps, result.n, result.length

    return run


def is_baseline(path: str) -> bool:
    """A run whose recipe does not name a GoldiMask method; a plain model is one too."""
    file = Path(path).expanduser() / "recipe.yaml"
    if not file.is_file():
        return True
    import yaml

    recipe = yaml.safe_load(file.read_text("utf-8"))
    method = recipe.get("method") if isinstance(recipe, dict) else None
    preset = method.get("preset", "") if isinstance(method, dict) else method
    return not str(preset).startswith("goldimask")


def to_json(points: Sequence[Point]) -> dict[str, Any]:
    return {
        "points": [asdict(p) for p in points],
        "reductions": [asdict(r) for r in reductions(points)],
    }
