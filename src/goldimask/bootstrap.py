"""Intervals by resampling: backbones, seeds and problems are all drawn, the same for both rows.

    x_sp        what row x scored with seed s on problem p, per task (`Grid`); NaN: not judged
    weights     u_s, v_p: how often seed s and problem p were drawn with replacement (multinomial);
                over several backbones, u_s is the product of a backbone's weight and a seed's
    drawn mean  sum u_s v_p x_sp / sum u_s v_p       interval: its percentiles over 4000 draws, 95 %

    difference  y - x;  relative: mean(y) / mean(x) - 1;  average: the mean over tasks
    frontier    at the mean number of steps of y, which accuracy does x reach by choosing its
                threshold (linear between measured ones)? Outside of what was measured: no answer

Where a problem gives partial credit out of `of_sp`, that takes the place of the 1 in the sum below.
Problems may be divided over the seeds: the same formula holds. Few seeds make any interval rough:
with S of them the resampled variance over seeds is too small by (S - 1)/S on average.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.records import Outcome

DRAWS = 4000
Grid = dict[str, np.ndarray]  # task -> [seeds, problems]; of several backbones, seeds of each


@dataclass(frozen=True)
class Difference:
    """Second minus first, with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def above(self) -> bool:
        return self.low > 0

    @property
    def below(self) -> bool:
        return self.high < 0


@dataclass(frozen=True)
class Draws:
    """Weights of the bootstrap, shared by everything that is compared."""

    seeds: np.ndarray  # [draws, S]
    problems: dict[str, np.ndarray]  # task -> [draws, P]


def problems_of(*rows: Sequence[Outcome]) -> dict[str, list[str]]:
    """Per task every problem that any row answered, in the order of the test set."""
    found: dict[str, dict[str, int]] = {}
    for row in rows:
        for o in row:
            found.setdefault(o.task, {})[o.item] = o.index
    return {task: sorted(items, key=lambda i: (items[i], i)) for task, items in found.items()}


def grid_of(
    runs: Sequence[Sequence[Outcome]],
    problems: Mapping[str, Sequence[str]],
    score: Callable[[Outcome], float],
) -> Grid:
    """Outcomes of one row as arrays; a line for every run and sampling seed, in their order.

    The outcomes are of one length and way of decoding per task; a second one is an error.
    """
    lines = [(r, seed) for r, run in enumerate(runs) for seed in sorted({o.seed for o in run})]
    place = {line: s for s, line in enumerate(lines)}
    out = {task: np.full((len(lines), len(items)), np.nan) for task, items in problems.items()}
    columns = {task: {item: p for p, item in enumerate(items)} for task, items in problems.items()}
    for r, run in enumerate(runs):
        for o in run:
            at = (place[r, o.seed], columns[o.task][o.item])
            if not np.isnan(out[o.task][at]):
                raise GoldimaskError(
                    f"{o.task}, problem {o.item}, seed {o.seed}: two answers; choose one length "
                    "and one way of decoding before comparing"
                )
            out[o.task][at] = score(o)
    return out


def weights(count: int, draws: int, seed: int = 0, salt: int = 0) -> np.ndarray:
    """How often each of `count` things is drawn; mean one. [draws, count] float64"""
    rng = Keys(seed, salt).rng(count, Stream.STUDY)
    return rng.multinomial(count, np.full(count, 1.0 / count), size=draws).astype(np.float64)


