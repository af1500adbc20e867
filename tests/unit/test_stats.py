"""Scores, lengths and pairs against scipy and against direct enumeration."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from goldimask.errors import GoldimaskError
from goldimask.stats import (
    Point,
    aggregate,
    best_lengths,
    by_decoding,
    chosen_lengths,
    finite,
    fixed_lengths,
    pass_at_k,
    points,
    reductions,
    spread,
    wilson,
)
from unit.outcomes import outcome, outcomes


@pytest.mark.parametrize(("k", "n"), [(0, 7), (7, 7), (3, 10), (700, 1319), (1, 1)])
def test_wilson_is_the_closed_form(k, n):
    z, p = 1.959963984540054, k / n
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = ((p + z * z / (2 * n) + s * half) / (1 + z * z / n) for s in (-1, 1))
    assert wilson(k, n) == pytest.approx((low, high), abs=1e-12)


def test_wilson_of_nothing():
    assert wilson(0, 0) == (0.0, 1.0)


def test_pass_at_k_is_the_average_over_subsets():
    for verdicts in itertools.product([0, 1], repeat=5):
        for k in (1, 2, 5):
            subsets = list(itertools.combinations(verdicts, k))
            expected = sum(any(s) for s in subsets) / len(subsets)
            assert pass_at_k([(5, sum(verdicts))], k) == pytest.approx(expected)
    assert pass_at_k([(16, 1), (16, 0)], 16) == pytest.approx(0.5)
    with pytest.raises(GoldimaskError, match="at least k samples"):
        pass_at_k([(3, 1)], 4)


def test_scores_are_grouped_by_everything_that_tells_answers_apart():
    found = aggregate(
        [
            *outcomes([True, False, False, True]),
            *outcomes([True, True], tau=0.7),
            *outcomes([False], seed=1),
            *outcomes([True], length=128),
        ]
    )
    assert [(s.n, s.correct) for s in found] == [(4, 2), (2, 2), (1, 0), (1, 1)]
    assert [s.decoding.options["tau"] for s in found] == [0.9, 0.7, 0.9, 0.9]
    assert found[0].steps == 11.5 and (found[0].low, found[0].high) == wilson(2, 4)
    labels = by_decoding([*outcomes([True]), *outcomes([True], tau=None)])
    assert list(labels) == ["threshold tau=0.9", "threshold"]


def test_partial_credit_is_the_accuracy():
    (found,) = aggregate([outcome(0, False, hits=2, of=8), outcome(1, True, hits=8, of=8)])
    assert (found.accuracy, found.solved) == (10 / 16, 0.5)


def test_lengths():
    found = aggregate(
        [
            *outcomes([True, True, False], length=64),
            *outcomes([True, True, False], length=128),
            *outcomes([True, False, False], length=256),
        ]
    )
    assert best_lengths(found) == {"tiny-sort": (64, 2 / 3)}
    assert fixed_lengths(found, lambda task: 256) == {"tiny-sort": (256, 1 / 3)}
    assert fixed_lengths(found, lambda task: 512) == {}
    assert fixed_lengths(found[:1], lambda task: 512) == {"tiny-sort": (64, 2 / 3)}
    assert chosen_lengths(found, "128", lambda task: 0) == {"tiny-sort": (128, 2 / 3)}
    with pytest.raises(GoldimaskError, match="best, fixed or a number"):
        chosen_lengths(found, "long", lambda task: 0)


def test_spread_is_the_sample_deviation():
    values = [0.1, 0.25, 0.4, 0.4]
    found = spread(values)
    assert found.mean == pytest.approx(statistics.mean(values))
    assert found.sd == pytest.approx(statistics.stdev(values))
    assert spread([0.5]).sd is None
    with pytest.raises(GoldimaskError):
        spread([])


def test_points_are_one_per_threshold():
    some = [*outcomes([True, False], tau=0.9), *outcomes([True, True], tau=0.7)]
    some += outcomes([True], tau=None)  # a decoding without a threshold
    found = points("a", some, baseline=True)
    assert [(p.run, p.tau, p.accuracy) for p in found] == [("a", 0.7, 1.0), ("a", 0.9, 0.5)]


def test_reductions_are_against_the_most_accurate_baseline():
    at = lambda run, acc, steps, base: Point(run, "t", 8, 0.9, acc, steps, 5, base)  # noqa: E731
    found = [at("a", 0.5, 10, True), at("b", 0.6, 20, True), at("c", 0.6, 16, True)]
    (made,) = reductions([*found, at("ours", 0.7, 12, False)])
    assert (made.against, made.reduction) == ("c", 0.25)  # a tie goes to the cheaper one
    assert made.accuracy_difference == pytest.approx(10)
    assert reductions([at("ours", 0.7, 12, False)]) == []


def test_what_is_not_a_number_is_left_out_of_json():
    assert finite({"a": [np.float64("nan"), 1.0], "b": float("inf")}) == {
        "a": [None, 1.0],
        "b": None,
    }
