"""Shared-state diagnostics: the states are the decoder's, the counts are literal."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from builders import WRITERS
from goldimask.backbones import Backbone, load_backbone
from goldimask.cli import app
from goldimask.errors import GoldimaskError
from goldimask.studies import eligibility as study

PAIRS = [("How many apples?", "12 - 5 = 7 are left."), ("7 - 5", "The answer is 42, so add(a, b)")]


@pytest.fixture(params=("llada", "dream"))
def backbone(request, tmp_path: Path) -> Backbone:
    """Of both alignments, with confidences that spread over (0, 1)."""
    made = load_backbone(WRITERS[request.param](tmp_path / "model"), dtype="float32", device="cpu")
    with torch.no_grad():
        made.model.get_parameter("lm_head.weight").mul_(4.0)
    return made


def test_states_are_shared_and_predictions_literal(backbone: Backbone) -> None:
    refs = study.references(backbone, PAIRS)
    states = study.draw_states(refs, per_example=6, block=8, seed=3)
    assert states == study.draw_states(refs, per_example=6, block=8, seed=3)
    assert states != study.draw_states(refs, per_example=6, block=8, seed=4)
    found = study.predict(backbone, refs, states, block=8)
    for state, got in zip(states, found, strict=True):
        ref = refs[state.example]
        response = list(ref.response)
        for i in range(len(response)):
            if i in state.masked or i >= 8 * (state.block + 1):
                response[i] = backbone.mask_id
        with torch.no_grad():
            logits = backbone.model(input_ids=torch.tensor([[*ref.prompt, *response]])).logits[0]
        logits[:, backbone.mask_id] = -torch.inf
        rows = [len(ref.prompt) + i - backbone.shift for i in state.masked]
        p, token = logits[rows].double().softmax(1).max(1)
        truth = torch.tensor([ref.response[i] for i in state.masked])
        assert (got.correct == (token == truth).numpy()).all()
        np.testing.assert_allclose(got.confidence, p.numpy(), rtol=1e-4)


def test_counts_by_hand() -> None:
    before = [study.Predictions(np.array([True, True, False]), np.array([0.95, 0.5, 0.99]))]
    after = [study.Predictions(np.array([True, True, True]), np.array([0.2, 0.91, 0.91]))]
    (row,) = study.summarise(before, [0.9])
    assert (row["eligible"], row["oracle_safe"], row["precision"]) == (2, 1, 0.5)
    (moved,) = study.change(before, after, [study.State(0, 0, (0, 1, 2))], [0.9])
    assert (moved["gained"], moved["lost"], moved["net"]) == (2, 1, 1)
    assert study.summarise(before, [1.0])[0]["precision"] is None


def test_command_line(small_model: Path, tmp_path: Path) -> None:
    data = tmp_path / "refs.jsonl"
    data.write_text("".join(json.dumps({"prompt": p, "response": r}) + "\n" for p, r in PAIRS))
    words = ["study", "eligibility", str(small_model), "--data", str(data), "--states", "2"]
    result = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert result["states"] == 4 and len(result["models"][small_model.name]) == 4
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0 and "4 shared states of 2 references" in shown.stdout
    wrong = CliRunner().invoke(app, [*words, "--tau", "1.5"])
    assert isinstance(wrong.exception, GoldimaskError)
    assert "--tau: expected confidences" in str(wrong.exception)
