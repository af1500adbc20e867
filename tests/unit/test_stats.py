"""Scores, lengths and pairs against scipy and against direct enumeration."""

from __future__ import annotations

import itertools
import statistics

import numpy as np
import pytest

from goldimask.errors import GoldimaskError
from goldimask.eval.tasks import own_samples
from goldimask.stats import (
    aggregate,
    best_lengths,
    by_decoding,
    chosen_lengths,
    finite,
    fixed_lengths,
    pass_at_k,
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


def test_pass_at_k_is_the_score_of_a_task_with_samples():
    """AIME: two of four problems are solved by any of 16 samples, 3 of 64 answers are right."""
    some = [
        outcome(i, (i, s) in {(0, 3), (0, 7), (2, 15)}, task="aime24", seed=s)
        for i in range(4)
        for s in range(16)
    ]
    (found,) = aggregate(some, samples=own_samples)
    assert (found.accuracy, found.metric, found.n, found.seed) == (0.5, "pass@16", 4, None)
    assert (found.low, found.high) == wilson(2, 4)
    assert best_lengths([found]) == {"aime24": (64, 0.5)}
    (few,) = aggregate([o for o in some if o.seed < 8], samples=own_samples)
    assert (few.accuracy, few.metric) == (0.25, "pass@8")
    assert len(aggregate(some)) == 16


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


def test_what_is_not_a_number_is_left_out_of_json():
    assert finite({"a": [np.float64("nan"), 1.0], "b": float("inf")}) == {
        "a": [None, 1.0],
        "b": None,
    }
