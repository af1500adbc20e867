"""One table in five formats; the paper's results table."""

from __future__ import annotations

import csv as csv_files
import io
import json as json_files
import math
import statistics

import pytest

from goldimask.errors import GoldimaskError
from goldimask.report.json_tables import tables_of
from goldimask.report.results import panels_table, results
from goldimask.tables import (
    Change,
    Panel,
    Table,
    csv,
    file_name,
    json,
    latex,
    markdown,
    shown,
    terminal,
    write,
)

RUNS = {
    "base": {0: {"gsm8k": 0.9, "sudoku": 0.9}},
    "vanilla": {42: {"gsm8k": 0.78, "sudoku": 0.10}, 43: {"gsm8k": 0.80, "sudoku": 0.14}},
    "lift": {42: {"gsm8k": 0.79, "sudoku": 0.20}, 43: {"gsm8k": 0.79, "sudoku": 0.22}},
    "goldimask-d": {42: {"gsm8k": 0.80, "sudoku": 0.18}, 43: {"gsm8k": 0.82, "sudoku": 0.20}},
}


def test_results_follow_the_paper():
    found = results(RUNS, baselines=("vanilla", "lift"), base=("base",))
    assert found.strongest == "lift"  # by average, and never the untuned model
    ours = found.lines[-1]
    assert ours.change is not None and ours.change["gsm8k"] == pytest.approx(0.81 / 0.79 - 1)
    assert ours.change["sudoku"] == pytest.approx(0.19 / 0.21 - 1)
    assert ours.cells["gsm8k"].sd == pytest.approx(math.sqrt(2) * 0.01)
    averages = [(0.80 + 0.18) / 2, (0.82 + 0.20) / 2]
    assert ours.cells["average"].sd == pytest.approx(statistics.stdev(averages))
    assert all(line.change is None for line in found.lines[:-1])
    assert found.lines[0].best == {"gsm8k", "sudoku", "average"}


def test_results_in_every_format():
    runs = {k: v for k, v in RUNS.items() if k != "base"}
    found = results(runs, ("vanilla", "lift"))
    made = panels_table({"": found}, "main", "Accuracy", "fixed length")
    text = markdown(made)
    assert "| goldimask-d | **81.0 ± 1.4** | 19.0 ± 1.4 |" in text
    assert "| vs. lift | ↑ 2.5% | ↓ 9.5% |" in text and "fixed length" in text
    text = latex(made)
    assert "\\textbf{81.0}{\\scriptsize\\,$\\pm$\\,1.4}" in text
    assert "{\\scriptsize $\\downarrow$ 9.5\\%}" in text and text.count("\\\\") == 5
    rows = list(csv_files.DictReader(io.StringIO(csv(made))))
    assert len(rows) == 9 and rows[-1]["against"] == "lift" and rows[0]["change"] == ""
    assert float(rows[6]["mean"]) == pytest.approx(0.81)
    record = json_files.loads(json(made))["rows"][6]
    assert record["mean"] == pytest.approx(0.81) and record["change"] == pytest.approx(2 / 79)
    lines = terminal(made).splitlines()
    assert len({len(x) for x in lines[2:8]}) == 1 and "vs. lift" in lines[7]


def test_panels_stand_below_or_beside_each_other():
    """Side by side, as the paper's table of code: groups of columns, no name of one baseline."""
    found = results({k: v for k, v in RUNS.items() if k != "base"}, ("vanilla", "lift"))
    below = panels_table({"A": found, "B": found}, "main", "Accuracy")
    assert [row[0] for row in below.rows].count(Panel("A")) == 1 and len(below.rows) == 10
    beside = panels_table({"A": found, "B": found}, "code", "Code", wide=True)
    assert beside.columns == ("method", *(f"{p}: {c}" for p in "AB" for c in found.columns))
    assert len(beside.rows) == 4 and beside.rows[-1][0] == "vs. best baseline"
    text = latex(beside)
    assert r" & \multicolumn{3}{c}{A} & \multicolumn{3}{c}{B} \\" in text
    assert r"\cmidrule(lr){2-4}\cmidrule(lr){5-7}" in text
    assert r"Method & GSM8K & Sudoku & Average & GSM8K & Sudoku & Average \\" in text
    assert "GoldiMask-D & " in text and csv(beside) == csv(below)
    one = {"A": results({"v": {0: {"aime24": 0.1}}}), "B": results({"v": {0: {"aime24": 0.2}}})}
    single = panels_table(one, "aime", "AIME", wide=True)
    assert single.columns == ("method", "A", "B") and not single.groups


def test_a_long_table_is_several_in_latex():
    text = latex(Table("t", "Long", ("x",), tuple((i,) for i in range(120)), note="n"))
    assert text.count(r"\begin{table}") == text.count(r"\end{table}") == 3
    assert text.count(r"\caption{Long, continued}") == 2 and text.count("Long. n") == 1
    assert r"\label{tab:t-80}" in text and latex(Table("t", "None", ("x",), ())).count("rule") == 3


def test_parts_are_a_column_of_records():
    made = Table("t", "t", ("x", "n"), ((Panel("one"), ""), ("a", 1), (Panel("two"), ""), ("b", 2)))
    assert made.records == (("panel", "x", "n"), ("one", "a", 1), ("two", "b", 2))


def test_missing_scores_are_named():
    with pytest.raises(GoldimaskError, match="a, seed 0: no score for gsm8k"):
        results({"a": {0: {"sudoku": 1.0}}, "b": {1: {"gsm8k": 1.0}}})
    with pytest.raises(GoldimaskError, match="at least one method"):
        results({})
    assert shown(Change(None)) == shown(None) == "–"


def test_cells_are_escaped_in_every_format():
    made = Table("t", "a_b & c", ("x|y", "n"), (("50% <b>\n", 1.23456), ("\\x", None)))
    assert r"50\% \textless{}b\textgreater{}\textbackslash{}n & 1.235" in latex(made)
    assert r"\caption{a\_b \& c}" in latex(made) and r"\textbackslash{}x" in latex(made)
    assert "| 50% &lt;b>⏎ | 1.235 |" in markdown(made) and "x\\|y" in markdown(made)
    rows = list(csv_files.reader(csv(made).splitlines(keepends=True)))
    assert rows[1] == ["50% <b>\n", "1.23456"] and rows[2] == ["\\x", ""]
    assert shown("a\u202eb\u200b") == "aU+202EbU+200B"


def test_files_have_safe_names(tmp_path):
    made = Table("a/b c", "t", ("x",), ((1,),))
    names = [p.name for p in write(made, tmp_path)]
    assert names == ["a-b-c.csv", "a-b-c.md", "a-b-c.tex", "a-b-c.json"]
    assert file_name("…") == "-" and file_name("") == "unnamed"


def test_any_result_becomes_tables():
    value = {"states": 5, "models": {"a": {"share": {"0.9": 0.25}}}, "rows": [{"x": 1}, {"y": 2}]}
    one, two, three = tables_of("study", "Study", value)
    assert one.rows == (("states", 5),)
    assert two.columns == ("", "share.0.9") and two.rows == (("a", 0.25),)
    assert three.columns == ("x", "y") and three.rows == ((1, None), (None, 2))
    assert tables_of("n", "t", [1]) == []
