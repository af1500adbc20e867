"""LIFT: components by t, kept targets, the released protocol, and Dream's alignment."""

from __future__ import annotations

import pytest
import torch

from builders import write_dream
from goldimask.baselines.lift import BOTTOM, TOP, VANILLA, component_by_time
from goldimask.baselines.ranking import highest
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.methods import method
from goldimask.step import MaskedStep
from goldimask.types import Batch, Corruption, Signals
from unit.fakes import FakeScorer, TableModel, make_batch


def literal_component(t: float, h: int) -> int:
    if h == 2:
        return TOP if t >= 0.5 else BOTTOM
    if t < 1 / 3:
        return BOTTOM
    return VANILLA if t <= 2 / 3 else TOP


@pytest.mark.parametrize("h", [2, 3])
def test_component_by_time(h):
    levels = [0.001, 0.2, 0.33, 0.34, 0.4999, 0.5, 0.5001, 0.66, 0.67, 0.9, 0.999, 1.0]
    got = component_by_time(torch.tensor(levels, dtype=torch.float64), h).tolist()
    assert got == [literal_component(t, h) for t in levels]


def test_tie_at_one_half_goes_to_top():
    assert component_by_time(torch.tensor([0.5]), 2).item() == TOP


@pytest.mark.parametrize("name", ["lift-2", "lift-3"])
def test_step_is_the_literal_method(name):
    h, kinds = int(name[-1]), set()
    for epoch in range(8):
        batch, keys = make_batch(pad=2), Keys(21, epoch)
        out = MaskedStep(method(name), FakeScorer())(TableModel(), batch, keys)
        c = out.corruption
        for b in range(batch.size):
            candidates = c.candidates[b].nonzero()[:, 0].tolist()
            k, t = int(c.keep[b]), c.t[b].item()
            kind = literal_component(t, h)
            if kind == VANILLA:
                y = batch.response[b].nonzero()[:, 0].tolist()
                u = keys.rng(int(batch.example_id[b]), Stream.SELECT).random(len(y))
                ranked = sorted(candidates, key=lambda i: -u[y.index(i)])
            else:
                sign = -1 if kind == TOP else 1
                ranked = sorted(candidates, key=lambda i: sign * out.signals.logp[b, i].item())
            kept = sorted(ranked[:k])
            assert out.supervised[b].nonzero()[:, 0].tolist() == kept
            kinds.add(kind)
            loss = -sum(out.logp[b, i].item() for i in kept) / (t * int(batch.response[b].sum()))
            assert out.per_example[b].item() == pytest.approx(loss, rel=1e-4, abs=1e-6)
    assert kinds == ({TOP, BOTTOM} if h == 2 else {VANILLA, TOP, BOTTOM})


def test_random_policy_uses_every_component():
    select = method("lift-3", select={"policy": "random"}).select
    batch = make_batch((5,) * 60)
    c = method("lift-3").noise(batch, Keys(0))
    drawn = select.component(c, batch, Keys(0))
    assert set(drawn.tolist()) == {VANILLA, TOP, BOTTOM}
    two = method("lift-2", select={"policy": "random"}).select.component(c, batch, Keys(0))
    assert set(two.tolist()) == {TOP, BOTTOM}


def test_protocol_lift_is_as_released():
    m = method("lift-2", protocol="lift")
    assert m.probe_mode == "train" and m.select.choice == "batch"
    batch, keys = make_batch(), Keys(2)
    c = m.noise(batch, keys)
    expected = [
        round(int(n) * min(1.0, max(1e-3, t / (t + rho))))
        for n, t, rho in zip(
            c.candidates.sum(1).tolist(), c.t.tolist(), c.rho.tolist(), strict=True
        )
    ]
    assert c.keep.tolist() == expected
    which = m.select.component(c, batch, keys)
    assert which.unique().numel() == 1
    assert which[0] == literal_component(c.t.mean().item(), 2)


def test_protocol_lift_gives_way_to_explicit_sections():
    m = method("lift-2", protocol="lift", noise={"budget": "floor"}, select={"choice": "example"})
    batch = make_batch()
    assert torch.equal(m.noise(batch, Keys(1)).keep, method("lift-2").noise(batch, Keys(1)).keep)
    assert m.select.choice == "example" and m.probe_mode == "train"


def test_released_budget_of_zero_reveals_nothing_and_costs_nothing():
    c = Corruption(
        torch.ones(1, 4, dtype=torch.bool),
        torch.tensor([0.01]),
        torch.tensor([0.9]),
        torch.tensor([0]),
    )
    batch = Batch(
        torch.zeros(1, 4, dtype=torch.long), c.candidates, c.candidates, torch.tensor([1])
    )
    reveal = method("lift-2").select(
        c,
        Signals(logp=torch.randn(1, 4, generator=torch.Generator().manual_seed(0))),
        batch,
        Keys(0),
    )
    assert not reveal.mask.any()


def test_highest_breaks_ties_to_the_lowest_index_and_survives_minus_infinity():
    among = torch.tensor([[False, True, True, True, True]])
    score = torch.tensor([[9.0, 1.0, 2.0, 2.0, -torch.inf]])
    pick = lambda n: highest(score, among, torch.tensor([n]))[0].nonzero()[:, 0].tolist()  # noqa: E731
    assert [pick(n) for n in range(6)] == [
        [], [2], [2, 3], [1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 4],
    ]  # fmt: skip


def test_bad_components():
    with pytest.raises(GoldimaskError, match=r"method.select.components: 4 must be 2 or 3"):
        method("lift-2", select={"components": 4})


def test_dream_is_shifted_in_both_passes(tmp_path):
    from goldimask.backbones import load_backbone

    backbone = load_backbone(str(write_dream(tmp_path / "dream")))
    batch = make_batch((12, 8), prompt=3)
    out = MaskedStep(method("lift-2"), backbone.scorer)(backbone.model, batch, Keys(5))
    for hidden, logp in ((out.corruption.candidates, out.signals.logp), (out.supervised, out.logp)):
        with torch.no_grad():
            ids = batch.ids.masked_fill(hidden, backbone.mask_id)
            raw = backbone.model(input_ids=ids, attention_mask=batch.valid).logits.float()
        shifted = raw.log_softmax(-1)[:, :-1]  # row i - 1 predicts token i
        expected = shifted.gather(2, batch.ids[:, 1:, None])[:, :, 0]
        where = hidden[:, 1:]
        assert where.any()
        torch.testing.assert_close(logp[:, 1:][where], expected[where], rtol=1e-4, atol=1e-4)


def test_protocol_lift_touches_only_what_it_must():
    batch, keys = make_batch(), Keys(2)
    for name in ("vanilla", "goldimask-d", "agdo", "gift"):
        plain, faithful = method(name), method(name, protocol="lift")
        assert faithful.probe_mode == "train" and plain.probe_mode == "eval"
        a, b = plain.noise(batch, keys), faithful.noise(batch, keys)
        assert torch.equal(a.candidates, b.candidates)
        same = torch.equal(a.keep, b.keep)
        assert same == (name in ("vanilla", "gift"))
