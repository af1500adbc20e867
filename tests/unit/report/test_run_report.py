"""A report says what the run folders say, in every format."""

import csv
import json

import pytest
import yaml
from typer.testing import CliRunner

from goldimask.cli import report as verb  # noqa: F401  registers the verb
from goldimask.cli.app import app
from goldimask.errors import GoldimaskError
from goldimask.jobs import make_manifest
from goldimask.records import Decoding, Outcome, append_lines, write_manifest
from goldimask.report.page import embedded
from goldimask.report.run_report import make_report, markdown, write_files, write_html
from goldimask.report.runs import read_run, read_sources
from goldimask.report.tables import Table, tables_of, to_csv, to_latex, to_markdown
from unit.report.support import HOSTILE

LOSSES = {"vanilla": [2.0, 1.5, 1.25], "goldimask-d": [2.5, 1.75, 1.0]}


def write_run(
    folder, preset, seed=1, correct=(True, False, False, True), output="out", taus=(0.9,)
):
    """A finished, evaluated run as `goldimask train` and `goldimask eval` leave it."""
    folder.mkdir(parents=True)
    recipe = {"seed": seed, "method": {"preset": preset, "weigh": {"cap": 4}}, "data": {"a": [1]}}
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    manifest = {"seed": seed, "steps": 30, "examples": 9, "eval_loss_first": 2.0}
    (folder / "manifest.json").write_text(json.dumps({**manifest, "eval_loss_best": 1.0}))
    lines = [
        {"step": 10 * (i + 1), "loss": x, "seconds/train": 0.5, "seconds/probe": 0.1 * seed}
        for i, x in enumerate(LOSSES[preset])
    ]
    lines.append({"step": 30, "eval_loss": 1.0})
    text = "".join(json.dumps(x) + "\n" for x in lines)
    (folder / "metrics.jsonl").write_text(text + '{"step": 40, "lo')
    answers = [outcome(i, ok, output, tau) for tau in taus for i, ok in enumerate(correct)]
    append_lines(folder / "eval" / "samples-0.jsonl", answers)
    write_manifest(folder / "eval", make_manifest("evaluate", "key", folder.name, "weights"))
    (folder / "step.html").write_text("<p>page</p>")
    return folder


def outcome(i, ok, output, tau):
    return Outcome(
        **{"task": "tiny-sort", "version": "1", "protocol": "fixed", "item": f"p{i}", "index": i},
        **{"length": 64, "seed": 0, "prompt": "h", "output": output, "extracted": "4"},
        decoding=Decoding(decoder="threshold", options={"tau": tau}),
        **{"correct": ok, "detail": "", "hits": 0.0, "of": 0.0, "steps": 10 + i, "seconds": 0.1},
    )


@pytest.fixture(autouse=True)
def weights(monkeypatch):
    """The runs here have no weights to hash."""
    monkeypatch.setattr(
        "goldimask.backbones.identity.weights_hash", lambda run, remember=None: "weights"
    )


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "runs" / "vanilla", "vanilla")
    write_run(tmp_path / "runs" / "ours", "goldimask-d", 2, (True, True, False, True), HOSTILE[0])
    return [str(tmp_path / "runs" / name) for name in ("vanilla", "ours")]


def table(report, name):
    return next(t for t in report.tables if t.name == name)


def test_tables_hold_the_runs_own_numbers(runs):
    report = make_report(*read_sources(runs))
    assert table(report, "runs").rows[1][:5] == ("ours", "goldimask-d", 2, 30, 9)
    rows = {row[0]: row[1:] for row in table(report, "recipes").rows}
    assert rows == {"seed": ("1", "2"), "method.preset": ("vanilla", "goldimask-d")}
    assert "2 other keys are equal" in table(report, "recipes").note
    results = {row[0]: row for row in table(report, "results").rows}
    assert results["vanilla"][4] == 50.0 and results["ours"][4] == 75.0
    assert results["ours"][-1] == 11.5
    paired = table(report, "paired").rows[0]
    assert paired[:5] == ("ours", "tiny-sort", 64, 4, 25.0) and paired[6:8] == (0, 1)
    cost = {row[0]: row for row in table(report, "cost").rows}
    assert cost["vanilla"][2] == pytest.approx(0.1) and cost["ours"][-1] == pytest.approx(0.7 / 0.6)


def test_figures_hold_the_logged_values(runs):
    report = make_report(*read_sources(runs))
    loss = next(f for f in report.figures if f.name == "loss")
    assert [line.name for line in loss.lines] == ["vanilla", "ours"]
    assert loss.lines[1].points == ((10.0, 2.5), (20.0, 1.75), (30.0, 1.0))
    assert [f.name for f in report.figures] == ["loss", "eval_loss"]


def test_a_torn_line_is_counted_and_said(runs):
    assert read_run(runs[0]).torn == 1
    assert any("1 unreadable" in note for note in make_report(*read_sources(runs)).notes)


def test_every_figure_and_table_becomes_files(runs, tmp_path):
    report = make_report(*read_sources(runs))
    names = {f.name for f in write_files(report, tmp_path / "files")}
    for figure in report.figures:
        assert {f"{figure.name}.pdf", f"{figure.name}.png"} <= names
    for t in report.tables:
        assert {f"{t.name}.csv", f"{t.name}.tex"} <= names
    rows = list(csv.reader((tmp_path / "files" / "results.csv").open()))
    assert rows[1][0] == "vanilla" and float(rows[1][4]) == 50.0
    first = (tmp_path / "files" / "loss.pdf").read_bytes()
    write_files(report, tmp_path / "again")
    assert (tmp_path / "again" / "loss.pdf").read_bytes() == first


