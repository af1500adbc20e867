"""What cannot stand in one table is refused with the whole list; nothing is mixed by a name."""

from __future__ import annotations

import pytest
import yaml

from goldimask.errors import GoldimaskError
from goldimask.records import Decoding, Manifest, Trial, append_lines, write_manifest
from goldimask.report.comparison import Choices
from goldimask.report.result_tables import result_tables
from goldimask.report.runs_page import write_files
from goldimask.report.runs_report import make_report
from goldimask.report.sources import read_sources
from goldimask.tables import Panel, latex, terminal
from unit.outcomes import outcome, outcomes

AIME = Decoding(decoder="low-confidence", options={"block": 32, "temperature": 0.7})


@pytest.fixture(autouse=True)
def weights(monkeypatch):
    monkeypatch.setattr("goldimask.backbones.identity.weights_hash", lambda *_, **__: "w")


@pytest.fixture
def make(tmp_path):
    """A run with its evaluation; returns its folder."""

    def run(name, preset, answers, seed=1, backbone="llada", trials=(), corpus="s1k", **method):
        folder = tmp_path / name
        folder.mkdir()
        recipe = {"seed": seed, "backbone": {"name": backbone}, "data": {"corpus": corpus}}
        recipe["method"] = {"preset": preset, **method}
        (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        append_lines(folder / "eval" / "samples-0.jsonl", answers)
        made = Manifest(kind="evaluate", key="k", model=name, weights="w", trials=list(trials))
        write_manifest(folder / "eval", made)
        return str(folder)

    return run


def compared(*words, **choices):
    return make_report(*read_sources(words), choices=Choices(**choices)).comparisons


def test_other_protocols_versions_and_problems_are_listed(make):
    words = [
        make("a", "vanilla", outcomes([True, False])),
        make("b", "cart", outcomes([True, False], protocol="lift")),
        make("c", "gift", outcomes([True, False], version="2")),
        make("d", "agdo", outcomes([True])),
    ]
    with pytest.raises(GoldimaskError) as caught:
        compared(*words)
    text = str(caught.value)
    assert "protocol (threshold tau=0.9): fixed: a, c, d; lift: b" in text
    assert "version of tiny-sort (threshold tau=0.9): 1: a, b, d; 2: c" in text
    assert "problems of tiny-sort (threshold tau=0.9): n = 2: a, b, c; n = 1: d" in text
    with pytest.raises(GoldimaskError, match="cannot stand in one table"):
        compared(*words, allow_incomplete=True)  # only what is unfinished is let through


def test_duplicate_seeds_and_labels_of_two_methods_are_listed(make):
    one, two = (make(x, "vanilla", outcomes([True]), seed=42) for x in "ab")
    other = make("c", "cart", outcomes([True]), seed=43)
    with pytest.raises(GoldimaskError, match=r"duplicate: vanilla, seed 42, llada / s1k: a, b"):
        compared(one, two)
    with pytest.raises(GoldimaskError, match=r"duplicate: x, seed 42"):
        compared(f"x={one}", f"x={two}")
    with pytest.raises(GoldimaskError, match=r"'x' stands for several methods.*vanilla.*cart"):
        compared(f"x={one}", f"x={other}")
    (found,) = compared(f"x={one}", f"y={two}")  # two rows, because their labels say so
    assert [line.method for line in found.results.lines] == ["x", "y"]


def test_incomplete_evaluations_are_listed_or_marked(make):
    place = {"task": "tiny-sort", "length": 64, "seed": 0, "prompts": "h", "items": 4}
    trial = Trial(**place, decoding=outcome(0).decoding)
    words = [
        make("a", "vanilla", outcomes([True] * 4)),
        make("b", "goldimask-d", outcomes([True, False]), trials=[trial]),
    ]
    with pytest.raises(GoldimaskError, match=r"incomplete: b: tiny-sort, .*2 of 4 answers"):
        compared(*words)
    (table,) = result_tables(compared(*words, allow_incomplete=True))
    assert "50.0 †" in terminal(table) and r"$^\dagger$" in latex(table)
    assert "† not all answers are there" in table.note


def test_the_best_length_is_chosen_from_the_same_lengths(make):
    """Best of three against the only one would flatter the first."""
    many = [o for n in (64, 128, 256) for o in outcomes([n == 256, False], length=n)]
    words = [
        make("a", "vanilla", many),
        make("b", "goldimask-d", outcomes([True, False], length=64)),
    ]
    with pytest.raises(GoldimaskError, match=r"incomplete: b: tiny-sort, .*: length 128, 256"):
        compared(*words, length="best")
    (found,) = compared(*words, length="best", allow_incomplete=True)
    assert [x.partial for x in found.results.lines] == [set(), {"tiny-sort", "average"}]
    (found,) = compared(*words, length="64")  # of one length, nothing is missing
    assert not found.results.lines[1].partial


def test_runs_of_a_method_are_its_seeds_and_variants_are_told_apart(make):
    words = [
        make("v1", "vanilla", outcomes([True, False]), seed=1),
        make("v2", "vanilla", outcomes([True, True]), seed=2),
        make("d5", "goldimask-d", outcomes([True, True]), weigh={"cap": 5}),
        make("d10", "goldimask-d", outcomes([True, False]), weigh={"cap": 10}),
    ]
    (found,) = compared(*words)
    assert [(x.method, x.cells["tiny-sort"].n) for x in found.results.lines] == [
        *(("vanilla", 2), ("goldimask-d-c5", 1), ("goldimask-d", 1)),
    ]
    words[2:3] = [make("d7", "goldimask-d", outcomes([True, True]), weigh={"cap": 7})]
    (other,) = compared(*words)
    assert [x.method for x in other.results.lines[1:]] == ["goldimask-d weigh.cap=7", "goldimask-d"]

    (table,) = result_tables([found])
    assert "protocol fixed; n: tiny-sort 2" in table.note and "n: tiny-sort 2" in latex(table)


def test_backbones_are_panels_with_their_own_strongest_baseline(make, tmp_path):
    words = []
    for backbone in ("llada", "dream"):
        better = backbone == "llada"
        words += [
            make(f"{backbone}-v", "vanilla", outcomes([better, False]), backbone=backbone),
            make(f"{backbone}-c", "cart", outcomes([True, not better]), backbone=backbone),
            make(f"{backbone}-g", "goldimask-d", outcomes([True, True]), backbone=backbone),
        ]
    found = compared(*words)
    assert [(c.panel, c.results.strongest) for c in found] == [
        *(("llada / s1k", "vanilla"), ("dream / s1k", "cart")),
    ]
    (table,) = result_tables(found)
    tex = latex(table)
    assert tex.count(r"\multicolumn{2}{c}{\textbf{") == 2 and tex.count("toprule") == 1
    assert table.plain[0][0] == "panel" and table.plain[1][0] == "llada / s1k"
    report = make_report(*read_sources(words))
    names = [f.name for f in write_files(report, tmp_path / "files")]
    assert len(names) == len(set(names)) and {"paired.csv", "mcnemar.json"} <= set(names)
    paired = next(t for t in report.tables if t.name == "paired")
    heads = [row[0].title for row in paired.rows if isinstance(row[0], Panel)]
    assert heads == ["llada / s1k", "dream / s1k", "all (llada / s1k, dream / s1k)"]
    # D - Vanilla: 1/2 more on llada, 1 more on dream
    rows = [row[1] for row in paired.rows if row[0] == "goldimask-d - vanilla"]
    assert [str(x).split()[0] for x in rows] == ["+50.0", "+100.0", "+75.0"]


def test_the_better_lift_is_one_row(make):
    words = [
        make("v", "vanilla", outcomes([False, False])),
        make("l2", "lift-2", [*outcomes([True, False]), *outcomes([False] * 2, task="tiny-chain")]),
        make("l3", "lift-3", [*outcomes([True, False]), *outcomes([True] * 2, task="tiny-chain")]),
        make("g", "goldimask-d", [*outcomes([True] * 2), *outcomes([True] * 2, task="tiny-chain")]),
    ]
    with pytest.raises(GoldimaskError, match="not evaluated"):
        compared(*words)
    (found,) = compared(*words[1:])
    assert [x.method for x in found.results.lines] == ["LIFT*", "goldimask-d"]
    assert (
        found.results.strongest == "LIFT*" and found.results.lines[0].cells["average"].mean == 0.75
    )
    assert "LIFT* is lift-3, the better by average (lift-2 25.0, lift-3 75.0)" in found.note
    assert {p.first for p in found.pairs} == {"LIFT*"}


def aime(right):
    """Two problems, sixteen samples: those of `right` (problem, sample) are right."""
    return [
        outcome(i, (i, s) in right, task="aime24", seed=s, decoding=AIME, length=512)
        for i in range(2)
        for s in range(16)
    ]


def test_aime_is_pass_at_16_in_every_table(make):
    """One of two problems solved by one sample of sixteen: 50, not 3.1."""
    answers = outcomes([True, False], task="countdown", decoding=Decoding(decoder="low-confidence"))
    words = [
        make("v", "vanilla", [*answers, *aime([])]),
        make("g", "goldimask-d", [*answers, *aime([(1, 9)])]),
    ]
    report = make_report(*read_sources(words))
    one, two = result_tables(report.comparisons)
    assert "aime24 2 (pass@16)" in two.note and one.columns == ("method", "countdown")
    assert [line.cells["aime24"].mean for line in report.comparisons[1].results.lines] == [0.0, 0.5]
    (pair,) = report.comparisons[1].pairs
    found = pair.found.tasks["aime24"]
    assert (found.n, found.difference, found.p) == (2, 0.5, 1.0)
    assert two.name == "aime" and one.name == "main"
    rows = next(t for t in report.tables if t.name == "evaluation").rows
    assert [(r[1], r[6]) for r in rows if r[1] == "aime24"] == [("aime24", 0.0), ("aime24", 50.0)]
    few = make("f", "cart", [*answers, *[o for o in aime([]) if o.seed < 4]])
    with pytest.raises(GoldimaskError, match=r"f: aime24, low-confidence.*: 4 of 16 samples"):
        compared(*words, few)


def test_sweeps_of_two_decoders_have_files_of_their_own(make, tmp_path):
    def swept(shift):
        rule = lambda f: Decoding(decoder="factor", options={"factor": f})  # noqa: E731
        return [
            *(outcome(i, i < 2, tau, tokens=20 + i) for tau in (0.7, 0.9) for i in range(3)),
            *(outcome(i, i < shift, decoding=rule(f)) for f in (1.0, 2.0) for i in range(3)),
        ]

    words = [make("v", "vanilla", swept(1)), make("g", "goldimask-d", swept(2))]
    report = make_report(*read_sources(words))
    names = [f.name for f in report.figures if f.name.startswith("steps")]
    assert names == ["steps-factor", "steps-threshold"]
    names = {t.name for t in report.tables}
    assert {
        "thresholds-factor",
        "reductions-factor",
        "reductions-threshold",
        "aup-threshold",
    } <= names
    steps = next(t for t in report.tables if t.name == "thresholds-threshold")
    assert steps.columns[-3:] == ("seconds", "tokens/call", "n") and steps.rows[0][6] == 0.1
    files = [f.name for f in write_files(report, tmp_path / "files")]
    assert len(files) == len(set(files))
