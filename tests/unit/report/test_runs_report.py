"""A report says what the run folders say, in every format."""

import csv
import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from goldimask.cli.app import app
from goldimask.errors import GoldimaskError
from goldimask.records import Manifest, Trial, append_lines, write_manifest
from goldimask.report.comparison import Choices
from goldimask.report.runs_page import markdown, write_files, write_html
from goldimask.report.runs_report import make_report
from goldimask.report.sources import read_sources
from unit.outcomes import outcome, outcomes
from unit.report.support import HOSTILE, embedded

LOSSES = {"vanilla": [2.0, 1.5, 1.25], "goldimask-d": [2.5, 1.75, 1.0]}


@pytest.fixture(autouse=True)
def weights(monkeypatch):
    """Runs without weights: the hash of a folder is what the test says."""
    known = {}
    monkeypatch.setattr(
        "goldimask.backbones.identity.weights_hash",
        lambda folder, remember=None: known.get(folder.name, "w"),
    )
    return known


def write_run(folder, preset, seed=1, answers=None):
    """A finished, evaluated run as `goldimask train` and `goldimask eval` leave it."""
    folder.mkdir(parents=True)
    recipe = {"seed": seed, "method": {"preset": preset, "weigh": {"cap": 4}}, "data": {"a": [1]}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    facts = {"steps": 30, "examples": 9, "eval_loss_first": 2.0, "eval_loss_best": 1.0}
    write_manifest(folder, Manifest(kind="train", key="k", model="m", weights="b", facts=facts))
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_model.safetensors").touch()  # its hash is `weights`
    lines = [
        {"step": 10 * (i + 1), "loss": x, "seconds/train": 0.5, "seconds/probe": 0.1 * seed}
        for i, x in enumerate(LOSSES[preset])
    ]
    lines.append({"step": 30, "eval_loss": 1.0})
    text = "".join(json.dumps(x) + "\n" for x in lines)
    (folder / "metrics.jsonl").write_text(text + '{"step": 40, "lo')
    (folder / "step.html").write_text("<p>page</p>")
    if answers is None:
        answers = outcomes([True, False, False, True])
    return write_evaluation(folder / "eval", answers).parent


def write_evaluation(folder, answers, trials=()):
    append_lines(folder / "samples-0.jsonl", answers)
    made = Manifest(kind="evaluate", key="k", model="m", weights="w", trials=list(trials))
    write_manifest(folder, made)
    return folder


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "runs" / "vanilla", "vanilla")
    better = outcomes([True, True, False, True], output=HOSTILE[0])
    write_run(tmp_path / "runs" / "ours", "goldimask-d", 2, better)
    return [str(tmp_path / "runs" / name) for name in ("vanilla", "ours")]


def table(report, name):
    return next(t for t in report.tables if t.name == name)


def test_tables_hold_the_runs_own_numbers(runs):
    report = make_report(*read_sources(runs))
    assert table(report, "runs").rows[1][:5] == ("ours", "goldimask-d", 2, 30, 9)
    rows = {row[0]: row[1:] for row in table(report, "recipes").rows}
    assert rows == {"seed": ("1", "2"), "method.preset": ("vanilla", "goldimask-d")}
    assert "2 other keys are equal" in table(report, "recipes").note
    found = {row[0]: row for row in table(report, "evaluation").rows}
    assert found["vanilla"][4] == 50.0 and found["ours"][4] == 75.0
    assert found["ours"][-2:] == (11.5, 0.1) and found["ours"][7] == "accuracy"
    tested = table(report, "mcnemar").rows[0]
    assert tested[:6] == ("goldimask-d - vanilla", "tiny-sort", 64, 4, 1, 25.0)
    assert tested[7:] == (0, 1, 1.0)
    cost = {row[0]: row for row in table(report, "cost").rows}
    assert cost["vanilla"][2] == pytest.approx(0.1) and cost["ours"][-1] == pytest.approx(0.7 / 0.6)


def test_figures_hold_the_logged_values(runs):
    report = make_report(*read_sources(runs))
    loss = next(f for f in report.figures if f.name == "loss")
    assert [(x.name, x.family) for x in loss.lines] == [
        ("vanilla", "vanilla"),
        ("ours", "goldimask-d"),
    ]
    assert loss.lines[1].points == ((10.0, 2.5), (20.0, 1.75), (30.0, 1.0))
    assert [f.name for f in report.figures] == ["loss", "eval_loss", "paired"]


