"""The shipped models: small, in the published layouts, better than chance, not perfect."""

from __future__ import annotations

import gzip
import json
from importlib.resources import files
from pathlib import Path

import pytest

from goldimask.backbones import load_backbone
from goldimask.decoding import decode
from goldimask.tiny import TASKS, test_set
from goldimask.tiny.curves import draw_curves, read_log
from goldimask.tiny.optim import rate
from goldimask.tiny.recipe import load_pretraining
from goldimask.tiny.tokenizer import build_tokenizer
from goldimask.tiny.watch import denoising_loss

NAMES = ("tiny", "tiny-b", "tiny-dream")


def folder(name: str) -> Path:
    return Path(str(files("goldimask"))) / "assets" / name / "model"


@pytest.fixture(scope="module", params=NAMES)
def backbone(request):
    return load_backbone(request.param)


@pytest.fixture(scope="module")
def decoded(backbone):
    problems = [p for name in TASKS.names() for p in test_set(name, 8, seed=1)]
    found = decode(backbone, [p.prompt for p in problems], length=128, block=32, batch_size=40)
    return list(zip(problems, found, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_size_and_layout(name):
    assert sum(f.stat().st_size for f in folder(name).iterdir()) < 13e6
    config = json.loads((folder(name) / "config.json").read_text())
    assert "auto_map" not in config
    recipe = load_pretraining("tiny-base").model
    if name == "tiny-dream":
        assert config["model_type"].lower() == "dream"
        sizes = config["hidden_size"], config["num_hidden_layers"]
    else:
        assert config["model_type"] == "llada"
        sizes = config["d_model"], config["n_layers"]
    assert sizes == (recipe.width, recipe.layers)


def test_strong_means_a_million_parameters(backbone):
    assert 1e6 < sum(p.numel() for p in backbone.model.parameters()) < 3e6


def test_the_second_seed_is_another_model():
    one, other = load_backbone("tiny"), load_backbone("tiny-b")
    pairs = zip(one.model.parameters(), other.model.parameters(), strict=True)
    assert not any(p.ndim > 1 and p.equal(q) for p, q in pairs)


def test_tokenizer_is_the_built_one(backbone):
    built = build_tokenizer("dream" if backbone.shift else "llada")
    assert backbone.tokenizer.get_vocab() == built.get_vocab()
    assert backbone.tokenizer.chat_template == built.chat_template
    assert backbone.model.config.vocab_size == len(built)
    assert backbone.mask_id == built.mask_token_id and backbone.pad_id == built.pad_token_id
    text = TASKS.get("sort").problem(0, 0).response
    assert backbone.decode(backbone.response_ids(text)) == text


def test_it_knows_the_form_and_stops(backbone, decoded):
    formed = [d for _, d in decoded if d.text.endswith("</answer>")]
    assert len(formed) >= 0.9 * len(decoded)
    for d in formed:
        end = d.tokens.index(backbone.turn_end_id)
        assert set(d.tokens[end + 1 :]) <= {backbone.pad_id}


def test_it_solves_some_problems_and_not_all(decoded):
    """Guessing solves 5 % of these, and no Sudoku."""
    right = [
        (p.task, TASKS.get(p.task).check(p, TASKS.get(p.task).extract(d.text))) for p, d in decoded
    ]
    assert 0.1 < sum(ok for _, ok in right) / len(right) < 0.9
    sudokus = [ok for task, ok in right if task == "sudoku"]
    assert sum(sudokus) >= len(sudokus) / 4


def test_it_knows_more_than_an_untrained_model(backbone):
    problems = [p for name in TASKS.names() for p in test_set(name, 4, seed=2)]
    assert denoising_loss(backbone, problems) < 1.5  # ln 239 = 5.5 before training


@pytest.mark.parametrize(("suffix", "last"), [("", 8400), ("-b", 8400), ("-dream", 11400)])
def test_the_logs_are_of_the_recipe(suffix, last):
    """Every rate in the log of a shipped model is the one that the recipe prescribes."""
    recipe = load_pretraining("tiny-base")
    log = read_log(Path(__file__).parents[3] / "docs" / f"pretraining-log{suffix}.jsonl.gz")
    rates = {record["step"]: record["rate"] for record in log if "rate" in record}
    assert list(rates) == list(range(20, last + 1, 20)) and last <= recipe.steps
    for step, found in rates.items():
        stage, inside = recipe.stage(step - 1)
        assert found == pytest.approx(rate(stage.optim, inside, stage.steps), abs=1e-6)


def test_curves_are_drawn_from_a_log(tmp_path):
    record = {"step": 1, "heldout_loss": 2.0, "test_loss": {"chain": 3.0}}
    record["test"] = {"chain": {"accuracy": 0.5, "steps": 9.0}}
    lines = [{"step": 1, "loss": 2.0}, record, {"step": 2, "loss": 1.0}]
    log = tmp_path / "log.jsonl.gz"
    log.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    png = draw_curves(read_log(log), tmp_path / "curves.png")
    assert png.read_bytes().startswith(b"\x89PNG")
