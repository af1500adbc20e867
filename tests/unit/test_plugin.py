"""examples/plugin_method.py: by module:attribute, as a preset, and through the entry point."""

from __future__ import annotations

import importlib.metadata
import math
from pathlib import Path

import pytest

from goldimask import registry
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.presets import PRESETS
from goldimask.select.base import SELECTORS
from goldimask.step import MaskedStep
from goldimask.weighting import WEIGHERS
from unit.fakes import FakeScorer, TableModel, make_batch

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(autouse=True)
def on_path(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))


def check(m) -> None:
    batch = make_batch()
    out = MaskedStep(m, FakeScorer())(TableModel(), batch, Keys(1))
    before = out.signals.logp
    for b in range(batch.size):
        c, r = out.corruption.candidates[b], out.reveal.mask[b]
        if r.any() and out.supervised[b].any():
            assert before[b][r].min() >= before[b][c & ~r].max()
            w = out.weights.value[b][out.supervised[b]]
            assert w.mean().item() == pytest.approx(1.0, rel=1e-5)
    assert m.passes == 2


def test_by_module_and_attribute():
    check(
        method(
            select={"kind": "plugin_method:easy_first"},
            weigh={"kind": "plugin_method:one_minus_p", "floor": 0.1},
        )
    )
    check(method("plugin_method:EASY_FIRST"))


def test_options_of_a_plugin_are_checked_like_ours():
    with pytest.raises(
        GoldimaskError, match=r"method.weigh.flor: unknown key; did you mean 'floor'"
    ):
        method(weigh={"kind": "plugin_method:one_minus_p", "flor": 1})
    with pytest.raises(GoldimaskError, match=r"method.select.kind: cannot import 'nowhere'"):
        method(select={"kind": "nowhere:thing"})
    with pytest.raises(GoldimaskError, match=r"has no attribute 'thing'"):
        method(select={"kind": "plugin_method:thing"})
    with pytest.raises(
        GoldimaskError, match=r"'plugin_method:easy_first' is a function, not a Preset"
    ):
        method("plugin_method:easy_first")


def test_entry_point_adds_names(monkeypatch):
    point = importlib.metadata.EntryPoint(
        "easy-first", "plugin_method:register", "goldimask.plugins"
    )
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point])
    monkeypatch.setattr(registry, "_plugins_loaded", False)
    tables = (PRESETS, SELECTORS, WEIGHERS)
    saved = [dict(t._entries) for t in tables]
    try:
        assert "easy-first" in PRESETS.names()
        check(method("easy-first"))
    finally:
        for t, entries in zip(tables, saved, strict=True):
            t._entries.clear()
            t._entries.update(entries)


def test_the_example_runs(capsys):
    import plugin_method

    losses = plugin_method.main(steps=4)
    assert len(losses) == 4 and all(math.isfinite(x) and x > 0 for x in losses)
    assert "targets" in capsys.readouterr().out
