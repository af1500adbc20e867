"""Intervals agree with what is known about the draws."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goldimask.bootstrap import (
    Difference,
    Grid,
    difference,
    draw,
    drawn,
    frontier,
    grid_of,
    interval,
    mcnemar,
    mean,
    paired,
    problems_of,
    relative,
)
from goldimask.errors import GoldimaskError
from unit.outcomes import outcome, outcomes


def test_bootstrap_agrees_with_the_standard_error() -> None:
    rng = np.random.default_rng(0)
    one = {"t": (rng.random((1, 400)) < 0.5).astype(float)}
    two = {"t": (rng.random((1, 400)) < 0.6).astype(float)}
    found = difference(one, two, draw(one))["average"]
    error = float((two["t"] - one["t"]).std(ddof=1) / 20)
    assert found.value == pytest.approx(mean(two) - mean(one))
    assert (found.high - found.low) / (2 * 1.96 * error) == pytest.approx(1.0, abs=0.1)


def test_seeds_widen_the_interval() -> None:
    """Differences that vary by seed alone are uncertain however many problems there are."""
    one = {"t": np.zeros((4, 300))}
    two = {"t": np.repeat(np.array([[0.0], [0.1], [0.2], [0.3]]), 300, 1)}
    found = difference(one, two, draw(one))["t"]
    assert found.value == pytest.approx(0.15) and found.high - found.low > 0.15


def test_backbones_widen_the_interval() -> None:
    """Seeds of one backbone are drawn together."""
    one, two = {"t": np.zeros((8, 50))}, {"t": np.repeat([[0.0], [0.4]], 4, 0) * np.ones(50)}
    plain, crossed = (difference(one, two, draw(one, b))["t"] for b in (1, 2))
    assert plain.value == crossed.value == pytest.approx(0.2)
    assert (crossed.low, crossed.high) == pytest.approx((0.0, 0.4))
    assert plain.high - plain.low < crossed.high - crossed.low
    with pytest.raises(GoldimaskError, match="same seeds"):
        draw(one, 3)


def test_frontier_interpolates_and_says_when_it_cannot() -> None:
    def flat(value: float) -> Grid:
        return {"t": np.full((1, 10), value)}

    vanilla = {0.7: (flat(0.4), flat(10.0)), 0.9: (flat(0.6), flat(20.0))}
    weights = draw(flat(0.0), count=50)
    found = frontier(vanilla, (flat(0.55), flat(15.0)), weights)
    assert isinstance(found, Difference)
    assert (found.value, found.low, found.high) == pytest.approx((0.05, 0.05, 0.05))
    assert frontier(vanilla, (flat(0.55), flat(9.0)), weights) is None
    steps = relative(flat(20.0), flat(15.0), weights)
    assert (steps.value, steps.low, steps.high) == pytest.approx((-0.25, -0.25, -0.25))


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


def test_unequal_problems_are_refused() -> None:
    a, b = {"t": np.array([[1.0, np.nan]])}, {"t": np.array([[np.nan, 1.0]])}
    with pytest.raises(GoldimaskError, match="same problems"):
        difference(a, b, draw(a))


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
    found = paired([first], [second])
    gained = int((b & ~a).sum())
    assert (found.only_first, found.only_second, found.unpaired) == (0, gained, 0)
    assert found.difference == pytest.approx(gained / 400)
    assert 0 < found.low < found.difference < found.high
    expected = scipy_stats.bootstrap(
        (b.astype(float) - a.astype(float),), np.mean, method="percentile", rng=rng
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.01)
    assert paired([first], [second]) == found  # the same draws again
    same = paired([first], [first])
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1.0)


def test_only_answers_of_both_are_paired():
    first, second = outcomes([True] * 4), [outcome(i, i > 2) for i in (5, 3, 2, 1)]
    found = paired([first], [second])  # the order on disk does not matter
    assert (found.n, found.unpaired, found.difference) == (3, 2, pytest.approx(-2 / 3))
    with pytest.raises(GoldimaskError, match="same problems"):
        paired([first], [outcomes([True], seed=7)])
    with pytest.raises(GoldimaskError, match="one task"):
        paired([first], [[*second, outcome(0, task="other")]])
    with pytest.raises(GoldimaskError, match="one task and length"):
        paired([first], [[*second, outcome(0, length=9)]])


def test_paired_pools_partial_credit():
    first = [outcome(0, False, hits=2, of=8), outcome(1, hits=4, of=4)]
    second = [outcome(0, False, hits=4, of=8), outcome(1, hits=4, of=4)]
    assert paired([first], [second]).difference == pytest.approx(2 / 12)


def test_sampling_seeds_are_drawn_too():
    first = [o for s in range(3) for o in outcomes([True, False] * 20, seed=s)]
    second = [o for s in range(3) for o in outcomes([s > 0, False] * 20, seed=s)]
    found = paired([first], [second])
    assert found.n == 120 and found.difference == pytest.approx(-1 / 6)
    assert found.low < -1 / 6 < found.high and found.p is None  # answers are not independent


def test_training_seeds_are_paired_in_order():
    first = [outcomes([True, False]), outcomes([True, True]), outcomes([True, True])]
    found = paired(first, [outcomes([True, True]), outcomes([False, True])])
    assert (found.n, found.unpaired, found.difference) == (4, 2, 0.0)
    assert (found.only_first, found.only_second, found.p) == (1, 1, None)
    assert paired(first[:1], [outcomes([True, True])]).p == 1.0
