"""Pieces of the fast engine, and sizes the oracle is too slow for."""

from __future__ import annotations

import json

import numpy as np
import pytest
from goldimask.bench.select import FAMILIES, bench_select, heap, instance
from typer.testing import CliRunner

from goldimask.errors import GoldimaskError
from goldimask.objective import Support, marginals, value
from goldimask.select import kernels, swaps
from goldimask.select.engine import Rules, Task, lay_out, maximise, run


def start(n: int, family: str = "real", budget: int | None = None):
    attention, priority = instance(family, n, heads=2)
    task = Task(attention, np.arange(n), priority, n // 2 if budget is None else budget, 3)
    return task, lay_out(task)


def test_layout_is_the_transposed_candidates():
    rng = np.random.default_rng(0)
    wide = rng.random((37, 90), dtype=np.float32)
    rows = np.sort(rng.permutation(90)[:33])
    task = Task(wide, rows, np.ones(33), 3)
    at, most, received = lay_out(task)
    square = wide[:33][:, rows].copy()
    np.fill_diagonal(square, 0.0)
    assert (at[:, :33] == square.T).all() and (at[:, 33:] == 0).all()
    assert (most[:33] == square.max(1)).all()
    np.testing.assert_allclose(received[:33], square.sum(1), rtol=1e-5)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -1e-9])
def test_layout_finds_bad_entries(bad):
    task, _ = start(40)
    task.attention[3, 7] = bad
    with pytest.raises(GoldimaskError, match="attention"):
        lay_out(task)


@pytest.mark.parametrize("n", [1, 31, 33, 511, 512, 1024, 2048, 4096, 5000])
def test_padding(n):
    count, blocks, size = kernels.shape_of(n)
    assert count == n <= blocks * size and size % 32 == 0
    assert n < 512 or blocks % 2 == 1


