"""AGDO as in the paper's appendix, restated with loops."""

from __future__ import annotations

import pytest
import torch

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.step import MaskedStep
from goldimask.types import Batch, Corruption, Signals
from unit.fakes import MASK, FakeScorer, TableModel, make_batch


@pytest.mark.parametrize("left", [False, True])
def test_step_is_the_literal_method(left):
    model, uniform = TableModel(), 0
    for epoch in range(6):
        batch, keys = make_batch((14, 9, 3, 6), pad=4, left=left), Keys(31, epoch)
        out = MaskedStep(method("agdo"), FakeScorer())(model, batch, keys)
        c = out.corruption
        with torch.no_grad():
            _, maps = model(batch.ids.masked_fill(c.candidates, MASK), batch.valid)
        a = maps[-1]
        for b in range(batch.size):
            k, candidates = int(c.keep[b]), c.candidates[b].nonzero()[:, 0].tolist()
            if k == 0:
                assert out.per_example[b] == 0 and not out.reveal.mask[b].any()
                continue
            visible = [
                j for j in range(batch.ids.shape[1]) if batch.valid[b, j] and j not in candidates
            ]
            mass = {i: sum(a[b, i, j].item() for j in visible) for i in candidates}
            ranked = sorted(candidates, key=lambda i: (-round(mass[i], 6), i))
            kept = sorted(ranked[max(0, len(candidates) - k) :])
            assert out.supervised[b].nonzero()[:, 0].tolist() == kept
            real = batch.valid[b].nonzero()[:, 0].tolist()
            raw = [1 + 100 * sum(a[b, q, i].item() for q in real) for i in kept]
            w = [x * len(raw) / sum(raw) for x in raw]
            if len(candidates) <= k:
                w, uniform = [1.0] * len(raw), uniform + 1
            assert out.weights.value[b, kept].tolist() == pytest.approx(w, rel=1e-4)
            assert sum(w) == pytest.approx(len(kept))
            scale = 1 / (c.t[b].item() * int(batch.response[b].sum()))
            loss = -scale * sum(x * out.logp[b, i].item() for x, i in zip(w, kept, strict=True))
            assert out.per_example[b].item() == pytest.approx(loss, rel=1e-4, abs=1e-6)
    assert uniform > 0


def test_ties_go_to_the_lowest_index():
    mask = torch.tensor([[False, True, True, True]])
    batch = Batch(
        torch.zeros(1, 4, dtype=torch.long), mask, torch.ones_like(mask), torch.tensor([1])
    )
    c = Corruption(mask, torch.tensor([0.5]), torch.tensor([0.4]), torch.tensor([1]))
    attention = torch.full((1, 3, 4), 0.25)
    s = Signals(attention=attention, rows=torch.tensor([[1, 2, 3]]))
    assert method("agdo").select(c, s, batch, Keys(0)).mask.tolist() == [[False, True, True, False]]


def test_gamma_zero_is_uniform_and_negative_is_refused():
    batch = make_batch()
    m = method("agdo", weigh={"gamma": 0.0})
    out = MaskedStep(m, FakeScorer())(TableModel(), batch, Keys(1))
    assert torch.equal(out.weights.value, out.supervised.float())
    with pytest.raises(GoldimaskError, match=r"method.weigh.gamma"):
        method("agdo", weigh={"gamma": -1})
