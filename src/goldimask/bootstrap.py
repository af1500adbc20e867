"""Intervals by resampling: backbones, seeds and problems are all drawn, the same for both rows.

    x_sp        what row x scored with seed s on problem p, per task (`Grid`); NaN: not judged
    weights     u_s, v_p: how often seed s and problem p were drawn with replacement (multinomial);
                over several backbones, u_s is the product of a backbone's weight and a seed's
    drawn mean  sum u_s v_p x_sp / sum u_s v_p       interval: its percentiles over 4000 draws, 95 %

    difference  y - x;  steps: mean(y) / mean(x) - 1;  average: the mean over tasks
    frontier    at the mean number of steps of y, which accuracy does x reach by choosing its
                threshold (linear between measured ones)? Outside of what was measured: no answer

Where a problem gives partial credit out of `of_sp`, that takes the place of the 1 in the sum below.
For one answer per problem there is also McNemar's exact test: of the b + c problems that one of
the two alone has right, b went one way; two-sided binomial with p = 1/2 (scipy's).

Problems may be divided over the seeds: the same formula holds. Few seeds make any interval rough:
with S of them the resampled variance over seeds is too small by (S - 1)/S on average.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

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


@lru_cache(maxsize=16)
def weights(count: int, draws: int, seed: int = 0, salt: int = 0) -> np.ndarray:
    """How often each of `count` things is drawn; mean one. [draws, count] float64"""
    rng = Keys(seed, salt).rng(count, Stream.STUDY)
    drawn = rng.multinomial(count, np.full(count, 1.0 / count), size=draws).astype(np.float64)
    drawn.flags.writeable = False  # one array for all who ask
    return drawn


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


def drawn(
    found: np.ndarray, seeds: np.ndarray, problems: np.ndarray, of: np.ndarray | None = None
) -> np.ndarray:
    """Weighted means of one task. [draws]; NaN where a draw holds nothing judged"""
    below = (~np.isnan(found)).astype(np.float64) if of is None else np.nan_to_num(of)
    top = ((problems @ np.nan_to_num(found).T) * seeds).sum(1)
    bottom = ((problems @ below.T) * seeds).sum(1)
    return np.divide(top, bottom, out=np.full(len(top), np.nan), where=bottom > 0)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Percentile interval, 95 %, of the draws that could be evaluated; NaN if most could not."""
    kept = values[np.isfinite(values)]
    if not len(kept) or len(kept) < len(values) / 2:
        return float("nan"), float("nan")
    low, high = np.quantile(kept, (0.025, 0.975))
    return float(low), float(high)


# --- rows ----------------------------------------------------------------------------------------

Runs = Sequence[Sequence[Outcome]]  # of one row, one per training seed; of one length per task
Mean = tuple[float, np.ndarray]  # as measured, and of every draw


@dataclass(frozen=True)
class Scored:
    """A row: accuracy and mean steps per task."""

    share: dict[str, Mean]
    steps: dict[str, Mean]

    @property
    def accuracy(self) -> Mean:
        """The mean over tasks."""
        return over_tasks(self.share)

    @property
    def calls(self) -> Mean:
        return over_tasks(self.steps)


def over_tasks(found: Mapping[str, Mean]) -> Mean:
    values, draws = zip(*found.values(), strict=True)
    return float(np.mean(values)), np.mean(draws, axis=0)


def scored(runs: Runs, problems: Mapping[str, Sequence[str]], backbones: int = 1) -> Scored:
    """A row with its draws, which are the same for every row of the same problems and seeds."""
    hits, of, steps = (
        grid_of(runs, problems, value)
        for value in (lambda o: o.credit[0], lambda o: o.credit[1], lambda o: float(o.steps))
    )
    draws = draw(hits, backbones)
    share, calls = {}, {}
    for task in problems:
        place = (draws.seeds, draws.problems[task])
        value = float(np.nansum(hits[task]) / np.nansum(of[task]))
        share[task] = (value, drawn(hits[task], *place, of[task]))
        calls[task] = (float(np.nanmean(steps[task])), drawn(steps[task], *place))
    return Scored(share, calls)


def apart(first: Mean, second: Mean) -> Difference:
    return Difference(second[0] - first[0], *interval(second[1] - first[1]))


