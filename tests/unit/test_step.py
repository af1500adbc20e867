"""The contract of the two-pass step, for every preset."""

from __future__ import annotations

import pytest
import torch

from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.presets import PRESETS
from goldimask.step import MaskedStep, module_mode
from goldimask.types import Batch
from unit.fakes import FakeScorer, TableModel, make_batch, take

NAMES = PRESETS.names()
OVERMASKING = [n for n in NAMES if PRESETS.get(n).noise["kind"] == "overmask"]
DEGENERATE = {
    "K=0 and one token": make_batch((1, 1, 1)),
    "empty responses": make_batch((0, 0)),
    "mixed": make_batch((0, 1, 12)),
}


def run(name: str, batch: Batch, keys: Keys = Keys(1), **options):
    model = TableModel()
    return model, MaskedStep(method(name, **options), FakeScorer())(model, batch, keys)


@pytest.mark.parametrize("name", NAMES)
def test_fixed_number_of_passes_and_loss_on_the_graph(name):
    for batch in (make_batch(), *DEGENERATE.values()):
        model, out = run(name, batch)
        assert model.calls == method(name).passes == PRESETS.get(name).passes
        assert out.loss.requires_grad and torch.isfinite(out.loss)
        out.loss.backward()
        assert model.head.grad is not None and torch.isfinite(model.head.grad).all()
        assert not out.weights.value.requires_grad and not out.per_example.requires_grad


@pytest.mark.parametrize("name", NAMES)
def test_invariants_of_what_was_decided(name):
    for epoch in range(3):
        batch = make_batch(pad=2)
        _, out = run(name, batch, Keys(3, epoch))
        c, s, r = out.corruption, out.supervised, out.reveal.mask
        assert not (r & ~c.candidates).any() and not (s & r).any()
        assert not (s & ~c.candidates).any()
        assert (out.weights.value[~s] == 0).all() and (out.weights.value >= 0).all()
        loss = -(out.weights.value * out.logp).sum(1) * out.weights.scale
        assert torch.allclose(loss, out.per_example, atol=1e-5)
        assert out.loss.item() == pytest.approx(out.per_example.mean().item(), abs=1e-6)
        assert set(out.seconds) == {"corrupt", "probe", "select", "train", "weigh"}


@pytest.mark.parametrize("name", NAMES)
def test_an_example_depends_on_nothing_but_itself(name):
    batch, keys = make_batch(), Keys(4, 2)
    _, whole = run(name, batch, keys)
    order = [3, 1, 0]
    _, part = run(name, take(batch, order), keys)
    assert torch.equal(part.supervised, whole.supervised[order])
    assert torch.allclose(part.per_example, whole.per_example[order], rtol=1e-4, atol=1e-5)
    for left in (False, True):
        padded = make_batch(pad=5, left=left)
        _, out = run(name, padded, keys)
        for b in range(batch.size):
            inside, before = padded.response[b], batch.response[b]
            assert torch.equal(out.supervised[b][inside], whole.supervised[b][before])
        assert torch.allclose(out.per_example, whole.per_example, rtol=1e-4, atol=1e-5)


def test_over_masking_methods_are_paired():
    batch, keys = make_batch(), Keys(8, 1)
    first = run(OVERMASKING[0], batch, keys)[1].corruption
    assert len(OVERMASKING) > 15
    for name in OVERMASKING:
        c = run(name, batch, keys)[1].corruption
        assert torch.equal(c.t, first.t) and torch.equal(c.rho, first.rho), name
        assert torch.equal(c.candidates, first.candidates), name
        assert torch.equal(c.keep, first.keep), name
    vanilla = run("vanilla", batch, keys)[1].corruption
    assert torch.equal(vanilla.t, first.t)
    assert torch.equal(run("gift", batch, keys)[1].corruption.t, first.t)


@pytest.mark.parametrize(
    "name", [n for n in OVERMASKING if n not in ("goldimask-t", "goldimask-p")]
)
def test_exact_budget(name):
    """|S| = K where there is something to reveal, all of C where |C| <= K, nothing where K = 0."""
    seen = set()
    for epoch in range(12):
        _, out = run(name, make_batch((14, 9, 1, 5)), Keys(6, epoch))
        c = out.corruption
        size = c.candidates.sum(1)
        if name == "goldimask-a":
            continue  # first visits are Vanilla; its budget is tested with its memory
        expected = torch.where(c.keep > 0, torch.minimum(c.keep, size), 0)
        assert torch.equal(out.supervised.sum(1), expected)
        none = (c.keep > 0) & (size <= c.keep)
        assert not out.reveal.mask[none].any()
        assert torch.equal(out.weights.value[none], out.supervised[none].float()) or "dro" in name
        seen |= set(none.tolist())
    assert name == "goldimask-a" or seen == {True, False}


def test_zero_k_contributes_zero_but_counts_in_the_mean():
    batch = make_batch((1, 12))
    _, out = run("goldimask-d", batch, Keys(2))
    assert out.corruption.keep[0] == 0
    assert out.per_example[0] == 0 and not out.supervised[0].any()
    assert out.loss.item() == pytest.approx(out.per_example[1].item() / 2, rel=1e-6)


def test_denominator_replaces_the_batch_size():
    batch, step, model = make_batch(), MaskedStep(method("vanilla"), FakeScorer()), TableModel()
    plain = step(model, batch, Keys(1))
    other = step(model, batch, Keys(1), denominator=10.0)
    assert other.loss.item() == pytest.approx(plain.per_example.sum().item() / 10, rel=1e-6)


def test_probe_runs_without_dropout_and_restores_every_flag():
    model = TableModel(dropout=0.5)
    model.train()
    model.dropout.eval()  # a module that was already in eval mode must stay so
    with module_mode(model, train=False):
        assert not any(m.training for m in model.modules())
    assert model.training and not model.dropout.training
    model.train()
    step = MaskedStep(method("goldimask-d"), FakeScorer())
    a, b = (step(model, make_batch(), Keys(1)) for _ in range(2))
    assert torch.equal(a.signals.logp, b.signals.logp)
    assert not torch.equal(a.logp, b.logp)  # dropout is on in the training pass
    assert model.training and model.dropout.training


def test_probe_mode_train_keeps_dropout_on():
    model = TableModel(dropout=0.5).train()
    step = MaskedStep(method("goldimask-d", probe_mode="train"), FakeScorer())
    a, b = (step(model, make_batch(), Keys(1)) for _ in range(2))
    assert not torch.equal(a.signals.logp, b.signals.logp)


def test_flags_are_restored_when_the_probe_fails():
    model = TableModel().train()
    with pytest.raises(RuntimeError, match="broken"), module_mode(model, train=False):
        raise RuntimeError("broken")
    assert all(m.training for m in model.modules())


def test_no_global_randomness():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    for name in NAMES:
        run(name, make_batch())
    assert torch.equal(before, torch.get_rng_state())
