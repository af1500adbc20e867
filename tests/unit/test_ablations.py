"""DRO, the sampled budget of Study 1, and the normalised weights."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
import torch

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.methods import method
from goldimask.step import MaskedStep
from goldimask.weighting import WEIGHERS
from unit.fakes import FakeScorer, TableModel, make_batch


def literal_tilt(out, b: int, tau: float = 0.25) -> float:
    targets = out.supervised[b].nonzero()[:, 0].tolist()
    d = sum(1 - math.exp(out.logp[b, i].item()) for i in targets) / len(targets)
    return math.exp(d / tau)


def test_dro_is_the_literal_running_average():
    m = method("goldimask-d-dro", weigh={"momentum": 0.75})
    step, model, z = MaskedStep(m, FakeScorer()), TableModel(), None
    for n in range(1, 8):
        out = step(model, make_batch(), Keys(1, n))
        tilts = {b: literal_tilt(out, b) for b in range(4) if out.supervised[b].any()}
        for b, tilt in tilts.items():
            w = out.weights.value[b][out.supervised[b]]
            expected = 1.0 if z is None else tilt / z
            assert w.tolist() == pytest.approx([expected] * len(w), rel=1e-5)
        mean = sum(tilts.values()) / len(tilts)
        rate = max(1 / n, 0.25)
        z = mean if z is None else (1 - rate) * z + rate * mean
        assert m.state_dict()["weigh.normaliser"].item() == pytest.approx(z, rel=1e-6)


def test_dro_resumes_exactly_and_learns_from_training_only():
    def run(m, epochs, model):
        step = MaskedStep(m, FakeScorer())
        return [step(model, make_batch(), Keys(1, e)).loss.item() for e in epochs]

    model = TableModel()
    straight = method("goldimask-d-dro")
    all_losses = run(straight, range(6), model)
    first, second = method("goldimask-d-dro"), method("goldimask-d-dro")
    run(first, range(3), model)
    before = first.state_dict()
    with torch.no_grad():
        run(first, range(10, 12), model)  # evaluation leaves no trace
    assert all(torch.equal(before[k], v) for k, v in first.state_dict().items())
    second.load_state_dict(before)
    assert run(second, range(3, 6), model) == all_losses[3:]


def test_dro_ignores_batches_without_targets():
    m = method("goldimask-d-dro")
    MaskedStep(m, FakeScorer())(TableModel(), make_batch((1, 1)), Keys(0))
    state = m.state_dict()
    assert state["weigh.normaliser"] == 0 and state["weigh.steps"] == 0


def test_state_of_another_method_is_refused():
    state = method("goldimask-d-dro").state_dict()
    with pytest.raises(GoldimaskError, match=r"weigh.normaliser.*'vanilla' does not have"):
        method("vanilla").load_state_dict(state)
    with pytest.raises(GoldimaskError, match="lacks 'normaliser'"):
        method("goldimask-d-dro").load_state_dict({})
    assert method("goldimask-d").state_dict() == {}


def test_budget_sample_takes_exactly_k_by_an_exponential_race():
    for epoch in range(5):
        batch, keys = make_batch((14, 9, 3, 0)), Keys(41, epoch)
        m = method("budget-sample", weigh={"k": 4})
        out = MaskedStep(m, FakeScorer())(TableModel(), batch, keys)
        for b in range(batch.size):
            y = batch.response[b].nonzero()[:, 0].tolist()
            masked = out.supervised[b].nonzero()[:, 0].tolist()
            u = keys.rng(int(batch.example_id[b]), Stream.WEIGH).random(len(y))
            p = {i: math.exp(out.logp[b, i].item()) for i in masked}
            time = {i: -math.log1p(-u[y.index(i)]) / (p[i] * (1 - p[i]) ** 3) for i in masked}
            drawn = sorted(sorted(masked, key=time.__getitem__)[:4])
            assert out.weights.value[b].nonzero()[:, 0].tolist() == drawn
            loss = -sum(out.logp[b, i].item() for i in drawn) / max(1, len(drawn))
            assert out.per_example[b].item() == pytest.approx(loss, rel=1e-4, abs=1e-7)


def test_budget_sample_follows_the_priority():
    """One position of three: frequencies are proportional to lambda."""
    weigh = WEIGHERS.get("budget-sample")(k=1, priority=[1, 0])  # lambda = p
    batch = make_batch((3,), prompt=0)
    p = torch.tensor([[0.1, 0.3, 0.6]])
    counts = Counter(
        int(weigh(None, None, batch, batch.response, p.log(), Keys(0, e)).value.argmax())
        for e in range(1500)
    )
    np.testing.assert_allclose([counts[i] / 1500 for i in range(3)], p[0], atol=0.045)


def test_budget_sample_uniform_and_zero_priorities():
    batch = make_batch((4,), prompt=0)
    uniform = WEIGHERS.get("budget-sample")(k=2, priority=[0, 0])
    logp = torch.tensor([[0.0, -1.0, -2.0, -3.0]])
    assert uniform(None, None, batch, batch.response, logp, Keys(0)).value.sum() == 2
    hard = WEIGHERS.get("budget-sample")(k=3, priority="1-p")
    certain = torch.tensor([[0.0, 0.0, -1.0, 0.0]])  # p = 1 has no priority, yet k = 3 are drawn
    value = hard(None, None, batch, batch.response, certain, Keys(0)).value
    assert value.sum() == 3 and value[0, 2] == 1


def test_study_one_pairs_across_priorities():
    batch, keys = make_batch(), Keys(3)
    masks = [
        MaskedStep(method("budget-sample", weigh={"priority": p}), FakeScorer())(
            TableModel(), batch, keys
        ).supervised
        for p in ("1-p", "p(1-p)", [0, 0])
    ]
    assert all(torch.equal(masks[0], m) for m in masks)


@pytest.mark.parametrize(
    "name", ["goldimask-d", "goldimask-d-uncapped", "goldimask-d-clip", "goldimask-d-c5"]
)
def test_weights_from_the_measured_response(name):
    """Mean one (except where clipping loses mass), zero where the reveal did not help."""
    rule = {"goldimask-d": 10.0, "goldimask-d-c5": 5.0}
    for epoch in range(5):
        m = method(name, weigh={"cap": 2.0} if name == "goldimask-d-clip" else {})
        out = MaskedStep(m, FakeScorer())(TableModel(), make_batch(), Keys(51, epoch))
        for b in range(4):
            s = out.supervised[b]
            n, opened = int(s.sum()), bool(out.reveal.mask[b].any())
            if not n or not opened:
                continue
            before, after = out.signals.logp[b][s].double(), out.logp[b][s].double()
            p = after.exp()
            u = (after - before).clamp_min(0) * p * (1 - p) ** 3
            w = out.weights.value[b][s].double()
            if u.sum() == 0:
                assert (w == 1).all()
            elif name in rule:
                assert w.sum().item() == pytest.approx(n, rel=1e-5) and w.max() <= rule[name] + 1e-5
            else:
                plain = u * n / u.sum()
                expected = plain.clamp_max(2.0) if name == "goldimask-d-clip" else plain
                torch.testing.assert_close(w, expected, rtol=1e-4, atol=1e-6)