def frontier(first: Sequence[Scored], second: Scored) -> Difference | None:
    """Accuracy of the second row minus the first's at equal steps, with one of its thresholds.

    None when the steps lie outside of what the first row reaches, which needs two thresholds.
    """
    points = sorted((x.calls[0], x.accuracy[0]) for x in first)
    steps, accuracy = second.calls, second.accuracy
    if len(points) < 2 or not points[0][0] <= steps[0] <= points[-1][0]:
        return None
    value = accuracy[0] - float(np.interp(steps[0], [x for x, _ in points], [y for _, y in points]))
    x = np.array([row.calls[1] for row in first])  # [thresholds, draws]
    y = np.array([row.accuracy[1] for row in first])
    order = np.argsort(x, axis=0)
    x, y = np.take_along_axis(x, order, 0), np.take_along_axis(y, order, 0)
    k = np.clip((x <= steps[1]).sum(0), 1, len(x) - 1)[None]  # the threshold above, per draw
    (x0, x1), (y0, y1) = ([np.take_along_axis(v, at, 0)[0] for at in (k - 1, k)] for v in (x, y))
    share = np.divide(steps[1] - x0, x1 - x0, out=np.zeros_like(x0), where=x1 > x0)
    found = accuracy[1] - (y0 + share * (y1 - y0))
    found[(steps[1] < x[0]) | (steps[1] > x[-1])] = np.nan
    return Difference(value, *interval(found))


# --- two rows ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Paired:
    """Second minus first on the answers to one task that both gave."""

    n: int
    first: float
    second: float
    difference: float
    low: float  # of the difference, 95 %, bootstrap over problems and seeds
    high: float
    only_first: int  # answers that only the first had right
    only_second: int
    p: float | None  # exact McNemar; None where a problem was answered more than once
    unpaired: int  # answers that only one of them gave


@dataclass(frozen=True)
class Pairing:
    """Two rows on all the tasks that both answered."""

    tasks: dict[str, Paired]
    average: Difference  # of the accuracy
    steps: Difference  # relative change of the mean number of calls
    seeds: int  # pairs of runs


def paired(first: Runs, second: Runs, backbones: int = 1) -> Pairing:
    """Compare two rows run by run in order; of several backbones, those of each one after another.

    Each task is looked at with one length and one way of decoding.
    """
    lengths: dict[str, set[int]] = {}
    for o in (o for runs in (first, second) for run in runs for o in run):
        lengths.setdefault(o.task, set()).add(o.length)
    if any(len(found) > 1 for found in lengths.values()):
        raise GoldimaskError("a paired comparison looks at one length of each task")
    both = [
        {(r, o.task, o.item, o.seed): o for r, run in enumerate(runs) for o in run}
        for runs in (first, second)
    ]
    shared = [key for key in both[0] if key in both[1]]
    if not shared:
        raise GoldimaskError("a paired comparison needs answers to the same problems in both runs")
    count = 1 + max(key[0] for key in shared)
    kept = [[[found[k] for k in shared if k[0] == r] for r in range(count)] for found in both]
    problems = problems_of(*kept[0])
    one, two = (scored(runs, problems, backbones) for runs in kept)
    tasks = {}
    for task, items in problems.items():
        gap = apart(one.share[task], two.share[task])
        mine = [k for k in shared if k[1] == task]
        right = [(both[0][k].correct, both[1][k].correct) for k in mine]
        losses, gains = sum(x and not y for x, y in right), sum(y and not x for x, y in right)
        tasks[task] = Paired(
            n=len(mine),
            first=one.share[task][0],
            second=two.share[task][0],
            difference=gap.value,
            low=gap.low,
            high=gap.high,
            only_first=losses,
            only_second=gains,
            p=mcnemar(losses, gains) if len(mine) == len(items) else None,
            unpaired=sum(k[1] == task for k in both[0].keys() ^ both[1].keys()),
        )
    steps, before = two.calls, one.calls
    with np.errstate(divide="ignore", invalid="ignore"):  # answers without a call have no change
        ratio = np.divide(steps[0], before[0]) - 1, steps[1] / before[1] - 1
    change = Difference(float(ratio[0]), *interval(ratio[1]))
    return Pairing(tasks, apart(one.accuracy, two.accuracy), change, count)


def mcnemar(only_first: int, only_second: int) -> float:
    """Exact two-sided p-value from the two counts of discordant problems."""
    from scipy.stats import binomtest

    n = only_first + only_second
    return float(binomtest(only_first, n).pvalue) if n else 1.0
