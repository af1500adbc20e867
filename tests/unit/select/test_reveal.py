"""Selection inside a step: signals in, reveal mask out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.methods import method
from goldimask.objective import Priority
from goldimask.select import select_reveal
from goldimask.select.base import SELECTORS, candidate_attention
from goldimask.types import Batch, Corruption, Signal, Signals

NAMES = ("greedy", "randomized", "twin", "practical", "static", "random")


def scene(size: int = 4, length: int = 24, keep=(5, 0, 30, 3), seed: int = 0):
    g = torch.Generator().manual_seed(seed)
    candidates = torch.rand(size, length, generator=g) < 0.7
    counts = candidates.sum(1)
    rows = torch.full((size, int(counts.max())), -1)
    for b in range(size):
        rows[b, : counts[b]] = candidates[b].nonzero().squeeze(1)
    attention = torch.randn(size, rows.shape[1], length, generator=g).softmax(2)
    logp = torch.where(candidates, -3 * torch.rand(size, length, generator=g), 0.0)
    signals = Signals(logp=logp, attention=attention, rows=rows)
    full = torch.full((size,), 0.3)
    c = Corruption(candidates, full, full, torch.tensor(keep))
    real = torch.ones(size, length, dtype=torch.bool)
    batch = Batch(torch.zeros(size, length, dtype=torch.long), real, real, torch.arange(size) + 40)
    return c, signals, batch


def selector(name: str, **options):
    return method("goldimask-d", select={"kind": name, **options}).select


@pytest.mark.parametrize("name", NAMES)
def test_reveals_candidates_only_and_skips_what_has_no_budget(name):
    c, signals, batch = scene()
    reveal = selector(name)(c, signals, batch, Keys(1))
    assert not (reveal.mask & ~c.candidates).any()
    counts, budget = reveal.mask.sum(1), c.budget()
    assert counts[1] == 0 and counts[2] == 0  # K = 0, and a budget of zero
    if name in ("twin", "practical"):
        assert 0 < counts[0] <= budget[0]
    else:
        assert counts[0] == budget[0] and counts[3] == budget[3]
    assert reveal.order is not None
    for b in range(batch.size):
        assert sorted(reveal.order[b]) == reveal.mask[b].nonzero().squeeze(1).tolist()


def test_a_maximiser_is_not_called_without_a_budget(monkeypatch):
    c, signals, batch = scene(keep=(0, 0, 30, 30))
    monkeypatch.setattr("goldimask.select.engine.select", lambda *a: pytest.fail("called"))
    reveal = selector("greedy")(c, signals, batch, Keys(1))
    assert not reveal.mask.any() and reveal.value == [0.0] * 4


@pytest.mark.parametrize("name", ["greedy", "randomized", "twin", "practical", "static"])
def test_equals_select_reveal_on_the_candidates(name):
    c, signals, batch = scene()
    reveal = selector(name)(c, signals, batch, Keys(3, epoch=2))
    assert reveal.gains is not None and reveal.value is not None and reveal.order is not None
    for b in (0, 3):
        rows = c.candidates[b].nonzero().squeeze(1).numpy()
        attention = candidate_attention(signals, b, len(rows))
        lam = Priority()(signals.logp[b].double().exp()[rows].numpy())
        rng = Keys(3, 2).rng(int(batch.example_id[b]), Stream.SELECT)
        alone = select_reveal(attention, lam, int(c.budget()[b]), name, rng=rng, engine="oracle")
        assert reveal.order[b] == rows[alone.order].tolist()
        assert reveal.value[b] == pytest.approx(alone.value)
        assert sum(reveal.gains[b]) == pytest.approx(alone.value)


@pytest.mark.parametrize("name", NAMES)
def test_no_example_depends_on_its_batch_mates(name):
    c, signals, batch = scene()
    together = selector(name)(c, signals, batch, Keys(5))
    for b in range(batch.size):
        part = lambda x: x[b : b + 1]  # noqa: E731, B023
        alone = selector(name)(
            Corruption(part(c.candidates), part(c.t), part(c.rho), part(c.keep)),
            Signals(part(signals.logp), None, part(signals.attention), part(signals.rows)),
            Batch(part(batch.ids), part(batch.response), part(batch.valid), part(batch.example_id)),
            Keys(5),
        )
        assert (alone.mask[0] == together.mask[b]).all()


def test_draws_follow_the_keys():
    c, signals, batch = scene()
    masks = [selector("randomized")(c, signals, batch, Keys(s, e)).mask for s, e in
             [(1, 0), (1, 0), (2, 0), (1, 1)]]  # fmt: skip
    assert (masks[0] == masks[1]).all()
    assert (masks[0] != masks[2]).any() and (masks[0] != masks[3]).any()


@pytest.mark.parametrize("engine", ["host", "device"])
def test_surprise_is_attention_times_what_was_not_expected(engine):
    c, signals, batch = scene()
    reveal = selector("greedy", surprise=True, engine=engine)(c, signals, batch, Keys(3))
    for b in (0, 3):
        rows = c.candidates[b].nonzero().squeeze(1).numpy()
        p = signals.logp[b].double().exp()[rows].numpy()
        attention, budget = candidate_attention(signals, b, len(rows)), int(c.budget()[b])
        shown = select_reveal(attention * (1 - p), Priority()(p), budget, "greedy", engine="oracle")
        plain = select_reveal(attention, Priority()(p), budget, "greedy", engine="oracle")
        assert reveal.order[b] == rows[shown.order].tolist() != rows[plain.order].tolist()
        assert reveal.value[b] == pytest.approx(shown.value)


@pytest.mark.parametrize("name", ["greedy", "randomized"])
def test_the_device_engine_selects_the_same(name):
    c, signals, batch = scene()
    host = selector(name, engine="host")(c, signals, batch, Keys(5))
    device = selector(name, engine="device")(c, signals, batch, Keys(5))
    assert host.order == device.order
    assert host.value == pytest.approx(device.value)


@pytest.mark.parametrize("name", ["twin", "practical", "static"])
def test_the_device_engine_is_refused_where_there_is_none(name):
    with pytest.raises(GoldimaskError, match=r"method\.select\.engine"):
        selector(name, engine="device")


def test_needs():
    assert selector("random").needs == frozenset()
    for name in NAMES[:-1]:
        assert selector(name).needs == {Signal.LOGP, Signal.ATTENTION}
        assert SELECTORS.entry(name).summary


def test_half_precision_attention():
    c, signals, batch = scene()
    half = Signals(signals.logp, None, signals.attention.bfloat16(), signals.rows)
    same = Signals(signals.logp, None, signals.attention.bfloat16().float(), signals.rows)
    assert (
        selector("greedy")(c, half, batch, Keys(5)).order
        == selector("greedy")(c, same, batch, Keys(5)).order
    )


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"priority": "q"}, "method.select.priority"),
        ({"support": {"s1": 1}}, "method.select.support.s1"),
        ({"support": {"s0": 0}}, "support.s0"),
        ({"swap": "x"}, "method.select.swap"),
        ({"swaps": "many"}, "method.select.swaps"),
    ],
)
def test_recipe_errors_name_the_key(options, key):
    with pytest.raises(GoldimaskError, match=key):
        selector("practical", **options)


def test_bad_attention_is_an_error():
    c, signals, batch = scene()
    broken = signals.attention.clone()
    broken[0, 1] = float("nan")
    with pytest.raises(GoldimaskError, match="attention"):
        selector("greedy")(c, Signals(signals.logp, None, broken, signals.rows), batch, Keys(5))


def test_random_reveal_is_uniform():
    c, signals, batch = scene(1, 12, keep=(4,))
    count = np.zeros(12)
    for seed in range(600):
        count += selector("random")(c, signals, batch, Keys(seed)).mask[0].numpy()
    n, budget = int(c.candidates.sum()), int(c.budget()[0])
    expected = 600 * budget / n
    spread = np.sqrt(600 * budget / n * (1 - budget / n))
    assert (np.abs(count[c.candidates[0].numpy()] - expected) < 5 * spread).all()
