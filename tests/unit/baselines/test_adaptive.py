"""goldimask-a: one pass, Vanilla first, memory refreshed by training, exact resume."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goldimask.baselines.memory import Memory
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.methods import Method, method
from goldimask.step import MaskedStep
from goldimask.types import Batch
from goldimask.weighting import water_fill
from unit.fakes import FakeScorer, TableModel, make_batch, take


def visits(m: Method, batch: Batch, epochs, model=None, scorer=None):
    step = MaskedStep(m, scorer or FakeScorer())
    model = model or TableModel()
    return [step(model, batch, Keys(71, e)) for e in epochs]


def test_first_visit_is_vanilla():
    batch, keys = make_batch(pad=3), Keys(71, 0)
    out = visits(method("goldimask-a"), batch, [0])[0]
    vanilla = MaskedStep(method("vanilla"), FakeScorer())(TableModel(), batch, keys)
    on = out.corruption.keep > 0  # D3: K = 0 has no target in any over-masking method
    assert on.any()
    assert torch.equal(out.supervised[on], vanilla.supervised[on])
    assert torch.allclose(out.per_example[on], vanilla.per_example[on])


def test_memory_holds_the_running_mean_and_the_last_attention_row():
    m = method("goldimask-a", select={"top": 3, "momentum": 0.25})
    batch, model = make_batch((12,), pad=2), TableModel()
    expected = np.full(12, np.nan)
    for epoch in range(5):
        out = visits(m, batch, [epoch], model)[0]
        with torch.no_grad():
            _, maps = model(batch.ids.masked_fill(out.supervised, 22), batch.valid)
        y = batch.response[0].nonzero()[:, 0].tolist()
        trace = m.memory.traces.get(100)
        for n, i in enumerate(y):
            if not out.supervised[0, i]:
                continue
            new = out.logp[0, i].item()
            old = expected[n]
            expected[n] = new if np.isnan(old) else 0.25 * old + 0.75 * new
            row = {k: maps[-1][0, i, j].item() for k, j in enumerate(y) if j != i}
            best = sorted(row, key=row.__getitem__, reverse=True)[:3]
            assert set(trace.index[n].tolist()) == set(best)
            assert trace.weight[n].tolist() == pytest.approx(
                sorted((row[k] for k in best), reverse=True), rel=2e-3
            )
        if trace is not None:
            np.testing.assert_allclose(trace.logp, expected, rtol=1e-5)


def test_later_visits_spend_the_budget_and_keep_the_unmeasured():
    batch, seen, explored = make_batch((14, 9, 17)), 0, 0
    for epoch in range(24):
        if epoch % 3 == 0:  # start afresh: little is known on a second visit
            m = method("goldimask-a")
        known = {
            i: np.isfinite(t.logp).copy() for i, t in m.memory.traces.items()
        }  # before this visit
        out = visits(m, batch, [epoch])[0]
        for b, example_id in enumerate(batch.example_id.tolist()):
            k, c = int(out.corruption.keep[b]), out.corruption.candidates[b]
            y = batch.response[b]
            if k == 0:
                assert not out.supervised[b].any()
                continue
            if example_id not in known or not known[example_id][c[y].numpy()].any():
                continue  # a first visit
            seen += 1
            size = int(c.sum())
            assert out.supervised[b].sum() == min(k, size)
            fresh = c[y].numpy() & ~known[example_id]
            kept = out.supervised[b][y].numpy()
            if fresh.sum() <= k:
                assert kept[fresh].all()  # what was never measured is a target now
            else:
                assert not kept[~fresh].any()
                explored += 1
    assert seen > 10 and explored > 0


def test_weights_fill_the_known_and_leave_one_to_the_unknown():
    m, batch = method("goldimask-a", weigh={"cap": 3.0}), make_batch((17, 15))
    outs = visits(m, batch, range(8))
    mixed = 0
    for out in outs:
        known = out.supervised & out.signals.logp.isfinite()
        unknown = out.supervised & ~known
        assert (out.weights.value[unknown] == 1).all()
        gain = (out.logp.double() - out.signals.logp.nan_to_num(nan=0.0).double()).clamp_min(0)
        p = out.logp.double().exp()
        expected = water_fill(gain * p * (1 - p) ** 3, known, 3.0)
        torch.testing.assert_close(
            out.weights.value[known].double(), expected[known], rtol=1e-4, atol=1e-6
        )
        mixed += int((known.any(1) & unknown.any(1)).sum())
        total = out.weights.value.sum(1)
        torch.testing.assert_close(total, out.supervised.sum(1).float(), rtol=1e-4, atol=1e-4)
    assert mixed > 0


def test_memory_is_per_example_and_independent_of_padding():
    together, apart = method("goldimask-a"), method("goldimask-a")
    batch, model = make_batch(), TableModel()
    left = make_batch(pad=5, left=True)
    for epoch in range(4):
        a = visits(together, batch, [epoch], model)[0]
        for b in range(batch.size):
            alone = visits(apart, take(left, [b]), [epoch], model)[0]
            inside = left.response[b]
            assert torch.equal(alone.supervised[0][inside], a.supervised[b][batch.response[b]])
            assert alone.per_example[0].item() == pytest.approx(a.per_example[b].item(), abs=1e-4)


def test_evaluation_leaves_no_trace():
    m, batch = method("goldimask-a"), make_batch()
    with torch.no_grad():
        visits(m, batch, range(3))
    assert m.memory.traces == {}


def test_resumes_exactly():
    batch, model = make_batch(), TableModel()
    straight, first, second = (method("goldimask-a") for _ in range(3))
    expected = [o.loss.item() for o in visits(straight, batch, range(6), model)]
    visits(first, batch, range(3), model)
    state = {k: v.clone() for k, v in first.state_dict().items()}
    assert all(isinstance(v, torch.Tensor) for v in state.values())
    second.load_state_dict(state)
    assert [o.loss.item() for o in visits(second, batch, range(3, 6), model)] == expected[3:]
    for key, value in straight.state_dict().items():
        torch.testing.assert_close(second.state_dict()[key], value, equal_nan=True, rtol=0, atol=0)


def test_empty_state_round_trip_and_mismatch():
    m = method("goldimask-a")
    m.load_state_dict(method("goldimask-a").state_dict())
    assert m.memory.traces == {} and m.memory.nbytes == 0
    other = method("goldimask-a", select={"top": 4})
    visits(other, make_batch(), range(2))
    with pytest.raises(GoldimaskError, match=r"method.select.top: 32, but the saved state has 4"):
        m.load_state_dict(other.state_dict())
    with pytest.raises(GoldimaskError, match="lacks"):
        m.load_state_dict({})


def test_stated_size_of_the_memory():
    m, batch = method("goldimask-a", select={"top": 8}), make_batch((20, 30), prompt=2)
    visits(m, batch, range(6))
    assert set(m.memory.traces) == set(batch.example_id.tolist())
    assert m.memory.nbytes == (20 + 30) * (4 + 6 * 8)


def test_other_maximisers_and_refusals():
    for kind in ("randomized", "twin", "static", "practical"):
        m = method("goldimask-a", select={"maximiser": kind})
        assert m.passes == 1
        assert all(torch.isfinite(o.loss) for o in visits(m, make_batch(), range(4)))
    with pytest.raises(
        GoldimaskError, match=r"method.weigh.kind: 'waterfill' needs a scoring pass"
    ):
        method("goldimask-a", weigh={"kind": "waterfill"})
    with pytest.raises(GoldimaskError, match=r"method.select.maximiser: Input should be 'greedy'"):
        method("goldimask-a", select={"maximiser": "entropy-resample"})
    with pytest.raises(GoldimaskError, match=r"method.select.momentum"):
        method("goldimask-a", select={"momentum": 1.0})
    m = method("vanilla", weigh={"kind": "recall"})
    with pytest.raises(GoldimaskError, match=r"only with select.kind 'recall'"):
        visits(m, make_batch(), [0])
    with pytest.raises(GoldimaskError, match="no attention"):
        visits(method("goldimask-a"), make_batch(), [0], scorer=_without_attention)


def _without_attention(model, batch, hidden, want=frozenset(), layer="last"):
    return FakeScorer()(model, batch, hidden)


def test_recalled_rows_match_the_candidates_they_stand_for():
    memory = Memory(top=2)
    batch = make_batch((5,), prompt=1)
    memory._update(100, 5, np.array([1, 3]), np.array([-1.0, -2.0]), torch.tensor(
        [[0.1, 0.0, 0.2, 0.4, 0.3], [0.5, 0.1, 0.2, 0.0, 0.2]]
    ))  # fmt: skip
    s = memory.recall(batch, batch.response)
    assert s.rows.tolist() == [[2, 4]]
    np.testing.assert_allclose(s.attention[0, 0], [0, 0, 0, 0, 0.4, 0.3], rtol=1e-3)
    assert s.logp[0, [2, 4]].tolist() == [-1.0, -2.0] and s.logp[0, 1].isnan()
