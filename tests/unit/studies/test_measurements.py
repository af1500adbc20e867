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
from torch import Tensor
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
from goldimask.objective import priority_curve
from goldimask.records import open_run, read_manifest
from goldimask.report.sources import read_studies
from goldimask.stats import finite
from goldimask.studies.benefit import observe as observe_benefit
from goldimask.studies.benefit import rank_correlation, row, study_benefit
from goldimask.studies.budget import PAPER, Plan, study_budget, study_recipe, weigh_of
from goldimask.studies.eligibility import study_eligibility
from goldimask.studies.examples import study_examples, study_rows
from goldimask.studies.heldout import held_out
from goldimask.studies.output import study_figure, study_tables
from goldimask.studies.quality import study_quality
from goldimask.studies.response import measure, study_response
from goldimask.studies.shards import everything
from goldimask.studies.support import observe, study_support
from goldimask.train.attention_layer import draw_sets
from goldimask.train.callbacks import Stopped
from goldimask.types import Batch, Signal


@pytest.fixture
def backbone(small_model: Path) -> Backbone:
    return load_backbone(small_model, dtype="float32", device="cpu")


SMALL = Plan(examples=8, heldout=4, seeds=2, k=4, steps=3, batch_size=4, rate=1e-2)
SMALL = replace(SMALL, rules=("uniform", "p(1-p)^3"))


def budget(model: Path, folder: Path, say=lambda _: None, gather=everything, **options):
    """A small Study 1 on the recipe `tiny`, whose warm-up is longer than its training."""
    plan = replace(SMALL, **options)
    recipe = study_recipe(load_recipe("tiny", ["trainer.warmup_steps=0"]), str(model), plan)
    return study_budget(str(model), plan, recipe, folder, say=say, gather=gather)


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
    budget(small_model, tmp_path, seeds=1, rules=("uniform",))
    (file,) = (tmp_path / "runs").glob("rows-*.jsonl")
    trained, _ = load_examples(file, backbone, supervise_turn_end=True)
    every = study_examples(backbone, "tiny-sft", 12)
    assert trained == every[4:]
    assert study_examples(backbone, "tiny-sft", 4) == every[:4]


def test_budget_can_tune_the_adapter_of_its_recipe(small_model: Path, tmp_path: Path) -> None:
    found = budget(small_model, tmp_path, seeds=1, rules=("uniform",), lora=True, at=(1, 2))
    (run,) = (tmp_path / "runs").glob("uniform_s0-*")
    assert (run / "adapter").is_dir() and found["steps"] == [1, 2, 3]
    course = found["course"]["uniform"]
    assert [step for step, *_ in course] == [1, 2, 3]
    assert len({nll for _, nll, _ in course}) == 3  # three models were judged
    end = found["rules"]["uniform"]
    assert course[-1][1:] == [end["delta_nll"]["mean"], end["delta_p"]["mean"]]
    assert [t.name for t in study_tables(found)] == ["budget", "budget-steps"]
    with pytest.raises(GoldimaskError, match="goldimask merge"):
        budget(run, tmp_path)
    with pytest.raises(GoldimaskError, match="no section 'lora'"):
        study_recipe(Recipe(), str(small_model), PAPER)


def test_an_earlier_step_is_the_run_that_ends_there(small_model: Path, tmp_path: Path) -> None:
    """With all weights and a constant rate, step 2 of 3 is the end of a run of 2 steps."""
    recipe = load_recipe("tiny", ["trainer.warmup_steps=0", "trainer.lr_scheduler_type=constant"])
    ends = {}
    for steps, at in ((3, (2,)), (2, ())):
        plan = replace(SMALL, steps=steps, at=at, seeds=1, rules=("uniform",))
        own = study_recipe(recipe, str(small_model), plan)
        ends[steps] = study_budget(str(small_model), plan, own, tmp_path / str(steps))["course"]
    np.testing.assert_allclose(
        ends[3]["uniform"][0][1:], ends[2]["uniform"][0][1:], rtol=1e-5, atol=1e-7
    )