def test_what_is_missing_is_said(tmp_path, runs):
    trial = {"task": "tiny-sort", "length": 64, "seed": 0, "prompts": "h"}
    trials = [Trial(**trial, decoding=outcome(0).decoding, items=9)]
    other = write_evaluation(tmp_path / "other", outcomes([True] * 4), trials)
    given = read_sources([runs[0], str(other)])
    with pytest.raises(
        GoldimaskError, match=r"other: tiny-sort, length 64, seed 0.*4 of 9 answers"
    ):
        make_report(*given)
    report = make_report(*given, choices=Choices(allow_incomplete=True))
    assert "50.0" in markdown(report, [], tmp_path) and "100.0 †" in markdown(report, [], tmp_path)
    notes = report.notes
    assert "vanilla: 1 unreadable lines of metrics left out" in notes
    assert any("other: tiny-sort, length 64, seed 0" in n and "4 of 9" in n for n in notes)


def test_answers_of_other_weights_are_refused(runs, weights):
    weights["ours"] = "changed"
    with pytest.raises(GoldimaskError, match=r"ours.eval: these are answers of weights w, but"):
        make_report(*read_sources(runs))


def test_answers_of_weights_that_were_taken_away_are_shown_with_a_word(runs, weights, capsys):
    before = make_report(*read_sources(runs)).tables
    weights["ours"] = "changed"
    for file in Path(runs[0]).parent.glob("*/adapter/*.safetensors"):
        file.unlink()
    capsys.readouterr()
    assert make_report(*read_sources(runs)).tables == before
    assert capsys.readouterr().err.count("runs without weights") == 1


def test_seeds_of_a_method_are_given_one_name(tmp_path):
    given = {"v": ("vanilla", [[True, False], [False, False]]),
             "g": ("goldimask-d", [[True, True], [True, False]])}  # fmt: skip
    words = []
    for name, (preset, many) in given.items():
        for seed, verdicts in enumerate(many):
            path = write_run(tmp_path / f"{name}{seed}", preset, seed, outcomes(verdicts))
            words.append(f"{preset}={path}")
    sources, _ = read_sources(words)
    assert [s.label for s in sources[:2]] == ["vanilla (v0)", "vanilla (v1)"]
    (found,) = make_report(sources, {}).comparisons
    assert found.results.strongest == "vanilla"
    ours = found.results.lines[1]
    assert (ours.cells["tiny-sort"].mean, ours.cells["tiny-sort"].n) == (0.75, 2)
    assert ours.change == {"tiny-sort": pytest.approx(2.0)}
    (pair,) = found.pairs
    task = pair.found.tasks["tiny-sort"]
    assert (task.n, task.difference, task.p, pair.found.seeds) == (4, 0.5, None, 2)


def test_decodings_are_never_mixed(tmp_path):
    """Thresholds have tables of their own, and a figure; a decoding without one has a table."""
    for name, preset, steps in (("a", "vanilla", 20), ("b", "goldimask-d", 15)):
        answers = [
            outcome(i, i < limit, tau, steps=round(steps * tau))
            for tau, limit in ((0.7, 2), (0.9, 3))
            for i in range(4)
        ]
        write_run(tmp_path / name, preset, answers=[*answers, outcome(0, tau=None)])
    given = read_sources([str(tmp_path / "a"), str(tmp_path / "b")])
    report = make_report(*given)
    ways = lambda report: [c.decoding for c in report.comparisons]  # noqa: E731
    assert ways(report) == ["threshold"]  # the sweep has tables of its own
    asked = make_report(*given, choices=Choices(tau=0.9))
    assert ways(asked) == ["threshold", "threshold tau=0.9"]
    assert {"main-1", "main-2", "paired-2"} <= {t.name for t in asked.tables}
    figure = next(f for f in report.figures if f.name == "steps")
    assert figure.lines[1].points == ((round(15 * 0.7), 50.0), (round(15 * 0.9), 75.0))
    assert [x.dashed for x in figure.lines] == [True, False]
    assert table(report, "evaluation").columns[2] == "decoding"
    saved = table(report, "reductions").rows[1]
    assert saved[:2] == ("goldimask-d", "tiny-sort") and saved[5] == pytest.approx(22.2, abs=0.1)


