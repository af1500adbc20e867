"""Scores, lengths and pairs against scipy and against direct enumeration."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goldimask.errors import GoldimaskError
from goldimask.stats import (
    Point,
    best_lengths,
    by_decoding,
    chosen_lengths,
    finite,
    fixed_lengths,
    mcnemar,
    paired,
    pass_at_k,
    points,
    reductions,
    scores,
    spread,
    wilson,
)
from unit.core.outcomes import outcome, outcomes


@pytest.mark.parametrize(("k", "n"), [(0, 7), (7, 7), (3, 10), (700, 1319), (1, 1)])
def test_wilson_is_the_closed_form(k, n):
    z, p = 1.959963984540054, k / n
    half = z * np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = ((p + z * z / (2 * n) + s * half) / (1 + z * z / n) for s in (-1, 1))
    assert wilson(k, n) == pytest.approx((low, high), abs=1e-12)


def test_wilson_of_nothing():
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("b", "c", "p"), [(0, 0, 1.0), (5, 0, 2 / 32), (0, 5, 2 / 32), (1, 1, 1)])
def test_mcnemar(b, c, p):
    assert mcnemar(b, c) == pytest.approx(p, abs=1e-12)


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
    found = scores(
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
    (found,) = scores([outcome(0, False, hits=2, of=8), outcome(1, True, hits=8, of=8)])
    assert (found.accuracy, found.solved) == (10 / 16, 0.5)


def test_lengths():
    found = scores(
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


def test_paired_comparison():
    rng = np.random.default_rng(0)
    a = rng.random(400) < 0.5
    b = a | (rng.random(400) < 0.2)  # never worse
    first, second = outcomes(a), outcomes(b)
    found = paired(first, second)
    gained = int((b & ~a).sum())
    assert (found.only_first, found.only_second, found.unpaired) == (0, gained, 0)
    assert found.difference == pytest.approx(gained / 400)
    assert 0 < found.low < found.difference < found.high
    expected = scipy_stats.bootstrap(
        (b.astype(float) - a.astype(float),), np.mean, method="percentile", rng=rng
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.01)
    assert paired(first, second) == found  # the same draws again
    same = paired(first, first)
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1.0)


def test_only_answers_of_both_are_paired():
    first, second = outcomes([True] * 4), [outcome(i, i > 2) for i in (5, 3, 2, 1)]
    found = paired(first, second)  # the order on disk does not matter
    assert (found.n, found.unpaired, found.difference) == (3, 2, pytest.approx(-2 / 3))
    with pytest.raises(GoldimaskError, match="same problems"):
        paired(first, outcomes([True], seed=7))
    with pytest.raises(GoldimaskError, match="one task"):
        paired(first, [*second, outcome(0, task="other")])
    with pytest.raises(GoldimaskError, match="one task and length"):
        paired(first, [*second, outcome(0, length=9)])


def test_paired_pools_partial_credit():
    first = [outcome(0, False, hits=2, of=8), outcome(1, hits=4, of=4)]
    second = [outcome(0, False, hits=4, of=8), outcome(1, hits=4, of=4)]
    assert paired(first, second).difference == pytest.approx(2 / 12)


def test_sampling_seeds_are_drawn_too():
    first = [o for s in range(3) for o in outcomes([True, False] * 20, seed=s)]
    second = [o for s in range(3) for o in outcomes([s > 0, False] * 20, seed=s)]
    found = paired(first, second)
    assert found.n == 120 and found.difference == pytest.approx(-1 / 6)
    assert found.low < -1 / 6 < found.high


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


def test_finite():
    assert finite({"a": [np.float64("nan"), 1.0], "b": float("inf")}) == {
        "a": [None, 1.0],
        "b": None,
    }
