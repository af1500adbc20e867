"""The corruption: literal restatement of D2 and D3, pairing, and its edge cases."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.noise import full, overmask, uniform
from goldimask.types import Batch
from unit.fakes import make_batch, take


def many(n: int = 400, length: int = 21) -> Batch:
    return make_batch((length,) * n, prompt=2)


def test_overmask_is_the_literal_rule():
    batch, keys = many(60), Keys(5, 3)
    c = overmask()(batch, keys)
    for b in range(batch.size):
        rng = keys.rng(int(batch.example_id[b]), Stream.NOISE)
        t = np.float32(0.001 + 0.999 * rng.random())
        low = 0.1 if t < 0.9 else 0.0
        rho = np.float32(low + (1.0 - float(t) - low) * rng.random())
        u = rng.random(21)
        assert c.t[b].item() == t
        assert c.rho[b].item() == rho
        masked = c.candidates[b, 2:].numpy()
        np.testing.assert_array_equal(masked, u < float(t) + float(rho))
        assert c.keep[b] == math.floor(float(t) * 21)
        assert c.budget()[b] == max(0, masked.sum() - math.floor(float(t) * 21))


def test_ranges_of_t_and_rho():
    c = overmask()(many(), Keys(0))
    assert (c.t >= 1e-3).all() and (c.t < 1).all()
    assert (c.t + c.rho <= 1 + 1e-6).all()
    low = c.t < 0.9
    assert (c.rho[low] >= 0.1 - 1e-7).all() and (c.rho[~low] >= 0).all()
    assert (c.rho[~low] <= 0.1).all() and low.any() and (~low).any()


def test_prompt_padding_and_special_positions_are_never_masked():
    batch = make_batch((9, 3), pad=5)
    response = batch.response.clone()
    response[0, 6] = False  # a special token within the response
    batch = Batch(batch.ids, response, batch.valid, batch.example_id)
    for noise in (uniform(), overmask(), full()):
        for epoch in range(20):
            assert not (noise(batch, Keys(1, epoch)).candidates & ~response).any()


def test_all_noises_share_their_draws():
    batch, keys = many(100), Keys(2)
    u, o, f = uniform()(batch, keys), overmask()(batch, keys), full()(batch, keys)
    assert torch.equal(u.t, o.t) and torch.equal(u.t, f.t)
    assert not (u.candidates & ~o.candidates).any()
    assert torch.equal(f.candidates, batch.response)
    assert torch.equal(u.keep, u.candidates.sum(1)) and (u.rho == 0).all()
    assert torch.equal(f.keep, f.candidates.sum(1))


@pytest.mark.parametrize("noise", [uniform(), overmask(), full()])
def test_an_example_does_not_depend_on_its_batch(noise):
    batch, keys = make_batch(), Keys(7, 1)
    whole = noise(batch, keys)
    order = [2, 0]
    part = noise(take(batch, order), keys)
    left = noise(make_batch(pad=6, left=True), keys)
    assert torch.equal(part.candidates, whole.candidates[order])
    assert torch.equal(part.keep, whole.keep[order])
    inside = make_batch(pad=6, left=True).response
    for b in range(batch.size):
        assert torch.equal(left.candidates[b][inside[b]], whole.candidates[b][batch.response[b]])


def test_seed_and_epoch_change_the_draw():
    batch = many(5)
    masks = [overmask()(batch, k).candidates for k in (Keys(0), Keys(1), Keys(0, 1))]
    assert not torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])


def test_lift_budget():
    batch, keys = many(200), Keys(3)
    c = overmask(budget="lift")(batch, keys)
    for b in range(batch.size):
        t, rho = c.t[b].item(), c.rho[b].item()
        share = min(1.0, max(1e-3, t / (t + rho)))
        assert c.keep[b] == round(int(c.candidates[b].sum()) * share)
    assert torch.equal(c.candidates, overmask()(batch, keys).candidates)


def test_empty_response_and_small_t():
    batch = make_batch((5, 0, 1))
    for epoch in range(30):
        c = overmask()(batch, Keys(0, epoch))
        assert c.candidates[1].sum() == 0 and c.keep[1] == 0 and c.budget()[1] == 0
        assert c.keep[2] == 0  # floor(t) for a single token


def test_rho_that_could_exceed_one_is_refused():
    with pytest.raises(GoldimaskError, match=r"method.noise.rho_min: 0.3 must lie in"):
        overmask(rho_min=0.3)
