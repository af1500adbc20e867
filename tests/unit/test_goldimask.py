"""GoldiMask-D: Algorithm 1 written out with loops, and the variants that share it."""

from __future__ import annotations

import math

import pytest
import torch

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.step import MaskedStep
from unit.fakes import MASK, FakeScorer, TableModel, make_batch


def priority(p: float) -> float:
    return p * (1 - p) ** 3


def support(s: float) -> float:
    return s / (s + 0.05)


def reveal_value(a, p, candidates, revealed) -> float:
    return sum(
        priority(p[i]) * support(sum(a[i][j] for j in revealed))
        for i in candidates
        if i not in revealed
    )


def literal_weights(u: list[float], cap: float) -> list[float]:
    n, positive = len(u), sum(x > 0 for x in u)
    if positive == 0:
        return [1.0] * n
    if cap * positive <= n:
        spread = (n - cap * positive) / max(1, n - positive)
        return [cap if x > 0 else spread for x in u]
    low, high = 0.0, sum(u)
    for _ in range(200):
        nu = (low + high) / 2
        low, high = (nu, high) if sum(min(x / nu, cap) for x in u) > n else (low, nu)
    return [min(x / high, cap) for x in u]


@pytest.mark.parametrize("cap", [10.0, 1.5])
def test_step_is_algorithm_one(cap):
    model, opened = TableModel(), 0
    m = method("goldimask-d", weigh={"cap": cap}, attention_layer=0)
    for epoch in range(4):
        batch, keys = make_batch((11, 7, 3, 1), pad=2), Keys(61, epoch)
        out = MaskedStep(m, FakeScorer())(model, batch, keys)
        c = out.corruption
        with torch.no_grad():
            logits, maps = model(batch.ids.masked_fill(c.candidates, MASK), batch.valid)
        logs = logits.double().log_softmax(-1)
        for b in range(batch.size):
            candidates = c.candidates[b].nonzero()[:, 0].tolist()
            t, length = c.t[b].item(), int(batch.response[b].sum())
            k = math.floor(t * length)
            if k == 0:
                assert out.per_example[b] == 0
                continue
            before = {i: logs[b, i, batch.ids[b, i]].item() for i in candidates}
            p = {i: math.exp(x) for i, x in before.items()}
            a = {i: {j: maps[0][b, i, j].item() * (i != j) for j in candidates} for i in candidates}
            revealed: list[int] = []
            for _ in range(max(0, len(candidates) - k)):
                rest = [x for x in candidates if x not in revealed]
                best = max(rest, key=lambda x: reveal_value(a, p, candidates, [*revealed, x]))
                revealed.append(best)
            targets = [i for i in candidates if i not in revealed]
            assert out.reveal.order[b] == revealed
            assert out.supervised[b].nonzero()[:, 0].tolist() == targets
            after = {i: out.logp[b, i].item() for i in targets}
            w = [1.0] * len(targets)
            if revealed:
                opened += 1
                u = [max(0.0, after[i] - before[i]) * priority(math.exp(after[i])) for i in targets]
                w = literal_weights(u, cap)
            assert out.weights.value[b, targets].tolist() == pytest.approx(w, rel=1e-3, abs=1e-4)
            loss = -sum(x * after[i] for x, i in zip(w, targets, strict=True)) / (t * length)
            assert out.per_example[b].item() == pytest.approx(loss, rel=1e-3, abs=1e-5)
    assert opened > 4


def test_attention_layer_reaches_the_probe():
    batch, keys, model = make_batch(), Keys(2), TableModel()
    a, b = (
        MaskedStep(method("goldimask-d", attention_layer=n), FakeScorer())(model, batch, keys)
        for n in (0, 1)
    )
    assert torch.equal(a.signals.logp, b.signals.logp)
    assert not torch.equal(a.signals.attention, b.signals.attention)


