"""The studies on a random model: what must hold whatever the model knows."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from goldimask.backbones import Backbone, load_backbone
from goldimask.backbones.identity import weights_hash
from goldimask.cli import app
from goldimask.config import Recipe, load_recipe
from goldimask.data.batches import make_batch
from goldimask.data.examples import load_examples
from goldimask.errors import GoldimaskError
from goldimask.figures import write
from goldimask.jobs import damage, partial_of, seal
from goldimask.keys import Keys
from goldimask.noise import overmask
from goldimask.records import open_run, read_manifest
from goldimask.report.sources import read_studies
from goldimask.stats import finite
from goldimask.studies.budget import Tuning, study_budget
from goldimask.studies.eligibility import study_eligibility
from goldimask.studies.examples import study_examples, study_rows
from goldimask.studies.heldout import held_out
from goldimask.studies.output import study_figure, study_tables
from goldimask.studies.quality import study_quality
from goldimask.studies.response import measure, study_response
from goldimask.studies.support import attention_of, observe, study_support
from goldimask.train.attention_layer import draw_sets
from goldimask.train.callbacks import Stopped


@pytest.fixture
def backbone(small_model: Path) -> Backbone:
    return load_backbone(small_model, dtype="float32", device="cpu")


TUNING = Tuning(steps=3, batch_size=4, learning_rate=1e-2)


def budget(model: Path, folder: Path, say=lambda _: None, **options):
    """A small Study 1 on the recipe `tiny`, whose warm-up is longer than its training."""
    recipe = load_recipe("tiny", ["trainer.warmup_steps=0"])
    given = {"examples": 8, "heldout": 4, "seeds": (0, 1), "k": 4, "tuning": TUNING}
    given |= {"rules": ("uniform", "p(1-p)^3"), **options}
    return study_budget(str(model), recipe, folder, say=say, **given)


def test_budget_trains_ordinary_runs_and_uses_them_again(small_model: Path, tmp_path: Path) -> None:
    said: list[str] = []
    first = budget(small_model, tmp_path, said.append)
    runs = sorted(p for p in (tmp_path / "runs").iterdir() if p.is_dir())
    assert [r.name.rpartition("-")[0] for r in runs] == [
        *("p-1-p--3_s0", "p-1-p--3_s1", "uniform_s0", "uniform_s1")
    ]
    run = open_run(runs[-1])
    assert run.method == "budget-sample" and run.seed == 1 and run.manifest is not None
    assert run.manifest.key == runs[-1].name.rpartition("-")[2] and damage(runs[-1]) is None
    assert run.manifest.facts["steps"] == 3 and run.manifest.facts["examples"] == 8
    assert (runs[-1] / "model").is_dir() and not list(runs[-1].glob("checkpoint-*"))
    rules = first["rules"]
    assert all(rules[r]["delta_nll"]["mean"] != 0 for r in rules)
    assert rules["uniform"]["delta_nll"]["seeds"] != rules["p(1-p)^3"]["delta_nll"]["seeds"]
    assert ["trains " in line for line in said] == [True] * 4
    again = budget(small_model, tmp_path, said.append, rules=("uniform",))
    assert ["uses " in line for line in said[4:]] == [True] * 2
    assert again["rules"]["uniform"] == rules["uniform"] and again["paired"] == {}
    partial_of(tmp_path / "runs" / "x").mkdir()  # another's; only its own leftovers go
    left = partial_of(runs[-1])
    runs[-1].rename(left)
    assert budget(small_model, tmp_path, said.append)["rules"] == rules
    assert "trains " in " ".join(said[-4:]) and not left.exists() and not partial_of(left).exists()


def test_budget_trains_on_the_rows_after_the_held_out_ones(
    small_model: Path, backbone: Backbone, tmp_path: Path
) -> None:
    budget(small_model, tmp_path, seeds=(0,), rules=("uniform",))
    (file,) = (tmp_path / "runs").glob("rows-*.jsonl")
    trained, _ = load_examples(file, backbone, supervise_turn_end=True)
    every = study_examples(backbone, "tiny-sft", 12)
    assert trained == every[4:]
    assert study_examples(backbone, "tiny-sft", 4) == every[:4]


def test_budget_can_tune_the_adapter_of_its_recipe(small_model: Path, tmp_path: Path) -> None:
    tuning = replace(TUNING, lora=True)
    found = budget(small_model, tmp_path, seeds=(0,), rules=("uniform",), tuning=tuning)
    (run,) = (tmp_path / "runs").glob("uniform_s0-*")
    assert (run / "adapter").is_dir() and found["tuning"]["lora"] is True
    with pytest.raises(GoldimaskError, match="goldimask merge"):
        budget(run, tmp_path)
    with pytest.raises(GoldimaskError, match="no section 'lora'"):
        study_budget(str(small_model), Recipe(), tmp_path, tuning=tuning)


def test_a_stopped_budget_goes_on(small_model: Path, tmp_path: Path, monkeypatch) -> None:
    resumed = []

    def stop(recipe: Recipe, resume: bool) -> None:
        resumed.append(resume)
        checkpoint = partial_of(Path(recipe.output)) / "checkpoint-1"
        checkpoint.mkdir(parents=True, exist_ok=True)
        seal(checkpoint)
        raise Stopped("stopped by SIGTERM")

    monkeypatch.setattr("goldimask.studies.budget.train", stop)
    for _ in range(2):
        with pytest.raises(Stopped, match="the same command goes on"):
            budget(small_model, tmp_path)
    assert resumed == [False, True]


def test_a_corpus_that_is_too_small_is_refused(backbone: Backbone, tmp_path: Path) -> None:
    file = tmp_path / "few.jsonl"
    file.write_text('{"question": "1 + 1", "answer": "2"}\n' * 3)
    assert study_rows(str(file), 1, 2) == [
        {"prompt": [{"role": "user", "content": "1 + 1"}], "response": "2"}
    ]
    for ask in (partial(study_examples, backbone), study_rows):
        with pytest.raises(GoldimaskError, match="has 3 usable examples, 4 were asked for"):
            ask(str(file), 4)


def test_held_out_does_not_depend_on_the_batch(backbone: Backbone) -> None:
    examples = study_examples(backbone, "tiny-sft", 9)
    one, many = (held_out(backbone, examples, batch_size=b) for b in (2, 9))

    def ordered(x):
        return x.logp[np.lexsort((x.level, x.example))]

    assert len(one.logp) == len(many.logp) and one.nll == pytest.approx(many.nll, rel=1e-6)
    np.testing.assert_allclose(np.sort(one.logp), np.sort(many.logp), atol=1e-5)
    assert set(one.level) == {0.25, 0.5, 0.75} and set(one.example) == set(range(9))
    share = len(one.logp) / sum(sum(e.supervisable) for e in examples)
    assert 1.2 < share < 1.8  # t sums to 1.5
    assert ordered(one).shape == ordered(many).shape


def test_response_targets_are_masked_in_both_passes(backbone: Backbone) -> None:
    examples = study_examples(backbone, "tiny-sft", 8)
    found = measure(backbone, examples, 2, 0)
    assert len(found.before) == len(found.after) == len(found.example) > 0
    assert ((found.before > 0) & (found.before < 1)).all()
    assert not np.array_equal(found.before, found.after)  # context was added


def test_reveal_sets_have_one_size_and_spare_the_targets(backbone: Backbone) -> None:
    examples = study_examples(backbone, "tiny-sft", 6)
    batch = make_batch(examples, backbone.pad_id)
    c = overmask()(batch, Keys(0))
    targets, reveals = draw_sets(c, batch, Keys(0), 3)
    assert len(reveals) == 3 and len({tuple(r.sum(1).tolist()) for r in reveals}) == 1
    assert not torch.equal(reveals[0], reveals[1])
    for r in reveals:
        assert not (r & targets).any() and not (r & ~c.candidates).any()
    used = targets.any(1)
    assert torch.equal(targets.sum(1)[used], c.keep[used])


def test_support_is_the_attention_on_revealed_tokens(backbone: Backbone) -> None:
    """Against the model's own attention weights, before and after the reveal."""
    examples = study_examples(backbone, "tiny-sft", 2)
    found = observe(backbone, examples, 2, 0, batch_size=1)
    order = sorted(range(2), key=lambda i: (len(examples[i]), i))
    offset = 0
    for number in order:
        batch = make_batch([examples[number]], backbone.pad_id, 8)
        c = overmask()(batch, Keys(0))
        targets, reveals = draw_sets(c, batch, Keys(0), 2)
        n = int(targets.sum())
        for when, hidden in (("before", c.candidates), ("after", c.candidates & ~reveals[1])):
            rows, logp = attention_of(backbone, batch, hidden, 1)
            mass = [float(rows[0, i, reveals[1][0]].sum()) for i in targets[0].nonzero()[:, 0]]
            np.testing.assert_allclose(
                found.mass["1", when][1, offset : offset + n], mass, atol=1e-5
            )
            sums = rows[0][hidden[0]].sum(-1)
            torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-4, rtol=0)
        np.testing.assert_allclose(
            found.y[1, offset : offset + n], logp[targets].detach().numpy(), atol=1e-5
        )
        offset += n
    assert offset == found.y.shape[1]


