"""The first hour with one's own rows: epochs, a path for a corpus, `init`, logs, messages."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from goldimask import console
from goldimask.backbones import load_backbone
from goldimask.backbones.loading import empty_backbone
from goldimask.backbones.lookup import find_model
from goldimask.cli.app import VERBS, app, load
from goldimask.config import load_recipe, parse_recipe
from goldimask.errors import GoldimaskError
from goldimask.train.arguments import check_trainer, planned_steps
from goldimask.train.callbacks import Bar
from goldimask.train.estimate import estimate
from goldimask.train.first_recipe import look_at
from goldimask.train.prepare import make_data


def row(i: int) -> dict[str, Any]:
    question = f"ann has {i % 9} cards and buys {i % 7}. how many has ann now?"
    return {"prompt": question, "response": f"ann has {i % 9 + i % 7} cards"}


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 of them."""
    file = tmp_path_factory.mktemp("own") / "my.jsonl"
    file.write_text("".join(json.dumps(row(i)) + "\n" for i in range(300)))
    return file


# --- how long a run is ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "steps"),
    [
        (["trainer.num_train_epochs=3"], 48),  # 270 rows are 16 whole batches of 16
        (["trainer.max_steps=-1"], 48),
        (["trainer.num_train_epochs=0.5"], 8),
        (["trainer.max_steps=7"], 7),
        ([], 120),  # the recipe's
        (["trainer.max_steps=-1", "trainer.num_train_epochs=1"], 16),
    ],
)
def test_epochs_count_and_the_plan_is_right(rows: Path, words: list[str], steps: int) -> None:
    recipe = load_recipe("tiny", [f"data.path={rows}", *words])
    assert planned_steps(recipe.trainer, recipe.global_batch_size, 270) == steps
    plan = estimate(recipe)
    assert (plan["steps"], plan["examples"]) == (steps, 270)
    assert plan["epochs"] == pytest.approx(steps * 16 / 270)
    assert plan["warning"] is None


def test_what_a_word_replaces() -> None:
    epochs = {"trainer": {"num_train_epochs": 3}}
    assert planned_steps(parse_recipe(epochs).trainer, 8, 80) == 30  # not the paper's 2,480
    both = {"trainer": {"num_train_epochs": 3, "max_steps": 5}}
    with pytest.raises(GoldimaskError, match="both say how long"):
        check_trainer(both["trainer"])
    with pytest.raises(GoldimaskError, match="both say how long"):
        words = ["trainer.max_steps=5", "trainer.num_train_epochs=3"]
        check_trainer(load_recipe("tiny", words).trainer)
    for wrong in ({"max_steps": 0}, {"max_steps": -2}, {"num_train_epochs": 0}):
        with pytest.raises(GoldimaskError, match="trains nothing"):
            check_trainer(wrong)
    with pytest.raises(GoldimaskError, match="not at hand"):
        planned_steps({"num_train_epochs": 3}, 8, 0)


def test_many_epochs_and_few_held_out_rows_are_warned_of(rows: Path) -> None:
    words = [f"data.path={rows}", "trainer.max_steps=900", "data.validation=0.01"]
    warning = str(estimate(load_recipe("tiny", words))["warning"])
    assert "48 epochs of 297 examples" in warning
    assert "holds 3 examples out" in warning and "data.validation=0.1" in warning


def test_a_path_takes_the_place_of_the_corpus(rows: Path) -> None:
    recipe = load_recipe("tiny", [f"data.path={rows}"])
    assert recipe.data.corpus is None and recipe.output == "runs/my-goldimask-d-s42"
    data = make_data(recipe.data, empty_backbone("tiny"), 0)
    assert (len(data.train), len(data.validation)) == (270, 30)
    kept = load_recipe("llada8b", ["data.corpus=s1k", f"data.path={rows}"])
    assert kept.data.corpus == "s1k"  # both by word: the rows of the file in its format
    with pytest.raises(GoldimaskError, match=r"data\.corpus=null"):
        wanted = {"data": {"corpus": "tiny-sft", "path": str(rows)}}
        make_data(parse_recipe(wanted).data, empty_backbone("tiny"), 0)


def test_more_tokens_than_the_model_has_positions_are_refused(rows: Path) -> None:
    recipe = load_recipe("tiny", [f"data.path={rows}", "data.max_length=100000"])
    with pytest.raises(GoldimaskError, match=r"data\.max_length: 100,000 .* 512 tokens"):
        estimate(recipe)
    unsaid = parse_recipe({"data": {"path": str(rows)}})
    assert make_data(unsaid.data, empty_backbone("tiny"), 0).report.limit == 512


