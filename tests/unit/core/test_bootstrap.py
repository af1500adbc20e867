"""Intervals agree with what is known about the draws."""

from __future__ import annotations

import numpy as np
import pytest

from goldimask.bootstrap import (
    Difference,
    Grid,
    difference,
    draw,
    drawn,
    frontier,
    grid_of,
    interval,
    mean,
    problems_of,
    relative,
)
from goldimask.errors import GoldimaskError
from unit.core.outcomes import outcome, outcomes


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
