"""The reveal objective: the appendix "Properties of the reveal objective", by property."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldimask.errors import GoldimaskError
from goldimask.objective import Priority, Support, marginals, priority_curve, value

CHECK = settings(max_examples=120, deadline=None)
supports = st.one_of(
    st.builds(Support, st.just("saturating"), st.floats(1e-3, 5.0)), st.just(Support("linear"))
)


def instance(seed: int, n: int):
    rng = np.random.default_rng(seed)
    attention = rng.random((n, n)) * (rng.random((n, n)) < 0.7)
    np.fill_diagonal(attention, 0.0)
    return rng, attention, rng.random(n) * (rng.random(n) < 0.8)


@CHECK
@given(st.integers(0, 10**6), st.integers(1, 9), supports)
def test_marginals_are_differences_of_the_value(seed, n, support):
    rng, attention, priority = instance(seed, n)
    reveal = rng.random(n) < 0.4
    delta = marginals(attention, priority, reveal, support)
    before = value(attention, priority, reveal, support)
    for x in range(n):
        if reveal[x]:
            assert delta[x] == -np.inf
            continue
        after = reveal.copy()
        after[x] = True
        expected = value(attention, priority, after, support) - before
        assert delta[x] == pytest.approx(expected, abs=1e-12)


@CHECK
@given(st.integers(0, 10**6), st.integers(2, 9), supports)
def test_submodular_nonnegative_and_zero_at_both_ends(seed, n, support):
    rng, attention, priority = instance(seed, n)
    small = rng.random(n) < 0.3
    large = small | (rng.random(n) < 0.4)
    outside = ~large
    less = marginals(attention, priority, large, support)[outside]
    more = marginals(attention, priority, small, support)[outside]
    assert (more >= less - 1e-12).all()
    assert value(attention, priority, small, support) >= 0.0
    assert value(attention, priority, np.zeros(n, bool), support) == 0.0
    assert value(attention, priority, np.ones(n, bool), support) == 0.0


def test_value_by_hand_and_the_diagonal_is_ignored():
    attention = np.array([[9.0, 0.2, 0.1], [0.3, 9.0, 0.0], [0.05, 0.15, 9.0]])
    priority = np.array([1.0, 2.0, 4.0])
    reveal = np.array([False, True, False])
    expected = 1.0 * 0.2 / 0.25 + 4.0 * 0.15 / 0.2
    assert value(attention, priority, reveal, Support()) == pytest.approx(expected)
    assert value(attention, priority, reveal, Support("linear")) == pytest.approx(0.2 + 0.6)


def test_not_monotone():
    attention = np.array([[0.0, 0.5], [0.5, 0.0]])
    one = marginals(attention, [1.0, 1.0], [True, False], Support())
    assert one[1] < 0


@given(st.floats(0.0, 1.0), st.floats(0.1, 4.0), st.floats(0.1, 4.0))
@CHECK
def test_priority_peaks_where_it_says(p, a, b):
    curve = Priority(a, b)
    assert curve(p) <= curve(curve.peak) * (1 + 1e-12)
    assert priority_curve(str(Priority(1, 3))) == Priority(1, 3)
    assert Priority(1, 3).peak == 0.25


@pytest.mark.parametrize(
    "spec", ["p(1-p)^3", "p(1-p)^2", "p(1-p)", "1-p", "p^2(1-p)", "(1-p)^2", "p"]
)
def test_curves_read_as_written(spec):
    p = np.linspace(0.0, 1.0, 11)
    expected = eval_curve(spec, p)
    assert np.allclose(priority_curve(spec)(p), expected)
    assert str(priority_curve(spec)) == spec


def eval_curve(spec: str, p: np.ndarray) -> np.ndarray:
    known = {
        "p(1-p)^3": p * (1 - p) ** 3,
        "p(1-p)^2": p * (1 - p) ** 2,
        "p(1-p)": p * (1 - p),
        "1-p": 1 - p,
        "p^2(1-p)": p**2 * (1 - p),
        "(1-p)^2": (1 - p) ** 2,
        "p": p,
    }
    return known[spec]


@pytest.mark.parametrize("spec", ["", "q", "p(1+p)", [1.0], [-1.0, 2.0]])
def test_bad_curves_name_the_key(spec):
    with pytest.raises(GoldimaskError, match=r"^method\.x"):
        priority_curve(spec, "method.x")


@pytest.mark.parametrize("bad", [{"kind": "cubic"}, {"s0": 0.0}, {"s0": float("nan")}])
def test_bad_support(bad):
    with pytest.raises(GoldimaskError, match="support"):
        Support(**bad)
