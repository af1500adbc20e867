"""Fits on synthetic measurements recover what generated them."""

from __future__ import annotations

import numpy as np
import pytest

from goldimask.bootstrap import interval, weights
from goldimask.stats import finite
from goldimask.studies import support
from goldimask.studies.heldout import summarise
from goldimask.studies.response import Responses, analyse, fit


@pytest.mark.parametrize(("a", "b"), [(1.0, 3.0), (0.3, 1.5), (2.0, 2.0)])
def test_the_power_family_is_recovered(a: float, b: float) -> None:
    x = np.linspace(0.01, 0.95, 12)
    curve = fit(x, 0.7 * x**a * (1 - x) ** b)
    assert (curve.a, curve.b, curve.scale) == pytest.approx((a, b, 0.7), rel=0.02)
    assert curve.peak == pytest.approx(a / (a + b), rel=0.02)


def responses(shape, examples: int = 60, each: int = 120, noise: float = 0.1) -> Responses:
    rng = np.random.default_rng(1)
    n = examples * each
    p = rng.beta(0.6, 0.6, n)
    return Responses(p, p + shape(p) + noise * rng.normal(size=n), np.arange(n) % examples)


def test_an_interior_peak_is_found_with_its_interval() -> None:
    found = analyse(responses(lambda p: 4.0 * p * (1 - p) ** 3), 60)
    low, high = found["peak_interval"]
    assert low < 0.25 < high and high - low < 0.1
    assert found["interior"]["holds"] and found["interior"]["bin"] in ([0.2, 0.3], [0.1, 0.2])
    assert found["heldout_r2"] > 0.9 and not found["edge"]
    assert sum(b["targets"] for b in found["bins"]) == found["targets"] == 7200


def test_a_falling_response_has_no_interior_peak() -> None:
    found = analyse(responses(lambda p: 0.5 * (1 - p)), 60)
    assert not found["interior"]["holds"] and found["peak"] < 0.05 and found["edge"]


def test_an_unresponsive_model_has_no_interior_peak() -> None:
    found = analyse(responses(lambda p: 0.0 * p, noise=0.2), 60)
    assert not found["interior"]["holds"] and found["heldout_r2"] < 0.5


def observed(response, noise: float = 0.05, seed: int = 0):
    rng = np.random.default_rng(seed)
    s = rng.exponential(0.08, (8, 1500))
    level = 3 * rng.normal(size=1500)  # targets differ in difficulty; that must drop out
    y = level + response(s) + noise * rng.normal(size=s.shape)
    return y, s, np.arange(1500) % 40


def test_saturation_is_told_from_a_linear_response() -> None:
    y, s, example = observed(lambda s: s / (s + 0.05))
    found = support.compare(y, s, example, 0.05)
    assert found["saturating"] > 0.9 > found["linear"] and found["difference"][1] > 0
    assert found["best_s0"] == 0.05
    y, s, example = observed(lambda s: 3 * s)
    found = support.compare(y, s, example, 0.05)
    assert found["linear"] > 0.9 > found["saturating"] and found["difference"][2] < 0
    assert found["best_s0"] == 1.0  # the end of the grid nearest to linear


def test_unrelated_support_explains_nothing() -> None:
    y, _, example = observed(lambda s: 0.0 * s, noise=1.0)
    _, s, _ = observed(lambda s: s, seed=5)
    found = support.compare(y, s, example, 0.05)
    assert abs(found["linear"]) < 0.01 and abs(found["saturating"]) < 0.01


def test_budget_changes_and_paired_differences() -> None:
    rng = np.random.default_rng(0)
    example = np.repeat(np.arange(30), 20)
    logp = np.log(rng.uniform(0.05, 0.8, 600))

    def after(shift: float) -> np.ndarray:
        return np.stack([logp + shift / 2, logp + shift])  # halfway, at the end

    before = {"logp": logp, "example": example}
    tuned = {"uniform": [after(0.1), after(0.12)], "1-p": [after(0.15), after(0.17)]}
    found = summarise(before, tuned, (1, 2), 30)
    assert found["rules"]["uniform"]["delta_nll"]["mean"] == pytest.approx(-0.11)
    apart = found["paired"]["1-p"]["delta_nll"]
    assert apart["value"] == pytest.approx(-0.05) and apart["seeds"] == pytest.approx([-0.05] * 2)
    assert apart["low"] == pytest.approx(-0.05) and apart["high"] == pytest.approx(-0.05)
    p = np.exp(logp)
    expected = np.mean([(p * np.exp(x) - p).mean() for x in (0.1, 0.12)])
    assert found["rules"]["uniform"]["delta_p"]["mean"] == pytest.approx(expected)


def test_resampling_basics() -> None:
    w = weights(10, 200)
    assert w.shape == (200, 10) and (w.sum(1) == 10).all()
    assert (w == weights(10, 200)).all() and (w != weights(10, 200, salt=1)).any()
    assert interval(np.array([1.0, np.nan, 1.0])) == (1.0, 1.0)
    assert finite({"a": [float("nan"), np.float64(2)], "b": (1,)}) == {"a": [None, 2.0], "b": [1]}
