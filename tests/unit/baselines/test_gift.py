"""GIFT against a literal restatement, and where the released code gave NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from goldimask.baselines.gift import token_rates
from goldimask.keys import Keys, Stream
from goldimask.methods import method
from goldimask.step import MaskedStep
from unit.fakes import MASK, FakeScorer, TableModel, make_batch


def test_step_is_the_literal_method():
    model, scorer = TableModel(), FakeScorer()
    for epoch in range(4):
        batch, keys = make_batch(pad=3), Keys(11, epoch)
        out = MaskedStep(method("gift"), scorer)(model, batch, keys)
        with torch.no_grad():
            logits, _ = model(batch.ids.masked_fill(batch.response, MASK), batch.valid)
        for b in range(batch.size):
            y = batch.response[b].nonzero()[:, 0].tolist()
            t = out.corruption.t[b].item()
            probabilities = logits[b, y].double().softmax(-1)
            beta = [math.sqrt(-(p * p.log()).sum().item()) for p in probabilities]
            reference = sum(beta) / len(beta)
            u = keys.rng(int(batch.example_id[b]), Stream.RESAMPLE).random(len(y))
            rates = [min(1.0, max(1e-3, 1 - (1 - t) ** (x / reference))) for x in beta]
            chosen = [(i, r) for i, r, v in zip(y, rates, u, strict=True) if v < r]
            assert out.supervised[b].nonzero()[:, 0].tolist() == [i for i, _ in chosen]
            if not chosen:
                assert out.per_example[b] == 0
                continue
            total = sum(-out.logp[b, i].item() / r for i, r in chosen)
            assert out.per_example[b].item() == pytest.approx(total / len(chosen), rel=1e-4)


def test_equal_entropies_give_rate_t():
    response = torch.tensor([[False, True, True, True, False]])
    t = torch.tensor([0.37])
    rates = token_rates(torch.full((1, 5), 2.0), response, t)
    np.testing.assert_allclose(rates[0, 1:4], t.item(), rtol=1e-7)


def test_larger_entropy_is_masked_more():
    rates = token_rates(
        torch.tensor([[0.1, 1.0, 3.0]]), torch.ones(1, 3, dtype=torch.bool), torch.tensor([0.5])
    )
    assert rates[0, 0] < rates[0, 1] < rates[0, 2]


@pytest.mark.parametrize("t", [1e-3, 0.05, 0.5, 0.999, 1.0])
@pytest.mark.parametrize("entropy", [[0.0, 0.0, 0.0], [0.0, 5.0, 1e-30], [-1e-7, 2.0, 2.0]])
def test_rates_stay_in_range(t, entropy):
    response = torch.ones(1, 3, dtype=torch.bool)
    rates = token_rates(torch.tensor([entropy]), response, torch.tensor([t]))
    assert torch.isfinite(rates).all() and (rates >= 1e-3).all() and (rates <= 1).all()


def test_pools_nothing_across_examples():
    response = torch.ones(2, 3, dtype=torch.bool)
    t = torch.tensor([0.5, 0.5])
    both = token_rates(torch.tensor([[1.0, 2.0, 3.0], [0.1, 0.1, 9.0]]), response, t)
    alone = token_rates(torch.tensor([[1.0, 2.0, 3.0]]), response[:1], t[:1])
    assert torch.equal(both[:1], alone)


def test_empty_resample_gives_zero_loss_on_the_graph():
    model, scorer = TableModel(), FakeScorer()
    empty = 0
    for epoch in range(40):
        out = MaskedStep(method("gift"), scorer)(model, make_batch((3, 2)), Keys(1, epoch))
        bare = ~out.supervised.any(1)
        empty += int(bare.sum())
        assert (out.per_example[bare] == 0).all() and torch.isfinite(out.loss)
    assert empty > 0


def test_response_padding_does_not_enter_the_reference():
    response = torch.tensor([[True, True, False]])
    with_junk = token_rates(torch.tensor([[1.0, 2.0, 99.0]]), response, torch.tensor([0.5]))
    without = token_rates(torch.tensor([[1.0, 2.0, 0.0]]), response, torch.tensor([0.5]))
    assert torch.equal(with_junk, without)