def test_a_task_that_not_all_have_is_refused_or_left_empty(tmp_path):
    both = [*outcomes([True, False]), outcome(0, task="tiny-chain")]
    write_run(tmp_path / "a", "vanilla", answers=both)
    write_run(tmp_path / "b", "goldimask-d", answers=outcomes([True, True]))
    given = read_sources([str(tmp_path / x) for x in "ab"])
    with pytest.raises(GoldimaskError, match=r"b: tiny-chain, threshold tau=.*: not evaluated"):
        make_report(*given)
    (found,) = make_report(*given, choices=Choices(allow_incomplete=True)).comparisons
    ours = found.results.lines[1]
    assert "tiny-chain" not in ours.cells and "average" not in ours.cells
    assert ours.partial == {"tiny-chain", "average"} and ours.cells["tiny-sort"].mean == 1.0


def test_lengths_and_names_are_chosen(tmp_path):
    answers = [*outcomes([True, False], length=64), *outcomes([True, True], length=256)]
    write_run(tmp_path / "a", "vanilla", answers=answers)
    plain = write_evaluation(tmp_path / "plain", answers)
    sources, _ = read_sources([str(tmp_path / "a"), str(plain)])
    score = lambda n: make_report(sources, {}, choices=Choices(n)).comparisons[0].results.lines[0]  # noqa: E731
    assert score("best").cells["tiny-sort"].mean == 1.0
    assert score("64").cells["tiny-sort"].mean == 0.5
    (found,) = make_report(sources, {}, choices=Choices("64")).comparisons
    assert found.results.lines[0].change is None  # a model that was not trained here
    assert [line.method for line in found.results.lines] == ["plain", "vanilla"]
    (found,) = make_report(sources, {}, choices=Choices("64", ("plain",))).comparisons
    assert found.results.strongest == "plain" and found.results.lines[1].change is not None
    both = make_report(sources, {}, choices=Choices("both")).comparisons
    assert [c.length for c in both] == ["best"]  # the task has no length of its own
    with pytest.raises(GoldimaskError, match="no run named 'x'"):
        make_report(sources, {}, choices=Choices(baselines=("x",)))


def test_every_figure_and_table_becomes_files(runs, tmp_path):
    report = make_report(*read_sources(runs))
    names = {f.name for f in write_files(report, tmp_path / "files")}
    for figure in report.figures:
        assert {f"{figure.name}.pdf", f"{figure.name}.png"} <= names
    for t in report.tables:
        assert {f"{t.name}.{x}" for x in ("csv", "md", "tex", "json")} <= names
    rows = list(csv.reader((tmp_path / "files" / "evaluation.csv").open()))
    assert rows[1][0] == "vanilla" and float(rows[1][4]) == 50.0
    first = (tmp_path / "files" / "loss.pdf").read_bytes()
    write_files(report, tmp_path / "again")
    assert (tmp_path / "again" / "loss.pdf").read_bytes() == first


def test_the_page_links_and_shows_answers_as_text(runs, tmp_path):
    report = make_report(*read_sources(runs))
    files = write_files(report, tmp_path / "report_files")
    page = write_html([report], tmp_path / "report.html", files).read_text("utf-8")
    sections = {s["title"]: s for s in embedded(page)["sections"]}
    cells = sections["Cells"]["data"]["cells"]
    links = [x["href"] for cell in cells for x in cell["pages"]]
    assert links == ["runs/vanilla/step.html", "runs/ours/step.html"]
    assert [(c["row"], c["average"], c["state"]) for c in cells] == [
        *(("vanilla", 50.0, "evaluated"), ("goldimask-d", 75.0, "evaluated")),
    ]
    found = sections["Answers side by side"]
    problems = found["data"]["problems"]
    assert [p["item"] for p in problems] == ["p1", "p0", "p2", "p3"]  # they disagree on p1
    assert problems[0]["rows"][1] == [1, True, "4", 11, HOSTILE[0]]
    assert "4 of 4 problems with 8 of 8 answers" in found["note"]
    lines = sections["Training"]["data"]
    assert lines["lines"][0] == [0, "loss", 0, [2.0, 1.5, 1.25]]
    assert lines["grids"][0] == [10.0, 20.0, 30.0]
    shown = next(
        t for t in sections["Tables"]["data"]["tables"] if t["title"].startswith("Accuracy")
    )
    assert shown["rows"] == [
        ["vanilla", "50.0"],
        ["goldimask-d", "75.0"],
        ["vs. vanilla", "↑ 50.0%"],
    ]
    assert page.count("<script") == 2
    assert "report_files/loss.png" in markdown(report, files, tmp_path / "report.html")


