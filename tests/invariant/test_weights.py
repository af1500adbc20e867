"""Results belong to weights: what other weights gave is refused by every verb, with both names."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from goldimask.backbones import load_backbone
from goldimask.backbones.lora import add_lora, save_adapter
from goldimask.cli.app import app
from goldimask.errors import GoldimaskError

EVAL = ["--tasks", "tiny-chain", "--limit", "2", "--lengths", "16", "--block", "8"]


def call(*words: object) -> None:
    found = CliRunner().invoke(app, list(map(str, words)))
    if found.exception is not None:
        raise found.exception


def scale(file: Path, factor: float) -> None:
    save_file({k: v * factor for k, v in load_file(file).items()}, file, {"format": "pt"})


@pytest.fixture(scope="module")
def models(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`a/model` and `b/model`: one name, one architecture, other weights."""
    folder = tmp_path_factory.mktemp("models")
    for name in "ab":
        shutil.copytree(small_model, folder / name / "model")
    scale(folder / "b" / "model" / "model.safetensors", 1.5)
    return folder


def test_models_of_one_name_share_no_evaluation(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    a, b = (models / name / "model" for name in "ab")
    call("eval", a, *EVAL)  # into evals/model
    kept = (tmp_path / "evals" / "model" / "samples-0.jsonl").read_bytes()
    with pytest.raises(GoldimaskError, match=f"results of model at '{a}' .* not of model at '{b}'"):
        call("eval", b, *EVAL)
    assert (tmp_path / "evals" / "model" / "samples-0.jsonl").read_bytes() == kept
    call("eval", b, *EVAL, "--out", tmp_path / "evals" / "other")
    score = ("score", "--task", "tiny-chain", "evals/model")
    call(*score)
    for second in ("evals/other", "evals/other/samples-0.jsonl"):
        with pytest.raises(GoldimaskError, match=f"evals/model.* of model and '{second}' of model"):
            call(*score, second)


def test_answers_of_an_adapter_are_not_those_of_another(small_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    save_adapter(add_lora(load_backbone(small_model), 0, r=2, alpha=4.0), folder / "adapter")
    (folder / "recipe.yaml").write_text(f"backbone: {{name: tiny, path: {small_model}}}\n")
    call("eval", folder, *EVAL)
    call("eval", folder, *EVAL, "--out", tmp_path / "kept")
    call("score", folder, "--task", "tiny-chain")
    scale(folder / "adapter" / "adapter_model.safetensors", 40.0)
    for out in ([], ["--out", tmp_path / "kept"]):
        with pytest.raises(GoldimaskError, match=r"holds the results of run at .* not of run at "):
            call("eval", folder, *EVAL, *out)
    for words in (
        ["score", folder, "--task", "tiny-chain"],
        ["score", folder / "eval" / "samples-0.jsonl", "--task", "tiny-chain"],
        ["report", folder, "--out", tmp_path / "r.html"],
    ):
        with pytest.raises(GoldimaskError, match=r"answers of weights .* but the run now holds"):
            call(*words)


def test_decoded_prompts_are_not_those_of_another_model(models: Path, tmp_path: Path) -> None:
    rows = [{"prompt": "a", "key": "of the user"}, {"prompt": "b", "index": 7}]
    file, out = tmp_path / "p.jsonl", tmp_path / "out.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = ("--file", file, "--out", out, "--length", 8, "--block", 8, "--tau", 0.5)
    call("decode", models / "a" / "model", *common)
    first = out.read_text()
    call("decode", models / "a" / "model", *common)  # found, whatever a row is called
    assert out.read_text() == first
    with pytest.raises(GoldimaskError, match=r"out.jsonl:1: made with weights \w{32}, not \w{32};"):
        call("decode", models / "b" / "model", *common)
    assert out.read_text() == first
