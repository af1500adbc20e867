"""Published scores: every row has a source, differences are named, `--published` plans its row."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from goldimask.backbones.lookup import BACKBONES
from goldimask.cli.app import app
from goldimask.errors import GoldimaskError
from goldimask.eval.published import beside, find_row, rows, settings_of, sources
from goldimask.eval.run import Model, Response, evaluate
from goldimask.eval.tasks import known_tasks
from goldimask.eval.trials import plan_trials
from goldimask.records import Decoding, Manifest, append_lines, write_manifest
from goldimask.report.runs_report import make_report
from goldimask.report.sources import read_sources
from goldimask.stats import aggregate
from unit.outcomes import outcomes

PAPER = Decoding(decoder="low-confidence", options={"block": 32})


@pytest.fixture
def gsm8k(tmp_path):
    lines = [{"question": f"What is {i} + 1?", "answer": f"#### {i + 1}"} for i in range(4)]
    (tmp_path / "gsm8k.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    return tmp_path


def measured(verdicts, **changes):
    given = {"task": "gsm8k", "protocol": "lift", "decoding": PAPER, **changes}
    return aggregate([o for n in (128, 256, 512) for o in outcomes(verdicts, length=n, **given)])


def test_every_row_names_its_source_a_task_and_a_model():
    assert len(rows()) > 40
    for row in rows():
        assert sources()[row.source] and row.task in known_tasks() and row.model in BACKBONES
        assert 0 < row.score < 100 and row.protocol
        if row.decoder:  # its settings are ones a decoder takes
            plan = settings_of(row)
            assert plan["lengths"] and plan["protocol"] in ("lift", "fixed")


def test_the_published_figure_stands_beside_the_measured_one():
    found = beside("llada-8b-instruct", measured([True, True, True, False] * 10))
    paper = next(b for b in found if b.row.source == "paper")
    assert (paper.row.score, paper.measured, paper.inside, paper.differs) == (78.1, 0.75, True, ())
    far = beside("llada-8b-instruct", measured([False] * 40))
    assert not next(b for b in far if b.row.source == "paper").inside
    llada = next(b for b in found if b.row.source == "llada")
    assert llada.differs[:3] == (
        "block: 512, here 32",
        "steps: 512, here 256",
        "protocol: internal toolkit, here lift",
    )
    assert "not stated: shots" in llada.differs and "end tokens are committed last" in llada.differs
    dllm = next(b for b in found if b.row.source == "dllm")
    assert "shots: 5, here 0" in dllm.differs
    assert beside("tiny", measured([True])) == []


def test_a_hub_id_and_a_download_are_the_model_of_that_name():
    assert find_row("Dream-org/Dream-v0-Instruct-7B", "gsm8k").model == "dream-7b-instruct"
    found = beside("LLaDA-8B-Instruct", measured([True, False]))
    assert found and found == beside("llada-8b-instruct", measured([True, False]))
    assert beside("LLaDA-8B-Base", measured([True, False])) == []


def test_one_length_is_not_the_best_of_three():
    few = [r for r in measured([True, False]) if r.length == 128]
    found = beside("llada-8b-instruct", few)
    assert found[0].differs == ("length: best of 128, 256, 512, here 128",)
    other = measured([True, False], protocol="fixed")
    assert beside("llada-8b-instruct", other)[0].differs == ("protocol: lift, here fixed",)


def test_what_a_source_does_not_state_is_no_difference():
    """LIFT's AIME figure has no temperature and no length: the task's own are no deviation."""
    row = find_row("llada-8b-instruct", "aime24")
    assert (row.length, row.temperature) == (None, None) and settings_of(row)["lengths"] == (512,)
    sampled = Decoding(decoder="low-confidence", options={"block": 32, "temperature": 0.7})
    some = outcomes([True], task="aime24", protocol="lift", decoding=sampled, length=512)
    (found,) = beside("llada-8b-instruct", aggregate(some))
    assert found.differs == ("not stated: length, temperature", "pass@16")


def test_a_row_is_planned_with_its_very_settings(gsm8k):
    row = find_row("llada-8b-instruct", "gsm8k")
    trials = plan_trials([row.task], **settings_of(row), data=gsm8k)
    assert [(t.length, t.decoding, t.task.protocol) for t in trials] == [
        (n, PAPER, "lift") for n in (128, 256, 512)
    ]
    blocks = find_row("llada-8b-instruct", "llada-blocks/gsm8k")
    (trial,) = plan_trials([blocks.task], **settings_of(blocks), data=gsm8k)
    assert trial.decoding.options == {"block": 8, "steps": 256} and trial.length == 256
    dream = find_row("dream-7b-instruct", "dllm/gsm8k")
    (trial,) = plan_trials([dream.task], **settings_of(dream), data=gsm8k)
    assert trial.decoding.label == "dream-entropy steps=256 temperature=0.1 top_p=0.9"
    with pytest.raises(GoldimaskError, match="no row 'gsm9k'"):
        find_row("llada-8b-instruct", "gsm9k")
    with pytest.raises(GoldimaskError, match="no row of 'tiny'"):
        find_row("tiny", "gsm8k")


def test_the_verb_plans_without_a_model(gsm8k):
    words = ["eval", "llada-8b-instruct", "--data", str(gsm8k), "--dry-run", "--json"]
    done = CliRunner().invoke(app, [*words, "--published", "gsm8k"])
    plan = json.loads(done.stdout)
    assert plan["answers"] == 12 and [t["length"] for t in plan["trials"]] == [128, 256, 512]
    assert plan["trials"][0]["decoding"] == "low-confidence block=32"
    for more in (
        [],
        ["--tasks", "gsm8k", "--published", "gsm8k"],
        ["--published", "gsm8k", "--block", "8"],
    ):
        assert isinstance(CliRunner().invoke(app, [*words, *more]).exception, GoldimaskError)
    sweep = ["--decoder", "factor", "--tau", "1,2", "--lengths", "gsm8k=256,64,gsm8k=128"]
    done = CliRunner().invoke(app, [*words, "--tasks", "gsm8k", *sweep])
    plan = json.loads(done.stdout)
    assert [t["length"] for t in plan["trials"]] == [256, 128, 256, 128]
    assert plan["trials"][0]["decoding"] == "factor block=32 factor=1.0"
    bare = [w for w in words if w not in ("--data", str(gsm8k))]
    sizes = ["--lengths", "tiny-sort=32,64", "--limit", "2"]
    done = CliRunner().invoke(app, [*bare, "--tasks", "tiny-chain,tiny-sort", *sizes])
    assert [t["length"] for t in json.loads(done.stdout)["trials"]] == [64, 32]
    bad = CliRunner().invoke(app, [*words, "--tasks", "gsm8k", "--lengths", "gsm9k=256"])
    assert "did you mean 'gsm8k'" in str(bad.exception)


def test_each_score_is_saved_with_everything_it_depends_on(gsm8k, tmp_path):
    def answer(prompts, *, length, **options):
        for i, _ in enumerate(prompts):
            yield Response(i, f"\\boxed{{{i + 1}}}", length // 2, 10, f"ids{i}", 0.5)

    out = tmp_path / "out"
    model = Model("llada-8b-instruct", "w")
    evaluate(None, ["gsm8k"], lengths=(64,), data=gsm8k, out=out, model=model, answer=answer)
    saved = json.loads((out / "scores.json").read_text())
    (one,) = saved["scores"]
    assert (one["n"], one["accuracy"], one["calls"], one["complete"]) == (4, 1.0, 128, True)
    assert one["tokens_a_call"] == 40 / 128 and one["seconds"] > 0
    assert one["settings"]["cfg"] == 0.0 and one["settings"]["length"] == 64
    assert one["settings"]["steps"] == 32 and "tau" not in one["settings"]  # half the length
    assert len(one["prompts"]) == len(one["rendered_prompts"]) == 16
    assert one["published"][0]["differs"][0].startswith("length: best of")
    evaluate(None, ["gsm8k"], lengths=(32,), data=gsm8k, out=out, model=model, answer=answer)
    assert len(json.loads((out / "scores.json").read_text())["scores"]) == 2


def test_the_report_looks_them_up(tmp_path):
    some = outcomes([True, False], task="gsm8k", protocol="lift", decoding=PAPER, length=256)
    append_lines(tmp_path / "e" / "samples-0.jsonl", some)
    made = Manifest(kind="evaluate", key="k", model="llada-8b-instruct", weights="w")
    write_manifest(tmp_path / "e", made)
    report = make_report(*read_sources([str(tmp_path / "e")]))
    found = next(t for t in report.tables if t.name == "published")
    assert found.rows[0][:5] == ("e", "gsm8k", 256, "paper", 78.1) and found.rows[0][6] == "inside"
    assert "GoldiMask paper" in found.note
