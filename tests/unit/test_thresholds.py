"""Accuracy against steps: points, reductions, and AUP against its definition in plain words."""

from __future__ import annotations

import math

import pytest

from goldimask.records import Decoding
from goldimask.thresholds import Point, aup, parallelism, points, reductions
from unit.outcomes import outcome, outcomes


def at(run: str, accuracy: float, steps: float, baseline: bool = False, **more) -> Point:
    place = {"task": "t", "length": 8, "tau": 0.9, "n": 5, **more}
    return Point(run=run, accuracy=accuracy, steps=steps, baseline=baseline, **place)


def test_points_are_one_per_threshold():
    some = [*outcomes([True, False], tau=0.9), *outcomes([True, True], tau=0.7)]
    some += outcomes([True], tau=None)  # a decoding without a threshold
    found = points("a", some, baseline=True)
    assert [(p.run, p.tau, p.accuracy) for p in found] == [("a", 0.7, 1.0), ("a", 0.9, 0.5)]
    assert found[0].seconds == pytest.approx(0.1) and found[0].tokens_a_call is None


def test_any_decoder_with_a_threshold_has_points():
    """The factor rule trades steps by its factor; it and the threshold rule are never mixed."""
    rule = Decoding(decoder="factor", options={"factor": 2.0, "block": 32})
    some = [outcome(0, decoding=rule, tokens=22), *outcomes([True], tau=2.0)]
    one, two = points("a", some, baseline=True)
    assert (one.decoder, one.tau, two.decoder, two.tau) == (
        "factor block=32",
        2.0,
        "threshold",
        2.0,
    )
    assert one.tokens_a_call == 2.2
    ours = at("ours", 0.7, 5, tau=2.0, decoder="threshold")
    assert reductions([at("b", 0.9, 9, True, tau=2.0, decoder="factor block=32"), ours]) == []


def test_reductions_are_against_the_most_accurate_baseline():
    found = [at("a", 0.5, 10, True), at("b", 0.6, 20, True), at("c", 0.6, 16, True)]
    (made,) = reductions([*found, at("ours", 0.7, 12)])
    assert (made.against.run, made.reduction) == ("c", 0.25)  # a tie goes to the cheaper one
    assert made.accuracy_difference == pytest.approx(10)
    assert reductions([at("ours", 0.7, 12)]) == []


def test_an_untuned_model_is_no_baseline_beside_a_tuned_one():
    """The paper compares with fine-tuned baselines; the base may be more accurate than all."""
    base, ours = at("base", 0.9, 40, True, untuned=True), at("ours", 0.7, 5)
    (made,) = reductions([base, at("a", 0.5, 10, True), ours])
    assert made.against.run == "a" and made.reduction == 0.5
    (made,) = reductions([base, ours])
    assert made.against.run == "base"


def test_reductions_stay_within_a_backbone():
    found = [at("a", 0.5, 10, True, panel="llada"), at("a", 0.9, 40, True, panel="dream")]
    (made,) = reductions([*found, at("ours", 0.7, 5, panel="llada")])
    assert made.against.panel == "llada" and made.reduction == 0.5


def literal_aup(pairs: list[tuple[float, float]], y_max: float) -> float:
    """d3LLM's text: sort by rho; keep y_i >= y_1 - 5; rho_1 y_1 + the weighted trapezoids."""
    pairs = sorted(pairs)
    y_1 = pairs[0][1]
    rho = [r for r, y in pairs if y >= y_1 - 5]
    y = [y for _, y in pairs if y >= y_1 - 5]
    w = lambda v: min(math.e ** (-3 * (1 - v / y_max)), 1)  # noqa: E731
    total = rho[0] * y[0]
    for i in range(1, len(rho)):
        total += 0.5 * (rho[i] - rho[i - 1]) * (y[i] * w(y[i]) + y[i - 1] * w(y[i - 1]))
    return total


@pytest.mark.parametrize(
    ("pairs", "top"),
    [
        ([(1.0, 72.55)], 74.98),
        ([(1.0, 74.02), (9.11, 73.09)], 74.98),
        ([(5.0, 60.0), (1.0, 70.0), (2.0, 66.0), (3.0, 71.0)], 80.0),
        ([(1.0, 50.0), (2.0, 50.0), (4.0, 50.0)], 50.0),
    ],
)
def test_aup_is_its_definition(pairs, top):
    area, kept = aup(pairs, top)
    assert area == pytest.approx(literal_aup(pairs, top), rel=1e-12)
    assert kept == sum(y >= min(pairs)[1] - 5 for _, y in pairs)


def test_aup_without_loss_is_the_plain_area():
    assert aup([(1.0, 50.0), (4.0, 50.0)], 50.0)[0] == pytest.approx(200.0)
    assert aup([(1.0, 0.0), (4.0, 0.0)], 0.0) == (0.0, 2)


def test_aup_takes_the_best_accuracy_of_all_rows_of_a_place():
    mine = [at("a", 0.4, 9, tau=t, tokens_a_call=x) for t, x in ((0.9, 1.0), (0.7, 2.0))]
    other = [at("b", 0.8, 9, tau=t, tokens_a_call=1.0) for t in (0.9, 0.7)]
    found = parallelism([*mine, *other])
    assert [x.point.run for x in found] == ["a", "b"]
    assert found[0].aup == pytest.approx(literal_aup([(1.0, 40.0), (2.0, 40.0)], 80.0))
    assert parallelism([at("a", 0.4, 9, tau=t) for t in (0.7, 0.9)]) == []  # nobody counted tokens
