"""A model card says what the run folder says, and nothing about this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from goldimask.config import load_recipe, recipe_yaml
from goldimask.errors import GoldimaskError
from goldimask.eval.results import write_scores
from goldimask.records import Manifest, append_lines, write_manifest
from goldimask.train.card import card_text, write_card
from unit.outcomes import outcomes

FACTS = {
    "examples": 900,
    "validation_examples": 100,
    "steps": 120,
    "seed": 7,
    "data_hash": "d47a",
    "eval_loss_best": 0.5,
    "eval_loss_best_se": 0.01,
}


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    now = {"run": "w"}
    monkeypatch.setattr("goldimask.backbones.identity.weights_hash", lambda *_, **__: now["run"])
    return now


@pytest.fixture
def run(tmp_path: Path, weights: dict[str, str]) -> Path:
    """A finished run of a base in a folder of this machine, on a file of this machine."""
    base = tmp_path / "secret" / "my-base"
    base.mkdir(parents=True)
    (base / "README.md").write_text("---\nlicense: mit\n---\n# base\n")
    rows = tmp_path / "secret" / "rows.jsonl"
    words = [f"backbone.path={base}", f"data.path={rows}", "method.weigh.cap=3"]
    folder = tmp_path / "runs" / "mine"
    (folder / "adapter").mkdir(parents=True)
    (folder / "adapter" / "adapter_model.safetensors").touch()  # its hash is `weights`
    (folder / "recipe.yaml").write_text(recipe_yaml(load_recipe("tiny", words)))
    versions: dict[str, str | None] = {"goldimask": "0.1.0"}
    made = Manifest(kind="train", key="k", model="m", weights="abc", facts=FACTS, versions=versions)
    write_manifest(folder, made)
    return folder


def evaluate(run: Path) -> None:
    folder = run / "eval"
    append_lines(folder / "samples-0.jsonl", outcomes([True, True, True, False]))
    write_manifest(folder, Manifest(kind="evaluate", key="k", model="m", weights="w"))
    write_scores(folder, "m")


def test_the_card_says_what_the_folder_says(run: Path) -> None:
    card = ModelCard(card_text(run))
    told = card.data.to_dict()
    assert told["license"] == "mit" and told["library_name"] == "peft"
    assert "base_model" not in told  # a folder is no address on the Hub
    for said in (
        *("# mine", "`my-base`", "goldimask-d", "weigh.cap=3", "| hash of the data | d47a |"),
        *("900 and 100 held out", "0.5000 ± 0.0100", "rows.jsonl", "Not evaluated.", "mit"),
    ):
        assert said in card.text, said
    assert 'load_backbone("my-base")' in card.text
    assert "secret" not in card.text and "output:" not in card.text


def test_scores_come_with_their_intervals_and_only_of_these_weights(
    run: Path, weights: dict[str, str]
) -> None:
    evaluate(run)
    write_card(run)
    text = (run / "adapter" / "README.md").read_text()
    entry = json.loads((run / "eval" / "scores.json").read_text())["scores"][0]
    interval = f"75.0 [{100 * entry['low']:.1f}, {100 * entry['high']:.1f}]"
    assert f"| tiny-sort | {interval} accuracy | 4 | 64 | threshold tau=0.9 | fixed |" in text
    weights["run"] = "others"
    with pytest.raises(GoldimaskError, match="answers of weights"):
        card_text(run)


def test_the_base_on_the_hub_is_named_by_its_address(run: Path) -> None:
    recipe = load_recipe("tiny", ["backbone.name=llada-8b-instruct", "lora=null"])
    (run / "recipe.yaml").write_text(recipe_yaml(recipe))
    card = ModelCard(card_text(run, merged=True))
    told = card.data.to_dict()
    assert told["base_model"] == "GSAI-ML/LLaDA-8B-Instruct"
    assert told["library_name"] == "transformers" and "license" not in told
    assert "all weights" in card.text and "look it up before you publish" in card.text


def test_the_embedded_base_has_the_licence_of_the_package(run: Path) -> None:
    (run / "recipe.yaml").write_text(recipe_yaml(load_recipe("tiny")))
    assert ModelCard(card_text(run)).data.to_dict()["license"] == "apache-2.0"


def test_an_unfinished_run_has_no_card(run: Path) -> None:
    (run / "manifest.json").unlink()
    with pytest.raises(GoldimaskError, match="has not finished"):
        card_text(run)


def test_merge_writes_the_card_and_says_how_to_upload(run: Path, tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from goldimask.backbones import load_backbone
    from goldimask.backbones.lora import add_lora, save_adapter
    from goldimask.cli.app import app

    (run / "recipe.yaml").write_text(recipe_yaml(load_recipe("tiny")))
    tuned = add_lora(load_backbone("tiny"), seed=1, r=2, alpha=4, targets=("q_proj",))
    save_adapter(tuned, run / "adapter")
    evaluate(run)
    to = tmp_path / "merged"
    done = CliRunner().invoke(app, ["merge", str(run), "--to", str(to)])
    assert done.exit_code == 0, done.output
    said = " ".join(done.stderr.split())
    assert "hf upload USER/NAME" in said and "model card" in said
    card = ModelCard.load(to / "README.md")
    assert card.data.to_dict()["library_name"] == "transformers"
    assert "tiny-sort" in card.text and "goldimask.load_backbone" in card.text
