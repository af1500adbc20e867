"""The shipped models: small, in the published layouts, better than chance, not perfect."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from goldimask.backbones import BACKBONES, load_backbone
from goldimask.decoding import decode
from goldimask.tiny.families import PROBLEM_FAMILIES, test_set
from pretraining.recipe import load_pretraining
from pretraining.tokenizer import build_tokenizer
from pretraining.watch import denoising_loss

NAMES = ("tiny", "tiny-b", "tiny-dream")


def folder(name: str) -> Path:
    found = BACKBONES.get(name).folder()
    assert found is not None
    return found


@pytest.fixture(scope="module", params=NAMES)
def backbone(request):
    return load_backbone(request.param)


@pytest.fixture(scope="module")
def decoded(backbone):
    problems = [p for name in list(PROBLEM_FAMILIES) for p in test_set(name, 8, seed=1)]
    found = decode(backbone, [p.prompt for p in problems], length=128, block=32, batch_size=40)
    return list(zip(problems, found, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_size_and_layout(name):
    assert sum(f.stat().st_size for f in folder(name).iterdir()) < 13e6
    config = json.loads((folder(name) / "config.json").read_text())
    assert "auto_map" not in config
    recipe = load_pretraining(Path(__file__).parents[3] / "tools" / "tiny-base.yaml").model
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
    text = PROBLEM_FAMILIES["sort"].problem(0, 0).response
    assert backbone.decode(backbone.response_ids(text)) == text


def test_it_knows_the_form_and_stops(backbone, decoded):
    formed = [d for _, d in decoded if d.text.endswith("</answer>")]
    assert len(formed) >= 0.9 * len(decoded)
    for d in formed:
        end = d.tokens.index(backbone.turn_end_id)
        assert set(d.tokens[end + 1 :]) <= {backbone.pad_id}


def test_it_solves_some_problems_and_not_all(decoded):
    """Guessing solves 5 % of these, and no Sudoku."""
    right = []
    for p, d in decoded:
        family = PROBLEM_FAMILIES[p.task]
        right.append((p.task, family.check(p, family.extract(d.text))))
    assert 0.1 < sum(ok for _, ok in right) / len(right) < 0.9
    sudokus = [ok for task, ok in right if task == "sudoku"]
    assert sum(sudokus) >= len(sudokus) / 4


def test_it_knows_more_than_an_untrained_model(backbone):
    problems = [p for name in list(PROBLEM_FAMILIES) for p in test_set(name, 4, seed=2)]
    assert denoising_loss(backbone, problems) < 1.5  # ln 239 = 5.5 before training