def test_same_selection_different_weights():
    """The ablations of the weighting share the reveal; those of the selection share C."""
    batch, keys, model = make_batch(), Keys(2), TableModel()
    outs = {
        name: MaskedStep(method(name), FakeScorer())(model, batch, keys)
        for name in ("goldimask-d", "goldimask-d-uniform", "goldimask-d-dro", "goldimask-d-c5")
    }
    masks = [o.reveal.mask for o in outs.values()]
    assert all(torch.equal(masks[0], m) for m in masks)
    plain = outs["goldimask-d-uniform"]
    assert torch.equal(plain.weights.value, plain.supervised.float())


def test_random_and_static_reveals_have_the_same_size_as_greedy():
    batch, keys, model = make_batch(), Keys(2), TableModel()
    sizes = [
        MaskedStep(method(name), FakeScorer())(model, batch, keys).reveal.mask.sum(1).tolist()
        for name in ("goldimask-d", "goldimask-r", "static-waterfill", "random-waterfill")
    ]
    assert all(s == sizes[0] for s in sizes)


def test_early_stopping_keeps_more_and_match_undoes_the_extra_weight():
    batch, model = make_batch((40, 33), prompt=3), TableModel()
    kept = 0
    for epoch in range(6):
        paper = MaskedStep(method("goldimask-t"), FakeScorer())(model, batch, Keys(9, epoch))
        matched = MaskedStep(method("goldimask-t", weigh={"kept_scale": "match"}), FakeScorer())(
            model, batch, Keys(9, epoch)
        )
        n, k = paper.supervised.sum(1), paper.corruption.keep
        for b in torch.nonzero((k > 0) & (n > k))[:, 0].tolist():
            kept += 1
            ratio = (matched.weights.scale[b] / paper.weights.scale[b]).item()
            assert ratio == pytest.approx((k[b] / n[b]).item(), rel=1e-5)
            assert paper.weights.value[b].sum().item() == pytest.approx(n[b].item(), rel=1e-4)
    assert kept > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"preset": "goldimask-x"}, r"method.preset: unknown method 'goldimask-x'; did you mean"),
        ({"weigh": {"cap": 1.0}}, r"method.weigh.cap: 1.0 must be greater than 1"),
        ({"weigh": {"kap": 3}}, r"method.weigh.kap: unknown key; did you mean 'cap'"),
        ({"weigh": {"cap": "much"}}, r"method.weigh.cap: .*number"),
        ({"weigh": {"kept_scale": "x"}}, r"method.weigh.kept_scale"),
        ({"weigh": {"priority": "p*p"}}, r"method.weigh.priority: cannot read"),
        ({"select": {"kind": "gredy"}}, r"method.select.kind: unknown selector 'gredy'; did you"),
        ({"select": {"support": {"s0": 0}}}, r"support.s0: 0 must be a positive"),
        ({"noise": {"kind": "x"}}, r"method.noise.kind: unknown noise 'x'"),
        ({"attention_layer": "first"}, r"method.attention_layer: 'first' must be"),
        ({"attention_layer": 1.5}, r"method.attention_layer: 1.5 must be"),
        ({"attention_layer": True}, r"method.attention_layer: True must be"),
        ({"probe_mode": "evil"}, r"method.probe.mode: 'evil'; did you mean 'eval'"),
        ({"protocol": "lft"}, r"method.protocol: 'lft'; did you mean 'lift'"),
        ({"weigh": {"kind": "dro", "tau": 0}}, r"method.weigh.tau: 0.0 must be greater"),
    ],
)
def test_mistakes_name_the_key(options, message):
    with pytest.raises(GoldimaskError, match=message):
        method(**options)


def test_another_kind_starts_from_its_own_defaults():
    m = method("goldimask-d", weigh={"kind": "uncapped"})
    assert m.weigh.rule == "uncapped" and str(m.weigh.priority) == "p(1-p)^3"
    m = method("goldimask-d", select={"support": {"s0": 0.2}, "priority": [2, 5]})
    assert m.select.support.s0 == 0.2 and m.select.support.kind == "saturating"
    assert (m.select.priority.a, m.select.priority.b) == (2.0, 5.0)


def test_default_is_never_the_single_pass_variant():
    assert method().name == "goldimask-d" and method().passes == 2
