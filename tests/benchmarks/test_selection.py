"""benchmarks/selection.py: what it compares, and that it would notice."""

from __future__ import annotations

import json

import numpy as np
from typer import Typer
from typer.testing import CliRunner

import selection
from goldimask.objective import Support
from goldimask.select.base import Selection
from goldimask.select.engine import Rules, Task, run
from instances import instance


def test_bench_compares_all_engines():
    result = selection.measure(sizes=(24,), shares=(0.5,), rounds=1)
    rows = result["rows"]
    assert {r["engine"] for r in rows} == {"naive", "device", "heap", "host", "decoupled"}
    assert {r["selector"] for r in rows} == {"greedy", "randomized", "twin", "practical"}
    assert all(r["same_set"] for r in rows if r["engine"] != "decoupled")
    assert {"naive_over_practical", "practical_over_decoupled"} <= set(result["ratios"][0])
    for key in ("selector", "engine", "n", "budget", "seconds", "evaluations", "same_set"):
        assert all(key in r for r in rows)
    big = selection.measure(sizes=(40,), shares=(0.5,), rounds=1, full=30)["rows"]
    dense = [r for r in big if r["engine"] == "naive"]
    assert dense and all(r["extrapolated"] and r["same_set"] is None for r in dense)


def test_bench_says_what_it_compared(monkeypatch):
    monkeypatch.setattr(selection, "ORACLE", 20)
    rows = selection.measure(sizes=(40,), shares=(0.5,), rounds=1)["rows"]
    fast = [r for r in rows if r["engine"] == "host"]
    assert [r["reference"] for r in fast] == ["device", "device", None, None]
    assert all(r["same_set"] for r in rows if r["reference"])
    rows = selection.measure(sizes=(40,), shares=(0.5,), rounds=1, full=30)["rows"]
    fast = {r["selector"]: r for r in rows if r["engine"] == "host"}
    assert fast["greedy"]["reference"] == "heap" and fast["greedy"]["same_set"]
    for selector in ("randomized", "twin", "practical"):
        assert fast[selector]["same_set"] is None and fast[selector]["reference"] is None
    for selector in ("greedy", "randomized"):
        assert fast[selector]["audited"] == 12 and fast[selector]["audit"]


def test_the_audit_finds_a_wrong_choice():
    attention, priority = instance("real", 40)
    for selector in ("greedy", "randomized"):
        task = Task(attention, np.arange(40), priority, 20, selection.SEED)
        found = run([task], Rules(selector, Support()))[0]
        assert selection.audit(attention, priority, found, 20, selector)["audit"]
        swapped = found.order.copy()
        swapped[[3, 15]] = swapped[[15, 3]]
        wrong = Selection(swapped, found.gains, found.value)
        assert not selection.audit(attention, priority, wrong, 20, selector)["audit"]


def test_script():
    app = Typer()
    app.command()(selection.main)
    words = ["--sizes", "16", "--shares", "0.5", "--rounds", "1", "--json"]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert {"rows", "ratios"} <= set(json.loads(result.stdout))
    wrong = CliRunner().invoke(app, ["--sizes", "x"])
    assert wrong.exit_code != 0 and "--sizes" in str(wrong.exception)
