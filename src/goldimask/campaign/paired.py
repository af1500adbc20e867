"""Paired comparison of two rows: same problems, same seeds (paper-independent statistics).

    d_sp = score of the second row - score of the first, seed s, problem p     (NaN: not judged)
    difference = mean over tasks of the mean of d
    bootstrap: seeds and problems are both drawn with replacement (multinomial weights u_s, v_p, the
    same for both rows):  sum u_s v_p d_sp / sum u_s v_p,   percentile interval, 95 %

With the problems divided over the seeds every problem has one seed, and the same formula holds. Few
seeds make any interval over seeds rough: with S seeds the resampled variance over seeds is too
small by the factor (S - 1)/S on average. Over several backbones, u_s is the product of a weight of
the backbone and one of the seed: backbones, seeds and problems are all drawn.

Frontier: at the mean number of steps of the second row, what accuracy does the first row reach by
choosing its threshold (linear between measured ones)? Outside of the measured range there is no
answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream

DRAWS = 4000
Grid = dict[str, np.ndarray]  # task -> [seeds, problems], NaN where not judged


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


def draws(grid: Grid, count: int = DRAWS, seed: int = 0) -> Draws:
    """Weights for grids of this shape."""
    first = next(iter(grid.values()))
    return Draws(
        _multinomial(first.shape[0], count, seed, 0),
        {
            task: _multinomial(found.shape[1], count, seed, i + 1)
            for i, (task, found) in enumerate(grid.items())
        },
    )


def crossed(grid: Grid, backbones: int) -> Draws:
    """Weights for grids whose first axis is backbones times seeds."""
    whole = draws(grid)
    seeds = whole.seeds.shape[1] // backbones
    outer = _multinomial(backbones, DRAWS, 0, len(grid) + 1)
    inner = _multinomial(seeds, DRAWS, 0, 0)
    return Draws((outer[:, :, None] * inner[:, None]).reshape(DRAWS, -1), whole.problems)


def _multinomial(n: int, count: int, seed: int, salt: int) -> np.ndarray:
    rng = Keys(seed, salt).rng(n, Stream.STUDY)
    return rng.multinomial(n, np.full(n, 1.0 / n), size=count).astype(np.float64)


def mean(grid: Grid) -> float:
    """Mean over tasks of the mean over what was judged."""
    return float(np.mean([np.nanmean(found) for found in grid.values()]))


def drawn(found: np.ndarray, seeds: np.ndarray, problems: np.ndarray) -> np.ndarray:
    """Weighted means of one task. [draws]; NaN where a draw holds nothing judged"""
    there = ~np.isnan(found)
    top = ((seeds @ np.nan_to_num(found)) * problems).sum(1)
    bottom = ((seeds @ there.astype(np.float64)) * problems).sum(1)
    return np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0)


def drawn_mean(grid: Grid, weights: Draws) -> np.ndarray:
    """Mean over tasks, per draw. [draws]"""
    parts = [drawn(found, weights.seeds, weights.problems[t]) for t, found in grid.items()]
    return np.mean(parts, axis=0)


def interval(values: np.ndarray) -> tuple[float, float]:
    kept = values[np.isfinite(values)]
    if len(kept) < len(values) / 2:
        return float("nan"), float("nan")
    low, high = np.quantile(kept, (0.025, 0.975))
    return float(low), float(high)


def difference(first: Grid, second: Grid, weights: Draws) -> dict[str, Difference]:
    """Per task, and `average`."""
    check(first, second)
    apart = {task: second[task] - first[task] for task in first}
    out = {}
    for task, found in apart.items():
        between = interval(drawn(found, weights.seeds, weights.problems[task]))
        out[task] = Difference(float(np.nanmean(found)), *between)
    out["average"] = Difference(mean(apart), *interval(drawn_mean(apart, weights)))
    return out


def relative(first: Grid, second: Grid, weights: Draws) -> Difference:
    """mean(second) / mean(first) - 1, such as the change of decoding steps."""
    check(first, second)
    value = mean(second) / mean(first) - 1
    return Difference(
        value, *interval(drawn_mean(second, weights) / drawn_mean(first, weights) - 1)
    )


def frontier(
    first: Mapping[float, tuple[Grid, Grid]],
    second: tuple[Grid, Grid],
    weights: Draws,
) -> Difference | None:
    """Accuracy of the second row minus the first's at equal steps; grids are (correct, steps).

    None when the steps lie outside of what the first row reaches with its thresholds.
    """
    points = sorted((mean(s), mean(c)) for c, s in first.values())
    steps, accuracy = mean(second[1]), mean(second[0])
    if not points[0][0] <= steps <= points[-1][0]:
        return None
    value = accuracy - float(np.interp(steps, [x for x, _ in points], [y for _, y in points]))
    rivals_c = np.array([drawn_mean(c, weights) for c, _ in first.values()])  # [taus, draws]
    rivals_s = np.array([drawn_mean(s, weights) for _, s in first.values()])
    own_c, own_s = drawn_mean(second[0], weights), drawn_mean(second[1], weights)
    found = np.full(len(own_c), np.nan)
    for k in range(len(found)):
        order = np.argsort(rivals_s[:, k])
        x, y = rivals_s[order, k], rivals_c[order, k]
        if x[0] <= own_s[k] <= x[-1]:
            found[k] = own_c[k] - np.interp(own_s[k], x, y)
    return Difference(value, *interval(found))


def check(first: Grid, second: Grid) -> None:
    for task in first:
        if task not in second or not np.array_equal(np.isnan(first[task]), np.isnan(second[task])):
            raise GoldimaskError(
                f"a paired comparison needs the same problems and seeds in both rows ({task})"
            )


def grid_of(parts: Sequence[Mapping[str, Mapping[str, object]]], problems: int, field: str) -> Grid:
    """Records of one row at one threshold, one per seed -> arrays; a record may stop early."""
    out: Grid = {}
    for task in parts[0]:
        found = np.full((len(parts), problems), np.nan)
        for s, part in enumerate(parts):
            record = part[task]
            values = np.array([float(x) for x in record[field]])  # type: ignore[union-attr]
            places = np.arange(int(record["first"]), problems, int(record["every"]))  # type: ignore[call-overload]
            found[s, places[: len(values)]] = values
        out[task] = found
    return out
