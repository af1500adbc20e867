"""Water-filling: the paper's proposition and corollary, against bisection and by property."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.objective import Priority
from goldimask.types import Batch, Corruption, Signals
from goldimask.weighting import (
    loss_scale,
    n_eff,
    normalised,
    uncapped,
    utility,
    water_fill,
    waterfill,
)
from oracles.weighting import water_fill_bisection

CHECK = settings(max_examples=150, deadline=None)
utilities = st.lists(
    st.one_of(st.just(0.0), st.floats(1e-12, 1e6), st.sampled_from([1.0, 2.0, 5.0])),
    min_size=1,
    max_size=60,
)
caps = st.one_of(st.floats(1.01, 20.0), st.sampled_from([2.0, 4.0, 5.0, 10.0]))


def fill(u: list[float], cap: float) -> torch.Tensor:
    row = torch.tensor([u], dtype=torch.float64)
    return water_fill(row, torch.ones_like(row, dtype=torch.bool), cap)[0]


@CHECK
@given(utilities, caps)
def test_budget_cap_and_effective_size(u, cap):
    w, n = fill(u, cap), len(u)
    assert w.sum().item() == pytest.approx(n, rel=1e-9)
    assert (w >= 0).all() and (w <= cap * (1 + 1e-12)).all()
    assert n_eff(w[None]).item() >= n / cap * (1 - 1e-9)


@CHECK
@given(utilities, caps)
def test_equals_bisection(u, cap):
    row = torch.tensor(u, dtype=torch.float64)
    slow = water_fill_bisection(row, torch.ones_like(row, dtype=torch.bool), cap)
    np.testing.assert_allclose(fill(u, cap).numpy(), slow.numpy(), rtol=1e-6, atol=1e-9)


@CHECK
@given(utilities, caps)
def test_boundary_cases_of_the_proposition(u, cap):
    w, n = fill(u, cap).numpy(), len(u)
    positive = np.array(u) > 0
    count = int(positive.sum())
    if count == 0:  # (d)
        np.testing.assert_array_equal(w, np.ones(n))
    elif cap * count > n:  # (a): w = min(u / nu, c) for one level
        assert (w[~positive] == 0).all()
        free = positive & (w < cap * (1 - 1e-9))
        if free.any():
            levels = np.array(u)[free] / w[free]
            np.testing.assert_allclose(levels, levels[0], rtol=1e-6)
            capped = positive & ~free
            assert (np.array(u)[capped] >= cap * levels[0] * (1 - 1e-6)).all()
    else:  # (b), (c)
        np.testing.assert_allclose(w[positive], cap)
        if n > count:
            np.testing.assert_allclose(w[~positive], (n - cap * count) / (n - count), atol=1e-12)


@pytest.mark.parametrize(
    ("u", "cap", "expected"),
    [
        ([1.0, 1.0, 2.0], 10.0, [0.75, 0.75, 1.5]),  # (a), no cap binds
        ([100.0, 1.0, 1.0, 0.0], 2.0, [2.0, 1.0, 1.0, 0.0]),  # (a), one cap binds
        ([3.0, 1.0, 0.0, 0.0], 2.0, [2.0, 2.0, 0.0, 0.0]),  # (b) c n_+ = n
        ([3.0, 0.0, 0.0, 0.0], 2.0, [2.0, 2 / 3, 2 / 3, 2 / 3]),  # (c) c n_+ < n
        ([0.0, 0.0], 2.0, [1.0, 1.0]),  # (d)
        ([5.0], 10.0, [1.0]),
        ([1e-300, 2e-300], 10.0, [2 / 3, 4 / 3]),  # scale must not matter
        ([1e300, 1e-300, 1e-300], 1.5, [1.5, 0.75, 0.75]),  # one giant must not swallow the rest
    ],
)
def test_worked_examples(u, cap, expected):
    np.testing.assert_allclose(fill(u, cap).numpy(), expected, rtol=1e-12)


@CHECK
@given(utilities, caps, st.floats(1e-6, 1e6), st.randoms(use_true_random=False))
def test_scale_and_order_do_not_matter(u, cap, factor, random):
    order = list(range(len(u)))
    random.shuffle(order)
    w = fill(u, cap).numpy()
    moved = fill([u[i] * factor for i in order], cap).numpy()
    np.testing.assert_allclose(moved, w[order], rtol=1e-7, atol=1e-9)


@CHECK
@given(utilities, utilities, caps)
def test_rows_and_inactive_positions_do_not_interact(a, b, cap):
    width = max(len(a), len(b)) + 2
    u = torch.full((2, width), 123.0, dtype=torch.float64)  # utilities off the active set
    active = torch.zeros((2, width), dtype=torch.bool)
    for row, values in enumerate((a, b)):
        u[row, 1 : 1 + len(values)] = torch.tensor(values, dtype=torch.float64)
        active[row, 1 : 1 + len(values)] = True
    w = water_fill(u, active, cap)
    assert (w[~active] == 0).all()
    np.testing.assert_allclose(w[0][active[0]], fill(a, cap), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(w[1][active[1]], fill(b, cap), rtol=1e-9, atol=1e-12)


@CHECK
@given(utilities, caps)
def test_clipping_after_normalising_loses_exactly_the_excess(u, cap):
    row = torch.tensor([u], dtype=torch.float64)
    w = normalised(row, torch.ones_like(row, dtype=torch.bool))[0]
    assert w.sum().item() == pytest.approx(len(u), rel=1e-9)
    lost = (w - cap).clamp_min(0).sum()
    assert w.clamp_max(cap).sum().item() == pytest.approx(len(u) - lost.item(), rel=1e-9, abs=1e-9)
    # same form, lower level: water-filling gives every target at least as much (cases a, b)
    if cap * sum(x > 0 for x in u) >= len(u):
        assert (fill(u, cap) >= w.clamp_max(cap) * (1 - 1e-7) - 1e-9).all()


def test_utility_is_gain_times_priority_after():
    before, after = torch.tensor([[-2.0, -1.0, -3.0]]), torch.tensor([[-1.0, -1.5, -3.0]])
    p = np.exp(-1.0)
    expected = [[1.0 * p * (1 - p) ** 3, 0.0, 0.0]]
    np.testing.assert_allclose(utility(before, after, Priority()), expected, rtol=1e-6)


def test_a_probability_of_zero_before_the_reveal_meets_the_cap():
    before = torch.tensor([[-torch.inf, -3.0, -3.0, -torch.inf]])
    after = torch.tensor([[-1.0, -1.0, -1.0, -torch.inf]])
    u = utility(before, after, Priority())
    assert torch.isfinite(u).all() and u[0, 3] == 0
    w = water_fill(u, torch.ones_like(u, dtype=torch.bool), 2.0)
    np.testing.assert_allclose(w[0], [2.0, 1.0, 1.0, 0.0])


def _case(keep: int, candidates: int, revealed: int):
    batch = Batch(
        torch.zeros(1, 12, dtype=torch.long),
        torch.ones(1, 12, dtype=torch.bool),
        torch.ones(1, 12, dtype=torch.bool),
        torch.tensor([1]),
    )
    mask = torch.arange(12)[None] < candidates
    supervised = mask & (torch.arange(12)[None] >= revealed)
    c = Corruption(mask, torch.tensor([0.5]), torch.tensor([0.4]), torch.tensor([keep]))
    return batch, c, supervised


def test_nothing_revealed_means_uniform_weights():
    batch, c, supervised = _case(keep=8, candidates=6, revealed=0)
    before = torch.where(supervised, -3.0, 0.0)
    after = torch.where(supervised, torch.linspace(-2, -0.1, 12)[None], 0.0)
    for weigh in (waterfill(), uncapped()):
        w = weigh(c, Signals(logp=before), batch, supervised, after, Keys(0))
        assert torch.equal(w.value, supervised.float())
        assert w.scale.item() == pytest.approx(1 / (0.5 * 12))


def test_kept_scale_match_has_the_total_of_k_targets():
    batch, c, supervised = _case(keep=4, candidates=10, revealed=2)  # |S| = 8, K = 4
    before = torch.where(supervised, -3.0, 0.0)
    after = torch.where(supervised, torch.linspace(-2, -0.1, 12)[None], 0.0)
    paper, match = (
        waterfill(kept_scale=mode)(c, Signals(logp=before), batch, supervised, after, Keys(0))
        for mode in ("paper", "match")
    )
    assert torch.equal(paper.value, match.value)
    assert (paper.value.sum() * paper.scale).item() == pytest.approx(8 / 6)
    assert (match.value.sum() * match.scale).item() == pytest.approx(4 / 6)


def test_match_leaves_fewer_targets_than_k_alone():
    batch, c, supervised = _case(keep=8, candidates=6, revealed=0)
    assert torch.equal(loss_scale(c, batch, supervised, "match"), loss_scale(c, batch))


@CHECK
@given(st.lists(utilities, min_size=2, max_size=4), st.floats(0.01, 1.0), st.floats(0.0, 1.0))
def test_a_cap_that_is_a_share_and_a_floor(rows, share, floor):
    """Row by row what a constant cap gives; mean one, and at least the floor."""
    width = 1 + max(map(len, rows))  # the last position is revealed
    u = torch.zeros(len(rows), width, dtype=torch.float64)
    targets = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        u[i, : len(row)], targets[i, : len(row)] = torch.tensor(row, dtype=torch.float64), True
    caps = (share * targets.sum(1, keepdim=True).double()).clamp_min(1.0)
    together = water_fill(u, targets, caps)
    alone = [water_fill(u[i : i + 1], targets[i : i + 1], caps[i].item()) for i in range(len(u))]
    np.testing.assert_array_equal(together.numpy(), torch.cat(alone).numpy())
    every, ones = torch.ones_like(targets), torch.ones(len(u))
    c = Corruption(every, ones, ones, targets.sum(1))
    batch = Batch(every.long(), every, every, torch.arange(len(u)))
    weigh = waterfill(share=share, floor=floor, priority=[0, 0])  # lambda = 1: the gain is u
    after = torch.zeros_like(u)
    found = weigh(c, Signals(logp=after - u), batch, targets, after, Keys(0)).value.double()
    expected = floor * targets + (1 - floor) * together
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(found.sum(1), targets.sum(1), rtol=1e-5)
    assert (found[targets] >= floor - 1e-6).all()


def test_weights_are_uniform_in_the_first_epochs():
    batch, c, supervised = _case(keep=4, candidates=6, revealed=2)
    logp = torch.log(torch.linspace(0.1, 0.6, batch.ids.shape[1]))[None].expand(batch.ids.shape)
    probe = Signals(logp=logp - 0.5)
    late, plain = waterfill(after=2), waterfill()
    for epoch in (0, 1):
        found = late(c, probe, batch, supervised, logp, Keys(0, epoch))
        assert torch.equal(found.value, supervised.float())
    now = plain(c, probe, batch, supervised, logp, Keys(0, 2)).value
    assert torch.equal(late(c, probe, batch, supervised, logp, Keys(0, 2)).value, now)
    assert not torch.equal(now, supervised.float())


@pytest.mark.parametrize("options", [{"share": -0.1}, {"share": 2}, {"floor": 1.5}, {"after": -1}])
def test_options_of_water_filling_are_in_range(options):
    with pytest.raises(GoldimaskError, match=r"method\.weigh"):
        waterfill(**options)