def test_studies_return_plain_data(small_model: Path, backbone: Backbone, tmp_path: Path) -> None:
    pairs = [("1 + 1", "is 2"), ("2 + 2", "is 4")]
    made = [
        budget(small_model, tmp_path),
        study_response(backbone, examples=8, draws=1, seeds=(0,)),
        study_support(backbone, examples=24, sets=2),
        study_quality(backbone, examples=8),
        study_eligibility([("a", lambda: backbone), ("b", lambda: backbone)], pairs, taus=(0.1,)),
    ]
    for result in made:
        plain = finite(result)
        json.dumps(plain, allow_nan=False)
        assert write(study_figure(plain), tmp_path)
        for table in study_tables(plain):
            assert table.rows and all(len(row) == len(table.columns) for row in table.rows)
    support, quality = made[2], made[3]
    places = {(r["measured"], r["when"]) for r in support["rows"]}
    assert ("0", "before") in places and ("1", "after") in places and ("distance", "-") in places
    rows = {(r["layer"], r["selector"]): r for r in quality["rows"]}
    assert len(rows) == 2 * 6
    for layer in (0, 1):
        random, greedy = rows[layer, "random"], rows[layer, "greedy (D)"]
        assert greedy["value"] > random["value"] and greedy["kept"] == random["kept"] == 1
        assert random["gain_over_random"] == [0, 0, 0] and rows[layer, "twin (T)"]["kept"] >= 1
    assert rows[0, "random"]["gain"] == rows[1, "random"]["gain"]
    with pytest.raises(GoldimaskError, match="unknown 'x'"):
        budget(small_model, tmp_path, rules=("x",))
    with pytest.raises(GoldimaskError, match="more examples"):
        study_support(backbone, examples=3, sets=2)
    with pytest.raises(GoldimaskError, match="at least 2"):
        study_support(backbone, sets=1)


