"""The masks of pretraining: as a block decoder meets them, or uniform."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goldimask.keys import Keys
from goldimask.noise import draw
from goldimask.types import Batch, Signals
from pretraining.canvas import Canvas, canvas_batch
from pretraining.frontier import FrontierNoise, FrontierWeights, pretraining_method

PROMPT, RESPONSE, TRAIL = 5, 40, 20  # trailing end tokens have id 0


def make_batch(n: int = 200) -> Batch:
    ids = [9] * PROMPT + [7] * RESPONSE + [0] * TRAIL
    return canvas_batch([Canvas(ids, PROMPT, i) for i in range(n)], 0)


@pytest.fixture(scope="module")
def drawn():
    batch = make_batch()
    return batch, FrontierNoise(share=0.6, reach=8, floor=0.1, pad_id=0)(batch, Keys(1))


def test_share_and_shape_of_the_masks(drawn):
    batch, c = drawn
    kinds = c.rho > 0
    assert 90 <= int(kinds.sum()) <= 150
    assert not c.candidates[:, :PROMPT].any() and not (c.candidates & ~batch.response).any()
    cuts = []
    for row in c.candidates[kinds][:, PROMPT:].numpy():
        cut = int(row.argmax())  # the first masked position
        cuts.append(cut)
        assert not row[:cut].any() and row[cut + 8 :].all()
    assert min(cuts) < 4 and 35 < max(cuts) < RESPONSE  # never begins behind the turn end
    assert torch.equal(c.keep, c.candidates.sum(1))


def test_masks_within_reach_take_every_rate(drawn):
    _, c = drawn
    rates = []
    for row in c.candidates[c.rho > 0][:, PROMPT:].numpy():
        cut = int(row.argmax())
        rates.append(row[cut + 1 : cut + 8].mean())
    assert 0.35 < np.mean(rates) < 0.65 and min(rates) == 0 and max(rates) == 1


def test_uniform_masks_are_those_of_the_draw(drawn):
    batch, c = drawn
    for b in torch.nonzero(c.rho == 0).squeeze(1).tolist():
        d = draw(Keys(1), int(batch.example_id[b]), RESPONSE + TRAIL + 1, 0.1)
        assert c.candidates[b, PROMPT:].tolist() == (d.u[:-1] < d.t).tolist()
        assert c.t[b] == d.t and d.u_rho >= 0.6


def test_weights_are_a_mean_over_what_is_within_reach(drawn):
    batch, c = drawn
    w = FrontierWeights(reach=8)(c, Signals(), batch, c.candidates, c.candidates.float(), Keys(1))
    assert (w.value.sum(1) * w.scale).tolist() == pytest.approx([1.0] * batch.size)
    for b in range(batch.size):
        masked = torch.nonzero(c.candidates[b]).squeeze(1)
        near = masked if c.rho[b] == 0 else masked[masked < masked[0] + 8]
        assert torch.nonzero(w.value[b]).squeeze(1).tolist() == near.tolist()


def test_masks_do_not_depend_on_batch_mates():
    noise = FrontierNoise(share=0.5, reach=8, floor=0.1, pad_id=0)
    whole = make_batch(6)
    together = noise(whole, Keys(2)).candidates
    for b in range(6):
        one = Batch(
            *(x[b : b + 1] for x in (whole.ids, whole.response, whole.valid, whole.example_id))
        )
        assert torch.equal(noise(one, Keys(2)).candidates[0], together[b])


def test_without_frontiers_it_is_vanilla():
    made = pretraining_method(0.0, 32, 0.1, 0)
    assert made.name == "vanilla" and not made.needs
    assert pretraining_method(0.5, 32, 0.1, 0).name == "frontier"
