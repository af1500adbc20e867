"""Intervals agree with what is known about the draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goldimask.bootstrap import (
    Difference,
    Paired,
    Runs,
    Scored,
    draw,
    drawn,
    frontier,
    grid_of,
    interval,
    mcnemar,
    paired,
    problems_of,
    scored,
)
from goldimask.errors import GoldimaskError
from unit.outcomes import outcome, outcomes


def one(first: Runs, second: Runs, backbones: int = 1) -> Paired:
    """The only task of a pair."""
    (found,) = paired(first, second, backbones).tasks.values()
    return found


def test_bootstrap_agrees_with_the_standard_error() -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.random(400) < share for share in (0.5, 0.6))
    found = paired([outcomes(a)], [outcomes(b)]).average
    error = float((b.astype(float) - a.astype(float)).std(ddof=1) / 20)
    assert found.value == pytest.approx(b.mean() - a.mean())
    assert (found.high - found.low) / (2 * 1.96 * error) == pytest.approx(1.0, abs=0.1)


def credits(seeds: list[float], problems: int = 50) -> list[list]:
    """A run for each share: every problem is worth as much."""
    return [[outcome(i, False, hits=x, of=1.0) for i in range(problems)] for x in seeds]


def test_seeds_widen_the_interval() -> None:
    """Differences that vary by seed alone are uncertain however many problems there are."""
    found = one(credits([0.0] * 4, 300), credits([0.0, 0.1, 0.2, 0.3], 300))
    assert found.difference == pytest.approx(0.15) and found.high - found.low > 0.15


def test_backbones_widen_the_interval() -> None:
    """Seeds of one backbone are drawn together."""
    first, second = credits([0.0] * 8), credits([0.0] * 4 + [0.4] * 4)
    plain, crossed = (one(first, second, b) for b in (1, 2))
    assert plain.difference == crossed.difference == pytest.approx(0.2)
    assert (crossed.low, crossed.high) == pytest.approx((0.0, 0.4))
    assert plain.high - plain.low < crossed.high - crossed.low
    with pytest.raises(GoldimaskError, match="same seeds"):
        draw({"t": np.zeros((8, 50))}, 3)


def test_average_and_steps_are_means_over_tasks() -> None:
    """Task a: 1/2 -> 1; task b: 1/4 -> 1/2; steps 20 and 10 -> 15 and 10 on average 15 -> 12.5."""
    first = [
        *outcomes([True, False], task="a", steps=20),
        *outcomes([True, False, False, False], task="b", steps=10),
    ]
    second = [
        *outcomes([True, True], task="a", steps=15),
        *outcomes([True, True, False, False], task="b", steps=10),
    ]
    found = paired([first], [second])
    assert found.average.value == pytest.approx((0.5 + 0.25) / 2)
    assert found.steps.value == pytest.approx(12.5 / 15 - 1) and found.seeds == 1
    assert (found.steps.low, found.steps.high) == pytest.approx((12.5 / 15 - 1,) * 2)
    assert [found.tasks[t].difference for t in "ab"] == pytest.approx([0.5, 0.25])


def test_frontier_interpolates_and_says_when_it_cannot() -> None:
    def flat(share: float, steps: int) -> Scored:
        run = [outcome(i, hits=share, of=1.0, steps=steps) for i in range(10)]
        return scored([run], problems_of(run))

    vanilla = [flat(0.4, 10), flat(0.6, 20)]
    found = frontier(vanilla, flat(0.55, 15))
    assert isinstance(found, Difference)
    assert (found.value, found.low, found.high) == pytest.approx((0.05, 0.05, 0.05))
    assert frontier(vanilla, flat(0.55, 9)) is None


def test_frontier_of_every_draw_is_an_interpolation() -> None:
    """The intervals are those of a loop over the draws."""
    rng = np.random.default_rng(1)

    def row(share: float, steps: int) -> Scored:
        right = rng.random(40) < share
        calls = rng.integers(steps - 4, steps + 5, 40)
        run = [outcome(i, bool(ok), steps=int(n)) for i, (ok, n) in enumerate(zip(right, calls))]  # noqa: B905
        return scored([run], problems_of(run))

    rivals, own = [row(0.3, 10), row(0.5, 14), row(0.7, 18)], row(0.6, 13)
    gaps = []
    for k in range(len(own.calls[1])):
        points = sorted((x.calls[1][k], x.accuracy[1][k]) for x in rivals)
        at, xs, ys = own.calls[1][k], [x for x, _ in points], [y for _, y in points]
        inside = xs[0] <= at <= xs[-1]
        gaps.append(own.accuracy[1][k] - np.interp(at, xs, ys) if inside else np.nan)
    found = frontier(rivals, own)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(interval(np.array(gaps)))


def test_grids_from_outcomes() -> None:
    """Runs and their sampling seeds are lines, problems columns in the order of the test set."""
    run, other = outcomes([True, False, True]), [outcome(2, False), outcome(0, seed=1)]
    problems = problems_of(run, other)
    assert problems == {"tiny-sort": ["p0", "p1", "p2"]}
    grid = grid_of([run, other], problems, lambda o: float(o.correct))["tiny-sort"]
    nan = np.nan
    np.testing.assert_equal(grid, [[1, 0, 1], [nan, nan, 0], [1, nan, nan]])
    with pytest.raises(GoldimaskError, match="two answers"):
        grid_of([[*run, outcome(0, tau=0.7)]], problems, lambda o: 1.0)


def test_what_cannot_be_evaluated_is_left_out() -> None:
    assert interval(np.array([np.nan, 1.0, 1.0])) == (1.0, 1.0)
    assert np.isnan(interval(np.array([np.nan, np.nan, 1.0]))).all()
    ones = np.ones((1, 2))
    assert np.isnan(drawn(np.full((2, 2), np.nan), ones, ones)).all()
    half = drawn(np.array([[2.0, 8.0]]), np.ones((1, 1)), ones, np.array([[8.0, 8.0]]))
    assert half == pytest.approx(10 / 16)


@pytest.mark.parametrize(("b", "c", "p"), [(0, 0, 1.0), (5, 0, 2 / 32), (0, 5, 2 / 32), (1, 1, 1)])
def test_mcnemar(b, c, p):
    assert mcnemar(b, c) == pytest.approx(p, abs=1e-12)


def test_paired_comparison():
    rng = np.random.default_rng(0)
    a = rng.random(400) < 0.5
    b = a | (rng.random(400) < 0.2)  # never worse
    first, second = outcomes(a), outcomes(b)
    found = one([first], [second])
    gained = int((b & ~a).sum())
    assert (found.only_first, found.only_second, found.unpaired) == (0, gained, 0)
    assert found.difference == pytest.approx(gained / 400)
    assert 0 < found.low < found.difference < found.high
    expected = scipy_stats.bootstrap(
        (b.astype(float) - a.astype(float),), np.mean, method="percentile", rng=rng
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.01)
    assert one([first], [second]) == found  # the same draws again
    same = one([first], [first])
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1.0)


def test_only_answers_of_both_are_paired():
    first, second = outcomes([True] * 4), [outcome(i, i > 2) for i in (5, 3, 2, 1)]
    found = one([first], [second])  # the order on disk does not matter
    assert (found.n, found.unpaired, found.difference) == (3, 2, pytest.approx(-2 / 3))
    with pytest.raises(GoldimaskError, match="same problems"):
        paired([first], [outcomes([True], seed=7)])
    assert list(paired([first], [[*second, outcome(0, task="other")]]).tasks) == ["tiny-sort"]
    with pytest.raises(GoldimaskError, match="one length of each task"):
        paired([first], [[*second, outcome(0, length=9)]])


def test_paired_pools_partial_credit():
    first = [outcome(0, False, hits=2, of=8), outcome(1, hits=4, of=4)]
    second = [outcome(0, False, hits=4, of=8), outcome(1, hits=4, of=4)]
    assert one([first], [second]).difference == pytest.approx(2 / 12)


def test_sampling_seeds_are_drawn_too():
    first = [o for s in range(3) for o in outcomes([True, False] * 20, seed=s)]
    second = [o for s in range(3) for o in outcomes([s > 0, False] * 20, seed=s)]
    found = one([first], [second])
    assert found.n == 120 and found.difference == pytest.approx(-1 / 6)
    assert found.low < -1 / 6 < found.high and found.p is None  # answers are not independent


def test_training_seeds_are_paired_in_order():
    first = [outcomes([True, False]), outcomes([True, True]), outcomes([True, True])]
    found = one(first, [outcomes([True, True]), outcomes([False, True])])
    assert (found.n, found.unpaired, found.difference) == (4, 2, 0.0)
    assert (found.only_first, found.only_second, found.p) == (1, 1, None)
    assert one(first[:1], [outcomes([True, True])]).p == 1.0
