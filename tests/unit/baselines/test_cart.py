"""CART against the double sum of its definition."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from goldimask.baselines.cart import cart_weights, recursion
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.step import MaskedStep
from unit.fakes import FakeScorer, TableModel, make_batch


def brute_force(visible: list[bool], p: float) -> list[float]:
    n = len(visible)
    return [
        sum(0.5 * p * (1 - p) ** (abs(i - j) - 1) for j in range(n) if j != i and visible[j])
        for i in range(n)
    ]


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.booleans(), min_size=1, max_size=70), st.sampled_from([0.05, 0.1, 0.3, 0.8, 1.0])
)
def test_kernel_equals_brute_force_and_recursion(visible, p):
    fast = cart_weights(torch.tensor([visible]), p)[0].numpy()
    np.testing.assert_allclose(fast, brute_force(visible, p), rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(
        recursion(visible, p), brute_force(visible, p), rtol=1e-11, atol=1e-14
    )


def test_mean_weight_far_from_borders_is_one_minus_t():
    rng = np.random.Generator(np.random.Philox(1))
    for t in (0.1, 0.5, 0.9):
        visible = torch.from_numpy(rng.random((8, 2000)) >= t)
        w = cart_weights(visible, 0.1)[:, 200:-200]
        assert w.mean().item() == pytest.approx(1 - t, abs=0.01)
    assert cart_weights(torch.ones(1, 400, dtype=torch.bool), 0.1).max() <= 1


@pytest.mark.parametrize("left", [False, True])
def test_loss_is_w_over_tl_and_padding_is_not_context(left):
    batch, keys = make_batch(pad=7, left=left), Keys(3)
    out = MaskedStep(method("cart"), FakeScorer())(TableModel(), batch, keys)
    for b in range(batch.size):
        masked = out.supervised[b]
        visible = (batch.valid[b] & ~masked).tolist()  # prompt and visible response, no padding
        w = torch.tensor(brute_force(visible, 0.1))
        length, t = int(batch.response[b].sum()), out.corruption.t[b].item()
        expected = -(w * out.logp[b])[masked].sum().item() / (t * length)
        assert out.per_example[b].item() == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_everything_masked_far_from_the_prompt_hardly_counts():
    visible = torch.zeros(1, 500, dtype=torch.bool)
    visible[0, 0] = True
    w = cart_weights(visible, 0.1)
    assert w[0, 1].item() == pytest.approx(0.05) and w[0, 400] < 1e-15


def test_bad_p():
    with pytest.raises(GoldimaskError, match=r"method.weigh.p: 0.0 must lie in"):
        method("cart", weigh={"p": 0.0})
