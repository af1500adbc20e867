"""The paper's propositions on priority and support, checked numerically."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from goldimask.objective import Priority, Support

INSIDE = st.floats(0.01, 0.99)


def sigmoid(m: float) -> float:
    return float(1.0 / (1.0 + np.exp(-m)))


@settings(max_examples=60, deadline=None)
@given(INSIDE)
def test_local_response_weighted_by_headroom(p):
    """Proposition 3: one small step on -log sigmoid(m) raises p by eta p (1-p)^2, and the headroom
    turns that into the priority; the error is of second order.
    """
    margin = np.log(p / (1 - p))
    errors = []
    for eta in (1e-3, 5e-4):
        after = sigmoid(margin + eta * (1 - p))  # -d(-log sigmoid)/dm = 1 - p
        response = after - p
        assert abs(response - eta * Priority(1, 2)(p)) < eta**2
        errors.append(abs((1 - p) * response - eta * Priority()(p)))
        assert errors[-1] < eta**2
    # halving the step quarters the error, up to the third order
    assert errors[1] < 0.3 * errors[0] + 5e-4**3


def test_the_priority_peaks_at_a_quarter():
    p = np.linspace(0, 1, 4001)
    curve = Priority()(p)
    assert p[curve.argmax()] == Priority().peak == 0.25
    assert (np.diff(curve[:1001]) > 0).all() and (np.diff(curve[1000:]) < 0).all()
    assert curve[0] == curve[-1] == 0.0
    assert abs(p[Priority(1, 2)(p).argmax()] - 1 / 3) < 1e-3  # without the headroom


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 40))
def test_vocabulary_form(seed, size):
    """A cross-entropy step on all logits: the same factor times 1 + sum of r_j^2, which lies
    between 1 + 1/(V - 1) and 2.
    """
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, rng.choice([0.1, 1.0, 3.0]), size)

    def softmax(z: np.ndarray) -> np.ndarray:
        e = np.exp(z - z.max())
        return e / e.sum()

    q = softmax(logits)
    p, wrong = q[0], q[1:] / q[1:].sum()  # 1 - p would cancel where p is near one
    factor = 1 + (wrong**2).sum()
    assert 1 + 1 / (size - 1) - 1e-12 <= factor <= 2 + 1e-12
    gradient = q - np.eye(size)[0]
    for eta in (1e-4, 5e-5):
        rise = softmax(logits - eta * gradient)[0] - p
        assert abs((1 - p) * rise - eta * factor * Priority()(p)) < 5 * eta**2


@settings(max_examples=80, deadline=None)
@given(st.floats(1e-3, 10), st.floats(0, 20), st.floats(0, 20), st.floats(0, 5))
def test_diminishing_returns_from_support(s0, s, more, a):
    """Proposition 4."""
    phi = Support(s0=s0)
    assert phi(0.0) == 0.0 and abs(phi(s0) - 0.5) < 1e-12 and 1 - phi(1e9 * s0) < 1e-8
    gain, later = phi(s + a) - phi(s), phi(s + more + a) - phi(s + more)
    assert gain >= -1e-15 and gain >= later - 1e-12
    assert abs(gain - a * s0 / ((s + s0) * (s + a + s0))) < 1e-12
