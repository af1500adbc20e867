"""`attention_layer: probe`: the informative block is found, and the R2 is what it says."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.train.attention_layer import Observations, choose_layer, within_target_r2
from goldimask.types import Signal, Signals
from unit.fakes import FakeScorer, TableModel, make_batch


def attention_of(batch, layer: int):
    """Random rows for each block, the same whatever is hidden."""
    g = torch.Generator().manual_seed(50 + layer)
    size = batch.ids.shape[1]
    return torch.rand(batch.size, size, size, generator=g).pow(4).softmax(-1)


def planted(model, batch, hidden, want=frozenset({Signal.LOGP}), layer="last"):
    """log p of a target grows with block 1's attention on visible tokens, and with nothing else."""
    model.calls += 1
    visible = (batch.valid & ~hidden).float()
    mass = (attention_of(batch, 1) * visible[:, None, :]).sum(-1)
    logp = -5.0 + 20.0 * mass
    if Signal.ATTENTION not in want:
        return Signals(logp=logp * hidden)
    width = int(hidden.sum(1).max())
    rows = torch.full((batch.size, width), -1)
    attention = torch.zeros(batch.size, width, batch.ids.shape[1])
    for b in range(batch.size):
        positions = hidden[b].nonzero()[:, 0]
        rows[b, : len(positions)] = positions
        attention[b, : len(positions)] = attention_of(batch, layer)[b, positions]
    return Signals(logp * hidden, None, attention, rows)


def batches(n: int = 4):
    return [make_batch((20, 24, 18, 22), prompt=3, first_id=100 + 10 * i) for i in range(n)]


def test_finds_the_planted_block():
    model = TableModel(layers=3)
    table = choose_layer(model, planted, batches(), Keys(0), layers=3, sets=6)
    assert table.best == 1 and table.informative
    assert table.rows[1].r2_linear > 0.99
    assert max(table.rows[n].r2 for n in (0, 2)) < 0.1
    assert model.calls == 4 * (3 + 6)
    record = table.as_dict()
    assert record["rows"][1]["layer"] == 1 and record["sets"] == 6
    assert record["targets"] > 50 and 2 <= record["examples"] <= 16


def test_nothing_to_foretell_is_said():
    def blind(model, batch, hidden, want=frozenset({Signal.LOGP}), layer="last"):
        signals = planted(model, batch, hidden, want, layer)
        g = torch.Generator().manual_seed(int(hidden.sum()) * 7 + 1)
        return Signals(
            torch.randn(hidden.shape, generator=g) * hidden, None, signals.attention, signals.rows
        )

    table = choose_layer(TableModel(), blind, batches(6), Keys(0), layers=2)
    assert table.rows[table.best].r2 < 0.05


def test_real_scorer_restores_the_mode_and_is_repeatable():
    model = TableModel(dropout=0.3).train()
    a, b = (choose_layer(model, FakeScorer(), batches(2), Keys(4), 2, sets=3) for _ in range(2))
    assert a == b and model.training
    assert model.head.grad is None


def test_r2_is_the_literal_statistic():
    rng = np.random.Generator(np.random.Philox(3))
    n, sets = 40, 5
    x, noise = rng.standard_normal((2, sets, n))
    example = np.arange(n) // 2
    bins = example // 2 % 4
    y = x * (1.0 + bins) + 0.5 * noise
    x, y = x - x.mean(0), y - y.mean(0)
    data = Observations(y, x[None], x[None], example, bins)
    scores = []
    for half in (0, 1):
        error = total = 0.0
        for b in range(4):
            fit = [i for i in range(n) if example[i] % 2 == half and bins[i] == b]
            judge = [i for i in range(n) if example[i] % 2 != half and bins[i] == b]
            square = sum(x[r, i] ** 2 for r in range(sets) for i in fit)
            cross = sum(x[r, i] * y[r, i] for r in range(sets) for i in fit)
            slope = cross / square
            error += sum((y[r, i] - slope * x[r, i]) ** 2 for r in range(sets) for i in judge)
            total += sum(y[r, i] ** 2 for r in range(sets) for i in judge)
        scores.append(1 - error / total)
    assert within_target_r2(y, x, data) == pytest.approx(np.mean(scores))


def test_too_little_data():
    with pytest.raises(GoldimaskError, match=r"attention_layer: probe needs at least two"):
        choose_layer(TableModel(), planted, [make_batch((1, 1))], Keys(0), layers=2)
    with pytest.raises(GoldimaskError, match=r"attention_layer: probe needs at least two"):
        choose_layer(TableModel(), planted, [], Keys(0), layers=2)
    with pytest.raises(GoldimaskError, match="sets: 1"):
        choose_layer(TableModel(), planted, batches(), Keys(0), layers=2, sets=1)