def test_marginals_removals_and_value_follow_the_definition():
    task, (at, most, _) = start(70)
    largest = task.priority.max()
    s = kernels.new_state(at, task.priority / largest, most, 0.05)
    reveal = np.zeros(70, dtype=bool)
    for x in (5, 60, 11, 31):
        kernels.reveal(s, x)
        reveal[x] = True
        delta = marginals(task.attention, task.priority / largest, reveal, Support())
        for y in np.flatnonzero(~reveal):
            assert kernels.delta64(s, y) == pytest.approx(delta[y], abs=1e-13)
            approximate = kernels.gain32(s, y) - s.cost[y]
            assert abs(approximate - delta[y]) <= kernels.margin_of(70) * (delta[y] + 2 * s.cost[y])
    here = value(task.attention, task.priority / largest, reveal, Support())
    assert kernels.value64(s) == pytest.approx(here)
    for u in (5, 60, 11, 31):
        less = reveal.copy()
        less[u] = False
        without = value(task.attention, task.priority / largest, less, Support())
        assert swaps.removal64(s, u) == pytest.approx(without - here, abs=1e-13)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_equals_a_lazy_heap_where_the_oracle_is_too_slow(family):
    task, layout = start(600, family)
    fast = maximise(task, Rules("greedy", Support()), layout)
    slow = heap(layout, task.priority, task.budget)
    assert fast.order.tolist() == slow.order.tolist()
    np.testing.assert_allclose(fast.gains, slow.gains, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("selector", ["randomized", "twin", "practical"])
def test_large_examples_keep_their_promises(selector):
    task, layout = start(520)
    found = maximise(task, Rules(selector, Support()), layout)
    reveal = np.zeros(520, dtype=bool)
    reveal[found.order] = True
    assert reveal.sum() == len(found.order) <= task.budget
    expected = value(task.attention, task.priority, reveal, Support())
    assert found.value == pytest.approx(expected) == pytest.approx(found.gains.sum())
    assert found.evaluations < 520 * task.budget / 3  # it is lazy


def test_uniform_attention_is_all_ties():
    n = 130
    task = Task(np.full((n, n), 0.4 / n, np.float32), np.arange(n), np.full(n, 0.1), n // 2, 1)
    found = run([task], Rules("greedy", Support()))[0]
    assert found.order.tolist() == list(range(n // 2))


def test_compiled_kernels_are_valid_for_all_sources_or_none():
    index = kernels.gain32._cache._cache_file
    assert index._source_stamp == kernels.STAMP
    assert len(kernels.STAMP) == 32


def test_bench_compares_all_engines():
    result = bench_select(sizes=(24,), shares=(0.5,), rounds=1)
    rows = result["rows"]
    assert {r["engine"] for r in rows} == {"naive", "torch", "heap", "numba"}
    assert {r["selector"] for r in rows} == {"greedy", "randomized", "twin", "practical"}
    assert all(r["same_set"] for r in rows)
    for key in ("selector", "engine", "n", "budget", "seconds", "evaluations", "same_set"):
        assert all(key in r for r in rows)
    big = bench_select(sizes=(40,), shares=(0.5,), rounds=1, full=30)["rows"]
    dense = [r for r in big if r["engine"] in ("naive", "torch")]
    assert dense and all(r["extrapolated"] and r["same_set"] is None for r in dense)


def test_bench_says_what_it_compared(monkeypatch):
    from goldimask.bench import select as bench

    monkeypatch.setattr(bench, "ORACLE", 20)
    rows = bench_select(sizes=(40,), shares=(0.5,), rounds=1)["rows"]
    fast = [r for r in rows if r["engine"] == "numba"]
    assert {r["reference"] for r in fast} == {"torch"} and all(r["same_set"] for r in rows)
    rows = bench_select(sizes=(40,), shares=(0.5,), rounds=1, full=30)["rows"]
    fast = {r["selector"]: r for r in rows if r["engine"] == "numba"}
    assert fast["greedy"]["reference"] == "heap" and fast["greedy"]["same_set"]
    for selector in ("randomized", "twin", "practical"):
        assert fast[selector]["same_set"] is None and fast[selector]["reference"] is None
    for selector in ("greedy", "randomized"):
        assert fast[selector]["audited"] == 12 and fast[selector]["audit"]


def test_the_audit_finds_a_wrong_choice():
    from goldimask.bench.select import SEED, audit

    from goldimask.select.base import Selection

    attention, priority = instance("real", 40)
    for selector in ("greedy", "randomized"):
        task = Task(attention, np.arange(40), priority, 20, SEED)
        found = run([task], Rules(selector, Support()))[0]
        assert audit(attention, priority, found, 20, selector)["audit"]
        swapped = found.order.copy()
        swapped[[3, 15]] = swapped[[15, 3]]
        wrong = Selection(swapped, found.gains, found.value)
        assert not audit(attention, priority, wrong, 20, selector)["audit"]


def test_bench_command():
    from goldimask.cli import _register
    from goldimask.cli.app import app

    _register()
    args = ["bench", "select", "--sizes", "16", "--shares", "0.5", "--rounds", "1", "--json"]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    assert {"rows", "ratios"} <= set(json.loads(result.stdout))
    wrong = CliRunner().invoke(app, ["bench", "select", "--sizes", "x"])
    assert wrong.exit_code != 0 and "--sizes" in str(wrong.exception)


def test_the_batched_engine_may_cut_its_temporaries(monkeypatch):
    from goldimask.select import select_reveal

    attention, priority = instance("real", 30, heads=1)
    for part in (1, 700):
        monkeypatch.setattr("goldimask.select.batched.PART", part)
        for selector in ("greedy", "practical"):
            rng = [np.random.default_rng(0) for _ in range(2)]
            cut = select_reveal(attention, priority, 11, selector, rng=rng[0], engine="torch")
            whole = select_reveal(attention, priority, 11, selector, rng=rng[1], engine="numba")
            assert cut.order.tolist() == whole.order.tolist()