def draw(grid: Grid, backbones: int = 1, count: int = DRAWS, seed: int = 0) -> Draws:
    """Weights for grids of this shape, whose first axis is backbones times seeds."""
    lines = next(iter(grid.values())).shape[0]
    if lines % backbones:
        raise GoldimaskError("a bootstrap over backbones needs the same seeds for each of them")
    outer = weights(backbones, count, seed, len(grid) + 1)
    inner = weights(lines // backbones, count, seed, 0)
    return Draws(
        (outer[:, :, None] * inner[:, None]).reshape(count, -1),
        {
            task: weights(found.shape[1], count, seed, i + 1)
            for i, (task, found) in enumerate(grid.items())
        },
    )


def mean(grid: Grid) -> float:
    """Mean over tasks of the mean over what was judged."""
    return float(np.mean([np.nanmean(found) for found in grid.values()]))


def drawn(
    found: np.ndarray, seeds: np.ndarray, problems: np.ndarray, of: np.ndarray | None = None
) -> np.ndarray:
    """Weighted means of one task. [draws]; NaN where a draw holds nothing judged"""
    below = (~np.isnan(found)).astype(np.float64) if of is None else np.nan_to_num(of)
    top = ((seeds @ np.nan_to_num(found)) * problems).sum(1)
    bottom = ((seeds @ below) * problems).sum(1)
    return np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0)


def drawn_mean(grid: Grid, draws: Draws) -> np.ndarray:
    """Mean over tasks, per draw. [draws]"""
    parts = [drawn(found, draws.seeds, draws.problems[t]) for t, found in grid.items()]
    return np.mean(parts, axis=0)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Percentile interval, 95 %, of the draws that could be evaluated; NaN if most could not."""
    kept = values[np.isfinite(values)]
    if not len(kept) or len(kept) < len(values) / 2:
        return float("nan"), float("nan")
    low, high = np.quantile(kept, (0.025, 0.975))
    return float(low), float(high)


def difference(first: Grid, second: Grid, draws: Draws) -> dict[str, Difference]:
    """Per task, and `average`."""
    check_pairs(first, second)
    apart = {task: second[task] - first[task] for task in first}
    out = {}
    for task, found in apart.items():
        between = interval(drawn(found, draws.seeds, draws.problems[task]))
        out[task] = Difference(float(np.nanmean(found)), *between)
    out["average"] = Difference(mean(apart), *interval(drawn_mean(apart, draws)))
    return out


def relative(first: Grid, second: Grid, draws: Draws) -> Difference:
    """mean(second) / mean(first) - 1, such as the change of decoding steps."""
    check_pairs(first, second)
    value = mean(second) / mean(first) - 1
    return Difference(value, *interval(drawn_mean(second, draws) / drawn_mean(first, draws) - 1))


def frontier(
    first: Mapping[float, tuple[Grid, Grid]], second: tuple[Grid, Grid], draws: Draws
) -> Difference | None:
    """Accuracy of the second row minus the first's at equal steps; grids are (correct, steps).

    None when the steps lie outside of what the first row reaches with its thresholds.
    """
    points = sorted((mean(s), mean(c)) for c, s in first.values())
    steps, accuracy = mean(second[1]), mean(second[0])
    if not points[0][0] <= steps <= points[-1][0]:
        return None
    value = accuracy - float(np.interp(steps, [x for x, _ in points], [y for _, y in points]))
    rivals_c = np.array([drawn_mean(c, draws) for c, _ in first.values()])  # [thresholds, draws]
    rivals_s = np.array([drawn_mean(s, draws) for _, s in first.values()])
    own_c, own_s = drawn_mean(second[0], draws), drawn_mean(second[1], draws)
    found = np.full(len(own_c), np.nan)
    for k in range(len(found)):
        order = np.argsort(rivals_s[:, k])
        x, y = rivals_s[order, k], rivals_c[order, k]
        if x[0] <= own_s[k] <= x[-1]:
            found[k] = own_c[k] - np.interp(own_s[k], x, y)
    return Difference(value, *interval(found))


def check_pairs(first: Grid, second: Grid) -> None:
    """Refuse rows that were not judged on the same problems with the same seeds."""
    for task in first:
        if task not in second or not np.array_equal(np.isnan(first[task]), np.isnan(second[task])):
            raise GoldimaskError(
                f"a paired comparison needs the same problems and seeds in both rows ({task})"
            )