def test_the_verb(runs, tmp_path):
    out = tmp_path / "out" / "r.html"
    words = ["report", *runs, "-o", str(out), "--md", "--latex"]
    done = CliRunner().invoke(app, [*words, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["runs"] == ["vanilla", "ours"] and out.is_file()
    (found,) = result["comparisons"]
    assert found["strongest_baseline"] == "vanilla"
    assert found["methods"]["goldimask-d"]["change"]["tiny-sort"] == pytest.approx(0.5)
    assert found["paired"][0]["difference"] == 0.25 and found["paired"][0]["p"] == 1.0
    tex = out.with_suffix(".tex").read_text()
    assert r"\begin{document}" in tex and tex.count(r"\includegraphics") == len(result["figures"])
    assert "| vanilla |" in out.with_suffix(".md").read_text()
    text = CliRunner().invoke(app, words).stdout
    assert "vs. vanilla" in text and "goldimask-d - vanilla" in text


def test_results_are_printed_in_every_format(runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    marks = {
        "latex": "\\toprule",
        "markdown": "| method |",
        "csv": "method,task,mean,sd,seeds,change,against",
        "json": '"rows": [',
        "terminal": "p (",
    }
    for form, mark in marks.items():
        done = CliRunner().invoke(app, ["report", *runs, "--format", form])
        assert mark in done.stdout
    assert not (tmp_path / "report.html").exists()  # only the table was asked for
    done = CliRunner().invoke(app, ["report", *runs, "--tables", "paired", "--format", "markdown"])
    assert "| goldimask-d - vanilla | +25.0 [" in done.stdout and "| method |" not in done.stdout
    done = CliRunner().invoke(app, ["report", *runs, "--tables", "main,code", "--format", "csv"])
    assert "the folders hold nothing for code" in done.output
    done = CliRunner().invoke(app, ["report", *runs, "--tables", "mian"])
    assert isinstance(done.exception, GoldimaskError) and "main" in str(done.exception)
    done = CliRunner().invoke(app, ["report", *runs, "--format", "x"])
    assert isinstance(done.exception, GoldimaskError)


def test_studies_are_shown(tmp_path):
    """A folder of study results is a source; models and changes become tables and figures."""
    rows = [{"tau": 0.7, "precision": 0.9, "oracle_safe": 3.0}, {"tau": 0.9, "precision": None}]
    value = {"states": 4, "models": {"a": rows, "b": rows[:1]}, "changes": {}}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "result.json").write_text(json.dumps(value))
    with pytest.raises(GoldimaskError, match="no evaluation or study"):
        read_sources([str(tmp_path)])  # no manifest says whose result it is
    write_manifest(tmp_path / "out", Manifest(kind="measure", key="k", model="a, b", weights="w"))
    (tmp_path / "out").rename(tmp_path / "study-eligibility")
    runs, studies = read_sources([str(tmp_path)])
    assert read_sources([str(tmp_path / "study-eligibility")]) == (runs, studies)
    assert runs == [] and list(studies) == ["study-eligibility"]
    report = make_report(runs, studies)
    models = table(report, "study-eligibility-models")
    assert models.columns == ("", "tau", "precision", "oracle_safe")
    assert [r[0] for r in models.rows] == ["a", "a", "b"]
    precision = next(f for f in report.figures if f.name.endswith("precision"))
    assert [line.points for line in precision.lines] == [((0.7, 0.9),), ((0.7, 0.9),)]
    (tmp_path / "study.json").write_text(json.dumps({"models": {"a": {"share": {"0.9": 0.25}}}}))
    report = make_report(*read_sources([str(tmp_path / "study.json")]))
    assert table(report, "study-models").rows == (("a", 0.25),)


def test_runs_of_one_name_are_told_apart(tmp_path):
    paths = [str(write_run(tmp_path / x / "run", "vanilla")) for x in "ab"]
    found, _ = read_sources(paths)
    assert [(r.name, r.label) for r in found] == [("vanilla", p) for p in paths]
    found, _ = read_sources([f"n={p}" for p in paths])
    assert [r.label for r in found] == [f"n ({p})" for p in paths]


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("none", None, "not a run folder"),
        ("x.json", "[1]", "expected a JSON object"),
        ("y.json", "{", "not valid JSON"),
        ("z.json", None, "no such file"),
    ],
)
def test_bad_input_is_named(tmp_path, name, content, match):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(GoldimaskError, match=match):
        read_sources([str(tmp_path / name)])


def test_an_unfinished_run_has_less_to_show(tmp_path):
    (tmp_path / "recipe.yaml").write_text("seed: 3\n")
    report = make_report(*read_sources([str(tmp_path)]))
    assert [t.name for t in report.tables] == ["runs"] and not report.figures