def test_the_page_links_and_shows_samples_as_text(runs, tmp_path):
    report = make_report(*read_sources(runs))
    files = write_files(report, tmp_path / "report_files")
    page = write_html(report, tmp_path / "report.html", files).read_text("utf-8")
    sections = {s["title"]: s for s in embedded(page)["sections"]}
    links = [x["href"] for x in sections["Pages"]["data"]["links"]]
    assert links == ["runs/vanilla/step.html", "runs/ours/step.html"]
    shown = sections["Samples"]["data"]["samples"]
    assert shown[4]["output"] == HOSTILE[0] and [s["correct"] for s in shown].count(True) == 5
    assert page.count("<script") == 2
    assert "report_files/loss.png" in markdown(report, files, tmp_path / "report.html")


def test_the_verb(runs, tmp_path):
    out = tmp_path / "out" / "r.html"
    done = CliRunner().invoke(app, ["report", *runs, "-o", str(out), "--md", "--latex", "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["runs"] == ["vanilla", "ours"] and out.is_file()
    tex = out.with_suffix(".tex").read_text()
    assert r"\begin{document}" in tex and tex.count(r"\includegraphics") == len(result["figures"])
    assert "| vanilla |" in out.with_suffix(".md").read_text()


def test_thresholds_give_a_figure_and_the_steps_saved(tmp_path):
    taus = (0.7, 0.9)
    paths = [
        str(write_run(tmp_path / "vanilla", "vanilla", taus=taus)),
        str(write_run(tmp_path / "ours", "goldimask-d", correct=(True,) * 4, taus=taus)),
    ]
    report = make_report(*read_sources(paths))
    figure = next(f for f in report.figures if f.name == "sweep-tiny-sort-64")
    assert [line.points for line in figure.lines] == [((11.5, 50.0),) * 2, ((11.5, 100.0),) * 2]
    saved = table(report, "steps-saved").rows
    assert [row[:5] for row in saved] == [("ours", "tiny-sort", 64, t, "vanilla") for t in taus]
    assert saved[0][-2:] == (50.0, 4)
    assert len(table(report, "results").rows) == 4 and len(table(report, "paired").rows) == 2


def test_answers_of_other_weights_are_refused(runs, monkeypatch):
    monkeypatch.setattr(
        "goldimask.backbones.identity.weights_hash", lambda run, remember=None: "new"
    )
    with pytest.raises(GoldimaskError, match="answers of weights weights, but the run now holds"):
        read_sources(runs)


def test_sweeps_and_studies_are_shown(tmp_path):
    point = {"run": "a", "task": "t", "length": 64, "tau": 0.9, "accuracy": 0.5, "steps": 8.0}
    (tmp_path / "sweep.json").write_text(json.dumps({"points": [{**point, "n": 3}]}))
    study = {"states": 5, "models": {"a": {"share": {"0.9": 0.25}}}}
    (tmp_path / "study.json").write_text(json.dumps(study))
    report = make_report(*read_sources([str(tmp_path / n) for n in ("sweep.json", "study.json")]))
    assert report.figures[0].lines[0].points == ((8.0, 50.0),)
    assert table(report, "study").rows == (("states", 5),)
    models = table(report, "study-models")
    assert models.columns == ("", "share.0.9") and models.rows == (("a", 0.25),)


def test_runs_of_one_name_are_told_apart(tmp_path):
    paths = [str(write_run(tmp_path / x / "run", "vanilla")) for x in "ab"]
    found, _ = read_sources(paths)
    assert [r.name for r in found] == paths


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("none", None, "not a run folder"),
        ("x.json", "[1]", "expected a JSON object"),
        ("y.json", "{", "not readable as JSON"),
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
    report = make_report([read_run(tmp_path)], {})
    assert [t.name for t in report.tables] == ["runs"] and not report.figures


def test_cells_are_escaped_in_every_format():
    made = Table("t", "a_b & c", ("x|y", "n"), (("50% <b>\n", 1.23456), ("\\x", None)))
    assert r"50\% \textless{}b\textgreater{}⏎ & 1.235" in to_latex(made)
    assert r"\caption{a\_b \& c}" in to_latex(made) and r"\textbackslash{}x" in to_latex(made)
    assert "| 50% &lt;b>⏎ | 1.235 |" in to_markdown(made) and "x\\|y" in to_markdown(made)
    assert list(csv.reader(to_csv(made).splitlines(keepends=True)))[1] == ["50% <b>\n", "1.23456"]
    assert tables_of("n", "t", [1]) == []


def test_studies_are_found_and_shown(tmp_path):
    """A folder of study results is a source; models and changes become tables and figures."""
    import json

    from goldimask.report.run_report import make_report
    from goldimask.report.runs import read_sources

    rows = [{"tau": 0.7, "precision": 0.9, "oracle_safe": 3.0}, {"tau": 0.9, "precision": None}]
    value = {"states": 4, "models": {"a": rows, "b": rows[:1]}, "changes": {}}
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "study-eligibility.json").write_text(json.dumps(value))
    runs, extras = read_sources([str(tmp_path)])
    assert runs == [] and list(extras) == ["study-eligibility"]
    report = make_report(runs, extras)
    table = next(t for t in report.tables if t.name == "study-eligibility-models")
    assert table.columns == ("", "tau", "precision", "oracle_safe")
    assert [r[0] for r in table.rows] == ["a", "a", "b"]
    precision = next(f for f in report.figures if f.name.endswith("precision"))
    assert [line.points for line in precision.lines] == [((0.7, 0.9),), ((0.7, 0.9),)]
