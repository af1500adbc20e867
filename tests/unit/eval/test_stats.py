"""Statistics against scipy and against direct enumeration; tables in four formats."""

from __future__ import annotations

import csv
import io
import itertools
import math
import statistics

import numpy as np
import pytest
from scipy import stats as scipy_stats

from goldimask.errors import GoldimaskError
from goldimask.eval.stats import mcnemar, paired, pass_at_k, spread, wilson
from goldimask.eval.tables import change_text, render, results_table


@pytest.mark.parametrize(("k", "n"), [(0, 7), (7, 7), (3, 10), (700, 1319), (1, 1)])
def test_wilson_is_scipy(k, n):
    expected = scipy_stats.binomtest(k, n).proportion_ci(method="wilson")
    assert wilson(k, n) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_wilson_of_nothing():
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("b", "c"), [(0, 0), (5, 0), (3, 9), (40, 41), (1, 1)])
def test_mcnemar_is_scipy(b, c):
    expected = scipy_stats.binomtest(b, b + c).pvalue if b + c else 1.0
    assert mcnemar(b, c) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_the_average_over_subsets():
    for outcomes in itertools.product([0, 1], repeat=5):
        for k in (1, 2, 5):
            subsets = list(itertools.combinations(outcomes, k))
            expected = sum(any(s) for s in subsets) / len(subsets)
            assert pass_at_k([(5, sum(outcomes))], k) == pytest.approx(expected)
    assert pass_at_k([(16, 1), (16, 0)], 16) == pytest.approx(0.5)
    with pytest.raises(GoldimaskError, match="at least k samples"):
        pass_at_k([(3, 1)], 4)


def test_paired_comparison():
    rng = np.random.default_rng(0)
    a = rng.random(400) < 0.5
    b = a | (rng.random(400) < 0.2)  # never worse
    rows = [[(float(x), 1.0, bool(x)) for x in run] for run in (a, b)]
    result = paired(*rows)
    gained = int((b & ~a).sum())
    assert (result.only_first, result.only_second) == (0, gained)
    assert result.difference == pytest.approx(gained / 400)
    assert 0 < result.low < result.difference < result.high
    expected = scipy_stats.bootstrap(
        (b.astype(float) - a.astype(float),), np.mean, method="percentile", rng=rng
    ).confidence_interval
    assert (result.low, result.high) == pytest.approx(tuple(expected), abs=0.01)
    assert paired(*rows) == result  # the same draws again
    same = paired(rows[0], rows[0])
    assert (same.difference, same.low, same.high, same.p) == (0, 0, 0, 1.0)
    with pytest.raises(GoldimaskError, match="same problems"):
        paired(rows[0], rows[1][:-1])


def test_paired_pools_partial_credit():
    first = [(2.0, 8.0, False), (8.0, 8.0, True)]
    second = [(4.0, 8.0, False), (8.0, 8.0, True)]
    assert paired(first, second).difference == pytest.approx(2 / 16)


def test_spread_is_the_sample_deviation():
    values = [0.1, 0.25, 0.4, 0.4]
    found = spread(values)
    assert found.mean == pytest.approx(statistics.mean(values))
    assert found.sd == pytest.approx(statistics.stdev(values))
    assert spread([0.5]).sd is None
    with pytest.raises(GoldimaskError):
        spread([])


SCORES = {
    "base": {0: {"gsm8k": 0.9, "sudoku": 0.9}},
    "vanilla": {42: {"gsm8k": 0.78, "sudoku": 0.10}, 43: {"gsm8k": 0.80, "sudoku": 0.14}},
    "lift": {42: {"gsm8k": 0.79, "sudoku": 0.20}, 43: {"gsm8k": 0.79, "sudoku": 0.22}},
    "goldimask-d": {42: {"gsm8k": 0.80, "sudoku": 0.18}, 43: {"gsm8k": 0.82, "sudoku": 0.20}},
}


def test_results_table_follows_the_paper():
    table = results_table(SCORES, baselines=("vanilla", "lift"), base=("base",))
    assert table.strongest == "lift"  # by average, and never the untuned model
    ours = table.lines[-1]
    assert ours.change is not None and ours.change["gsm8k"] == pytest.approx(0.81 / 0.79 - 1)
    assert ours.change["sudoku"] == pytest.approx(0.19 / 0.21 - 1)
    assert ours.cells["gsm8k"].sd == pytest.approx(math.sqrt(2) * 0.01)
    averages = [(0.80 + 0.18) / 2, (0.82 + 0.20) / 2]
    assert ours.cells["average"].sd == pytest.approx(statistics.stdev(averages))
    assert all(line.change is None for line in table.lines[:-1])
    assert table.lines[0].best == {"gsm8k", "sudoku", "average"}


def test_formats():
    scores = {k: v for k, v in SCORES.items() if k != "base"}
    table = results_table(scores, baselines=("vanilla", "lift"), note="fixed length")
    markdown = render(table, "markdown")
    assert "| goldimask-d | **81.0 ± 1.4** | 19.0 ± 1.4 |" in markdown
    assert "| vs. lift | ↑ 2.5% | ↓ 9.5% |" in markdown and "fixed length" in markdown
    latex = render(table, "latex")
    assert "\\textbf{81.0}{\\scriptsize\\,$\\pm$\\,1.4}" in latex
    assert "$\\downarrow$\\, 9.5\\%" in latex and latex.count("\\\\") == 5
    rows = list(csv.DictReader(io.StringIO(render(table, "csv"))))
    assert len(rows) == 9 and rows[-1]["against"] == "lift" and rows[0]["change"] == ""
    assert float(rows[6]["mean"]) == pytest.approx(0.81)
    lines = render(table, "terminal").splitlines()
    assert len({len(x) for x in lines[:6]}) == 1 and "vs. lift" in lines[5]


def test_missing_scores_are_named():
    with pytest.raises(GoldimaskError, match="a, seed 0: no score for gsm8k"):
        results_table({"a": {0: {"sudoku": 1.0}}, "b": {1: {"gsm8k": 1.0}}})
    assert change_text(None) == "-"