@pytest.fixture
def call():
    def run(*words: object):
        done = CliRunner().invoke(app, ["study", *map(str, words)])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    return run


def test_a_study_is_a_job_with_a_folder(call, small_model: Path, tmp_path: Path) -> None:
    words = ["response", small_model, "--examples", 8, "--seeds", 1, "-o", tmp_path, "--draws"]
    made = json.loads(call(*words, 1, "--json").stdout)["results"]
    folder = tmp_path / f"response-{small_model.name}"
    assert [r["study"] for r in made] == ["response"] and damage(folder) is None
    assert json.loads((folder / "result.json").read_text()) == made[0]
    manifest = read_manifest(folder)
    assert manifest is not None and manifest.kind == "measure" and manifest.git is not None
    assert manifest.weights == weights_hash(small_model) and manifest.command
    names = {p.name for p in folder.iterdir()}
    assert {"response.pdf", "response.md", "response-fits.csv", "manifest.json"} <= names
    again = call(*words, 1, "--json")
    assert json.loads(again.stdout)["results"] == made and "this very measurement" in again.stderr
    assert not partial_of(folder).exists() and read_studies(tmp_path) == {folder.name: made[0]}
    with pytest.raises(GoldimaskError, match="choose another folder") as refused:
        call(*words, 2)
    assert str(refused.value).count(small_model.name) >= 2  # what it holds and what was asked for
    (folder / "result.json").write_text("{}")
    with pytest.raises(GoldimaskError, match=r"result\.json' is damaged"):
        call(*words, 1)


def test_models_of_a_study_are_told_apart(call, small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(GoldimaskError, match="given twice"):
        call("quality", small_model, small_model)
    other = tmp_path / "other" / small_model.name
    shutil.copytree(small_model, other)
    done = call("quality", small_model, other, "--examples", 8, "-o", tmp_path / "out", "--json")
    names = [r["backbone"] for r in json.loads(done.stdout)["results"]]
    assert names == [str(small_model), str(other)]
    assert len(list((tmp_path / "out").glob("quality-*/result.json"))) == 2
    words = ("eligibility", small_model, other, "--limit", 2, "--states", 1, "--json")
    result = json.loads(call(*words, "-o", tmp_path / "out").stdout)
    assert list(result["models"]) == names and result["study"] == "eligibility"
    assert (tmp_path / "out" / "eligibility" / "eligibility-changes.md").is_file()


def test_command_line_of_study_1(call, small_model: Path, tmp_path: Path) -> None:
    words = ["budget", small_model, "--examples", 8, "--heldout", 4, "--steps", 2, "--seeds", 1]
    words += ["--batch-size", 4, "--rules", "uniform,1-p", "--json"]
    result = json.loads(call(*words, "-o", tmp_path).stdout)["results"][0]
    assert list(result["rules"]) == ["uniform", "1-p"] and result["tuning"]["steps"] == 2
    assert len(list((tmp_path / "runs").glob("*/manifest.json"))) == 2
    assert (tmp_path / f"budget-{small_model.name}" / "budget.pdf").is_file()
    again = call(*words).stdout  # in a temporary folder
    assert json.loads(again)["results"][0] == result


def test_a_foreign_folder_is_left_alone(call, small_model: Path, tmp_path: Path) -> None:
    (tmp_path / f"quality-{small_model.name}").mkdir()
    with pytest.raises(GoldimaskError, match="no study's folder"):
        call("quality", small_model, "--examples", 8, "-o", tmp_path)