# --- init ----------------------------------------------------------------------------------------


def init(*words: str) -> Any:
    return CliRunner().invoke(app, ["init", *words])


def test_init_looks_and_writes_a_recipe_that_trains(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = init(str(rows))
    assert done.exit_code == 0, done.output
    assert "prompt + response (300)" in done.stdout and "goldimask train my.yaml" in done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    text = Path("my.yaml").read_text()
    assert 20 <= len(text.splitlines()) <= 28
    assert "99 steps" in text and "not the paper's" in text and "GiB" in text
    recipe = load_recipe("my.yaml")
    assert (recipe.data.validation, recipe.data.max_length) == (30, 64)
    assert estimate(recipe)["steps"] == 99 and recipe.output == "runs/my"
    again = init(str(rows))
    assert isinstance(again.exception, GoldimaskError) and "--force" in str(again.exception)
    assert init(str(rows), "--force", "--quiet").stderr == ""


def test_init_tells_what_is_in_a_file(tmp_path: Path) -> None:
    talk = [{"role": r, "content": "now"} for r in ("user", "assistant") * 2]
    long = {"prompt": "begin", "response": "now " * 300}
    mixed = [
        row(1),
        row(1),
        {"messages": talk},
        {"prompt": "x"},
        long,
        {"prompt": "qu", "response": "qu"},
    ]
    file = tmp_path / "mixed.json"
    file.write_text(json.dumps(mixed))
    found = look_at(str(file), empty_backbone("tiny"))
    assert dict(found.shapes) == {"prompt + response": 4, "messages": 1}
    assert (found.rows, found.bad, found.several, found.repeated) == (6, 1, 1, 1)
    assert "item 3" in found.first_bad[0] and found.unknown > 0
    assert found.cut(512) == {128: 1, 256: 1, 512: 0}
    done = init(str(file), "-o", str(tmp_path / "m.yaml"), "--json")
    report = json.loads(done.stdout)
    assert report["bad"] == 1 and report["cut"]["256"] == 1
    recipe = load_recipe(tmp_path / "m.yaml")
    assert recipe.data.turns == "all" and recipe.data.skip_bad_rows
    strange = tmp_path / "strange.csv"
    strange.write_text("title,body\nbegin,now\n")
    error = init(str(strange), "-o", str(tmp_path / "s.yaml")).exception
    assert "title, body" in str(error) and "--columns prompt=NAME,response=NAME" in str(error)
    done = init(
        str(strange), "-o", str(tmp_path / "s.yaml"), "--columns", "prompt=title,response=body"
    )
    assert done.exit_code == 0, done.output
    assert load_recipe(tmp_path / "s.yaml").data.columns == {"prompt": "title", "response": "body"}


def test_init_without_a_tokenizer_estimates_by_characters(rows: Path, tmp_path: Path) -> None:
    words = ("--model", "llada-8b-instruct", "-o", str(tmp_path / "r.yaml"), "--json")
    report = json.loads(init(str(rows), *words).stdout)
    assert not report["tokens_measured"] and report["plan"]["memory_gib"] > 10
    assert load_recipe(tmp_path / "r.yaml").trainer["learning_rate"] == 1e-4


# --- logs ----------------------------------------------------------------------------------------


def test_a_log_file_gets_a_line_per_logging_step(capsys: pytest.CaptureFixture[str]) -> None:
    state = SimpleNamespace(max_steps=120, global_step=0)
    state.is_local_process_zero = state.is_world_process_zero = True
    bar = Bar("goldimask-d", console.say)
    bar.on_train_begin(None, state, None)
    state.global_step = 10
    bar.on_log(None, state, None, {"loss": 1.5, "learning_rate": 9e-4})
    bar.on_log(None, state, None, {"eval_loss": 0.25, "eval_loss_se": 0.01})
    bar.on_log(None, state, None, {"train_runtime": 3.0})
    with console.hush():
        bar.on_log(None, state, None, {"loss": 1.5})
    bar.close()
    first, second = capsys.readouterr().err.splitlines()
    pattern = (
        r"step  10/120  loss 1\.5000  lr 9\.0e-04  [\d.]+ s/step  left \d+:\d\d  end .*\d\d:\d\d"
    )
    assert re.fullmatch(pattern, first) and len(first) <= 80
    assert second == "step  10/120  held-out 0.2500 ± 0.0100"


def test_a_run_tells_its_steps_keeps_best_and_last_and_says_what_next(
    rows: Path, small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from goldimask.train.trainer import GoldiTrainer

    rising = lambda self: [float(self.state.global_step)] * 2  # noqa: E731  the first is the best
    monkeypatch.setattr(GoldiTrainer, "_held_out_losses", rising)
    monkeypatch.chdir(tmp_path)
    every = [f"trainer.{key}=2" for key in ("logging_steps", "eval_steps", "save_steps")]
    words = [f"data.path={rows}", f"backbone.path={small_model}", "method.preset=vanilla", *every]
    words += ["trainer.num_train_epochs=0.125", "global_batch_size=4", "lora.r=2", "output=runs/x"]
    words += ["trainer.report_to=none", "trainer.eval_on_start=false", "data.limit=142"]
    done = CliRunner().invoke(app, ["train", "tiny", *words])  # 128 rows are 32 batches of 4
    assert done.exit_code == 0, done.output
    kept = {p.name for p in Path("runs/x").glob("checkpoint-*")}
    assert kept == {"checkpoint-2", "checkpoint-4"}  # `save_total_limit` is 1
    logged = [x for x in done.stderr.splitlines() if x.startswith("step ")]
    assert [x.split("  ")[0] for x in logged] == ["step 2/4", "step 2/4", "step 4/4", "step 4/4"]
    assert "data.path takes the place of the corpus 'tiny-1k-labels'" in done.stderr
    assert "goldimask eval runs/x --tasks file:QUESTIONS.jsonl" in done.stderr.split("next:")[1]
    assert "lowest held-out loss (step 2)" in done.stdout and "the last step" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_a_bar_without_a_terminal_is_a_line_per_tenth(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "EVERY", 0.0)
    with console.progress("decoding", 40, lines=True) as advance:
        for _ in range(40):
            advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 10 and lines[0].startswith("decoding 4/40, ")
    with console.progress("decoding", 40) as advance:
        advance(40)
    assert capsys.readouterr().err == ""
    assert console.duration(3723) == "1:02:03" and console.duration(46) == "0:46"


def test_quiet_leaves_results(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    loud = CliRunner().invoke(app, ["list", "tasks"])
    quiet = CliRunner().invoke(app, ["list", "tasks", "--quiet"])
    assert quiet.exit_code == 0 and quiet.stdout == loud.stdout
    assert not console.is_quiet()
    for verb in VERBS:
        found = load(verb)
        for command in getattr(found, "commands", {"": found}).values():
            assert "--quiet" in (command.epilog or ""), verb


# --- messages ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("lr=1", "trainer.learning_rate"),
        ("trainer.lr=1", "trainer.learning_rate"),
        ("epochs=3", "trainer.num_train_epochs"),
        ("batch_size=4", "global_batch_size"),
        ("trainer.batch_size=4", "global_batch_size"),
        ("micro_batch_size=4", "trainer.per_device_train_batch_size"),
        ("rank=8", "lora.r"),
        ("lora.rank=8", "lora.r"),
        ("model=tiny", "backbone.name"),
        ("max_seq_length=9", "data.max_length"),
        ("dataset=x", "data.path"),
    ],
)
def test_a_key_is_known_by_its_meaning(word: str, key: str) -> None:
    with pytest.raises(GoldimaskError, match=f"did you mean '{re.escape(key)}'"):
        check_trainer(load_recipe("tiny", [word]).trainer)


def test_every_suggested_key_exists() -> None:
    from transformers import TrainingArguments

    from goldimask.config import Recipe
    from goldimask.settings import SAID, _names_at, parameters

    for key in SAID:
        *path, last = key.split(".")
        names = parameters(TrainingArguments) if path == ["trainer"] else _names_at(Recipe, path)
        assert last in names, key


def test_uploads_are_refused_before_any_work() -> None:
    with pytest.raises(GoldimaskError, match="hf upload USER/NAME FOLDER"):
        check_trainer({"push_to_hub": True})
    with pytest.raises(GoldimaskError, match="hf upload USER/NAME FOLDER"):
        estimate(load_recipe("tiny", ["trainer.hub_model_id=me/mine"]))


def test_runs_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "cut.partial").mkdir(parents=True)
    (tmp_path / "runs" / "first").mkdir()
    with pytest.raises(GoldimaskError, match=r"'runs/cut' has not finished.*'runs/cut\.partial'"):
        find_model("runs/cut")
    with pytest.raises(GoldimaskError, match=r"no folder 'runs/frist' \(did you mean 'first'"):
        load_backbone("runs/frist")
    with pytest.raises(GoldimaskError, match=r"no folder 'nowhere/x'; as a Hub id: "):
        load_backbone("nowhere/x")
