"""Metrics: literal values, exact pooling, and the same names for every method."""

from __future__ import annotations

import math

import pytest
import torch

from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.metrics import NAMES, MetricPool, random_reveal, reveal_value, step_metrics
from goldimask.objective import Priority, Support, value
from goldimask.presets import PRESETS
from goldimask.select.base import candidate_attention
from goldimask.step import MaskedStep
from unit.fakes import FakeScorer, TableModel, make_batch, take

ALWAYS = {"ce", "n_eff_ratio", "weight_max", "candidates", "supervised", "reveal_fraction"}
ALWAYS |= {"examples_no_target", "examples_no_reveal", "seconds/train"}


def run(name: str, batch=None, keys=Keys(81)):
    batch = make_batch() if batch is None else batch
    return MaskedStep(method(name), FakeScorer())(TableModel(), batch, keys), batch


def pooled(*outs) -> dict[str, float]:
    pool = MetricPool()
    for out, batch in outs:
        pool.add(step_metrics(out, batch))
    return pool.pop()


@pytest.mark.parametrize("name", PRESETS.names())
def test_every_method_logs_the_shared_names(name):
    metrics = step_metrics(*run(name))
    assert set(metrics) <= set(NAMES)
    values = pooled(run(name))
    assert set(values) >= ALWAYS
    assert all(math.isfinite(v) for v in values.values())
    m = method(name)
    if m.needs and name != "agdo":
        assert 0 <= values["gain_positive"] <= 1
    if m.shown["objective"] is not None and name != "goldimask-a":
        assert {"value", "value_vs_random", "negative_reveals"} <= set(values)


def test_literal_values():
    out, batch = run("goldimask-d", make_batch((14, 9, 1, 5)))
    got = pooled((out, batch))
    s, c = out.supervised, out.corruption
    n = s.sum(1)
    assert got["ce"] == pytest.approx(-out.logp[s].mean().item(), rel=1e-5)
    assert got["candidates"] == pytest.approx(c.candidates.sum(1).float().mean().item())
    assert got["supervised"] == pytest.approx(n.float().mean().item())
    assert got["reveal_fraction"] == pytest.approx(
        (out.reveal.mask.sum() / c.candidates.sum()).item()
    )
    assert got["examples_no_target"] == int((n == 0).sum()) >= 1
    opened = out.reveal.mask.any(1)
    assert got["examples_no_reveal"] == int(((n > 0) & ~opened).sum())
    measured = s & opened[:, None]
    share = (out.logp > out.signals.logp)[measured].float().mean().item()
    assert got["gain_positive"] == pytest.approx(share)
    rows = [b for b in range(4) if n[b] > 0]
    w = out.weights.value
    n_eff = [(w[b].sum() ** 2 / (w[b] ** 2).sum() / n[b]).item() for b in rows]
    assert got["n_eff_ratio"] == pytest.approx(sum(n_eff) / len(rows), rel=1e-5)
    assert got["weight_max"] == pytest.approx(
        sum(w[b].max().item() for b in rows) / len(rows), rel=1e-5
    )
    gains = [g for row in out.reveal.gains for g in row]
    assert got["negative_reveals"] == pytest.approx(sum(g < 0 for g in gains) / len(gains))
    assert got["kept_ratio"] == pytest.approx(1.0)


def test_reveal_value_is_the_objective():
    out, batch = run("goldimask-r")
    control = random_reveal(out, batch)
    assert torch.equal(control.sum(1), out.reveal.mask.sum(1))
    assert not (control & ~out.corruption.candidates).any()
    for reveal in (out.reveal.mask, control):
        got = reveal_value(out, reveal, Priority(), Support())
        for b in range(batch.size):
            rows = out.corruption.candidates[b].nonzero()[:, 0]
            a = candidate_attention(out.signals, b, len(rows)).double().numpy()
            lam = Priority()(out.signals.logp[b, rows].double().exp().numpy())
            expected = value(a, lam, reveal[b, rows].numpy(), Support())
            assert got[b].item() == pytest.approx(expected, rel=1e-5, abs=1e-9)


def test_greedy_beats_random_and_is_its_own_measure():
    batch = make_batch((30, 26, 28, 33), prompt=3)
    outs = [run("goldimask-d", batch, Keys(5, e)) for e in range(4)]
    values = pooled(*outs)
    assert values["value_vs_random"] > 1.0
    assert "value_vs_greedy" not in values
    twin = pooled(*(run("goldimask-r", batch, Keys(5, e)) for e in range(4)))
    assert 0.3 < twin["value_vs_greedy"] <= 1.2


def test_pooling_is_exact_over_micro_batches_and_ranks():
    batch, keys = make_batch((14, 9, 1, 5)), Keys(3)
    whole = pooled(run("goldimask-t", batch, keys))
    parts = [run("goldimask-t", take(batch, rows), keys) for rows in ([0], [1, 2], [3])]
    micro = pooled(*parts)
    ranks = []
    for part in parts:
        pool = MetricPool()
        pool.add(step_metrics(*part))
        ranks.append(pool.sums)
    pool = MetricPool()
    pool.add(step_metrics(*parts[0]))
    summed = pool.pop(lambda x, how: sum(ranks), "cpu")
    for key in set(whole) - {"value_vs_random", "value_vs_greedy"}:
        if not key.startswith("seconds"):
            assert micro[key] == pytest.approx(whole[key], rel=1e-5), key
            assert summed[key] == pytest.approx(whole[key], rel=1e-5), key


def test_empty_pool_and_second_pop():
    pool = MetricPool()
    assert pool.pop() == {}
    pool.add(step_metrics(*run("vanilla", make_batch((0, 0)))))
    first = pool.pop()
    assert first["examples_no_target"] == 2 and "ce" not in first
    assert pool.pop() == {}


def test_early_stopping_shows_in_kept_ratio():
    batch = make_batch((40, 33), prompt=3)
    values = pooled(*(run("goldimask-t", batch, Keys(9, e)) for e in range(6)))
    assert values["kept_ratio"] > 1.0
    assert values["negative_reveals"] == 0.0


def test_the_second_selection_waits_for_a_log_line(monkeypatch):
    from goldimask import metrics

    asked = []
    original = metrics._against_greedy
    monkeypatch.setattr(metrics, "_against_greedy", lambda *a: asked.append(1) or original(*a))
    pool = MetricPool()
    for epoch in range(3):
        pool.add(step_metrics(*run("goldimask-r", keys=Keys(5, epoch))))
    assert asked == []
    assert "value_vs_greedy" in pool.pop() and asked == [1]
    assert pool.pop() == {} and asked == [1]