def test_study_1_of_the_paper(call) -> None:
    found = json.loads(call("budget", "--paper", "--dry-run", "--json").stdout)
    assert found == {
        "models": "llada-8b-instruct, llada-1.5",
        "precision": "bfloat16",
        "training rows": "s1k [300, 900)",
        "held-out rows": "[0, 90), masked at 0.25, 0.5, 0.75",
        "turn end supervised": "no",
        "weights tuned": "LoRA r 128, alpha 256, dropout 0.05",
        "adapter on": "q_proj, k_proj, v_proj",
        "learning rate": "5e-06, linear",
        "warm-up steps": "0",
        "weight decay": "0.1",
        "gradient clip": "1",
        "global batch": "8",
        "measured at steps": "0, 100, 300",
        "supervised positions": "32 per example",
        "rules": "uniform, 1-p, p(1-p), p(1-p)^3, 0-0.1, 0.1-0.5, 0.5-1, all",
        "seeds": "0, 1",
        "runs": "32",
    }
    words = ("budget", "--paper", "--dry-run", "--json", "--dtype", "float32", "--steps", 150)
    other = json.loads(call(*words).stdout)
    assert other["precision"] == "float32" and other["measured at steps"] == "0, 100, 150"
    with pytest.raises(GoldimaskError, match=r"\[50, 650\) overlap the held-out rows \[0, 90\)"):
        call("budget", "--paper", "--dry-run", "--first", 50)
    with pytest.raises(GoldimaskError, match="CUDA_VISIBLE_DEVICES"):
        call("budget", "--dry-run", "--device", "cuda:1")


def test_the_paper_s_study_runs_on_a_small_model(small_model: Path, tmp_path: Path) -> None:
    """Its own recipe, in little; special tokens are no targets."""
    plan = replace(PAPER, corpus="tiny-sft", first=6, examples=8, heldout=4, steps=2, at=(1,))
    plan = replace(plan, k=4, seeds=1, batch_size=2, rules=("uniform", "0.1-0.5", "all"))
    own = load_recipe(plan.recipe, ["data.max_length=512"])  # the positions of the small model
    recipe = study_recipe(own, str(small_model), plan, "float32", "cpu")
    found = study_budget(str(small_model), plan, recipe, tmp_path, device="cpu")
    assert list(found["rules"]) == list(plan.rules) and found["rows"] == [6, 14]
    run = open_run(next((tmp_path / "runs").glob("all_s0-*")))
    assert run.recipe["lora"]["r"] == 128 and run.recipe["trainer"]["weight_decay"] == 0.1
    backbone = load_backbone(small_model, dtype="float32", device="cpu")
    with_end = held_out(backbone, study_examples(backbone, "tiny-sft", 4))
    without = held_out(backbone, study_examples(backbone, "tiny-sft", 4, turn_end=False))
    assert found["targets"] == len(without.logp) < len(with_end.logp)


def test_rules_of_study_1() -> None:
    p = torch.tensor([[0.05, 0.1, 0.3, 0.4999, 0.5, 0.9, 1.0]], dtype=torch.float64)
    inside = {"0-0.1": [0], "0.1-0.5": [1, 2, 3], "0.5-1": [4, 5, 6]}
    for rule, places in inside.items():
        curve = priority_curve(weigh_of(rule, 4)["priority"])
        assert curve(p)[0].nonzero()[:, 0].tolist() == places
        assert np.array_equal(curve(p.numpy()), curve(p).numpy())
    assert weigh_of("all", 4)["k"] > 10**5
    for bad in ("0.5-0.1", "0.5-2", "x"):
        with pytest.raises(GoldimaskError, match="unknown"):
            weigh_of(bad, 4)


def test_a_stopped_budget_goes_on(small_model: Path, tmp_path: Path, monkeypatch) -> None:
    resumed = []

    def stop(recipe: Recipe, resume: bool) -> None:
        resumed.append(resume)
        checkpoint = partial_of(Path(recipe.output)) / "checkpoint-1"
        checkpoint.mkdir(parents=True, exist_ok=True)
        (checkpoint / "weights").write_text("some")
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
    found = measure(backbone, examples, np.arange(8), 2, 0)
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
    """Against one pass per block with whole attention rows, before and after the reveal."""
    batch = make_batch(study_examples(backbone, "tiny-sft", 3), backbone.pad_id, 8)
    calls = []
    hook = backbone.model.register_forward_pre_hook(lambda *_: calls.append(1))
    found = observe(backbone, batch, 2, Keys(0), [1, 0])
    hook.remove()
    assert len(calls) == 1 + 2  # not blocks x (1 + sets)
    c = overmask()(batch, Keys(0))
    targets, reveals = draw_sets(c, batch, Keys(0), 2)
    for layer in (0, 1):
        for when, hidden in (("before", c.candidates), ("after", c.candidates & ~reveals[1])):
            rows, logp = attention_of(backbone, batch, hidden, layer)
            mass = (rows * reveals[1][:, None].float()).sum(2)[targets]
            np.testing.assert_allclose(found[f"mass/{layer}/{when}"][1], mass, atol=1e-6)
            sums = rows[hidden].sum(-1)
            torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-4, rtol=0)
        np.testing.assert_allclose(found["y"][1], logp[targets], atol=1e-6)
    alone = observe(backbone, batch, 2, Keys(0), [0])
    for name, values in alone.items():
        assert np.array_equal(values, found[name])  # another block in the same pass changes nothing


