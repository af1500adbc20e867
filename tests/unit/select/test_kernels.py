"""Pieces of the fast engine, and sizes the oracle is too slow for."""

from __future__ import annotations

import numpy as np
import pytest

from goldimask.errors import GoldimaskError
from goldimask.objective import Support, marginals, value
from goldimask.select import kernels, swaps
from goldimask.select.engine import Rules, Task, lay_out, maximise, run
from instances import FAMILIES, instance
from selection import heap


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