@torch.no_grad()
def attention_of(backbone: Backbone, batch: Batch, hidden: Tensor, layer: int):
    """Attention [B, T, T] of one block (rows of hidden positions), and log p [B, T]."""
    want = frozenset({Signal.LOGP, Signal.ATTENTION})
    s = backbone.scorer(backbone.model, batch, hidden, want, layer)
    full = torch.zeros((*batch.ids.shape, batch.ids.shape[1]))
    for b, rows in enumerate(s.rows):
        full[b, rows[rows >= 0]] = s.attention[b][rows >= 0]
    return full, s.logp


def test_studies_return_plain_data(small_model: Path, backbone: Backbone, tmp_path: Path) -> None:
    pairs = [("1 + 1", "is 2"), ("2 + 2", "is 4")]
    made = [
        budget(small_model, tmp_path),
        study_response(backbone, examples=8, draws=1, seeds=(0,)),
        study_support(backbone, examples=24, sets=2),
        study_quality(backbone, examples=8),
        study_benefit(backbone, examples=8, reveals=4),
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
    one = study_support(backbone, examples=24, sets=2, layers=["last"])
    same = [r for r in support["rows"] if r["measured"] in ("1", "distance")]
    assert one["rows"] == same and one["table"] == support["table"]
    with pytest.raises(GoldimaskError, match="blocks 0 to 1"):
        study_support(backbone, layers=[7])


@torch.no_grad()
def test_benefit_is_what_showing_one_token_changes(backbone: Backbone) -> None:
    """Against the definition, one pair at a time, and the same in any batch."""
    example = study_examples(backbone, "tiny-sft", 1)[0]
    found = observe_benefit(backbone, example, Keys(0), 5, batch_size=2)
    again = observe_benefit(backbone, example, Keys(0), 5, batch_size=16)
    batch = make_batch([example], backbone.pad_id)
    c = overmask()(batch, Keys(0))
    places = c.candidates[0].nonzero()[:, 0]
    shown = np.flatnonzero(~found["real"].any(1) | ~found["real"].all(1))
    assert found["benefit"].shape == (len(places), 5) and len(shown) == 5
    before = backbone.scorer(backbone.model, batch, c.candidates).logp[0]
    attention, _ = attention_of(backbone, batch, c.candidates, 1)
    for k, token in enumerate(shown):
        hidden = c.candidates.clone()
        hidden[0, places[token]] = False
        after = backbone.scorer(backbone.model, batch, hidden).logp[0]
        for i in range(len(places)):
            if i == token:
                assert found["benefit"][i, k] == 0 and not found["real"][i, k]
                continue
            truth = float(after[places[i]] - before[places[i]])
            assert found["benefit"][i, k] == pytest.approx(truth, abs=1e-5)
            mass = float(attention[0, places[i], places[token]])
            assert found["attention, block 1"][i, k] == pytest.approx(mass, abs=1e-6)
            p, own = (float(before[places[at]].exp()) for at in (i, token))
            support = mass * (1 - own) / (mass * (1 - own) + 0.05)
            assert found["F of surprises"][i, k] == pytest.approx(p * (1 - p) ** 3 * support, 1e-4)
    for name, values in found.items():
        np.testing.assert_allclose(values, again[name], atol=1e-5)


def test_a_perfect_predictor_of_benefit_has_all_of_it() -> None:
    rng = np.random.default_rng(0)
    pieces = []
    for _ in range(6):
        b = rng.random((9, 8))
        pieces.append({"benefit": b, "real": np.ones_like(b, bool), "good": b**3, "bad": -b})
    drawn = np.ones((3, 6))
    good, bad = row("good", pieces, drawn), row("bad", pieces, drawn)
    assert good["pairs"] == pytest.approx([1, 1, 1]) and bad["pairs"] == pytest.approx([-1, -1, -1])
    assert bad["held"][0] < 0.9 < good["held"][0] <= 1
    assert rank_correlation(np.arange(4), np.ones(4)) == 0


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
    assert list(result["rules"]) == ["uniform", "1-p"] and result["steps"] == [2]
    assert len(list((tmp_path / "runs").glob("*/manifest.json"))) == 2
    assert (tmp_path / f"budget-{small_model.name}" / "budget.pdf").is_file()
    again = call(*words).stdout  # in a temporary folder
    assert json.loads(again)["results"][0] == result


def test_a_foreign_folder_is_left_alone(call, small_model: Path, tmp_path: Path) -> None:
    (tmp_path / f"quality-{small_model.name}").mkdir()
    with pytest.raises(GoldimaskError, match="no study's folder"):
        call("quality", small_model, "--examples", 8, "-o", tmp_path)
