"""Every preset trains a real (small, random) backbone, and resumes exactly."""

from __future__ import annotations

import copy

import pytest
import torch

from goldimask.keys import Keys
from goldimask.methods import Method, method
from goldimask.presets import PRESETS
from goldimask.step import MaskedStep
from goldimask.train.validation import level_noise, plain_denoising
from unit.fakes import FakeScorer, TableModel
from unit.fakes import make_batch as fake_batch

STEPS = 30


@pytest.fixture(scope="module")
def world():
    """A model of a few thousand weights, eight short batches of four, and a held-out batch."""
    from goldimask.data.batches import make_batch
    from goldimask.data.examples import load_examples
    from pretraining.model import new_backbone
    from pretraining.recipe import ModelSection

    backbone = new_backbone(ModelSection(width=32, layers=2, heads=2, mlp=64), seed=3)
    examples, _ = load_examples("tiny-sft", backbone, limit=200)
    short = sorted(examples, key=len)[:40]
    batches = [make_batch(short[i::10], backbone.pad_id) for i in range(10)]
    return backbone, batches[:8], batches[8]


def held_out(backbone, batch) -> float:
    levels = {e: (k % 8 + 0.5) / 8 for k, e in enumerate(batch.example_id.tolist())}
    validation = plain_denoising(level_noise(levels))
    with torch.no_grad():
        return MaskedStep(validation, backbone.scorer)(backbone.model, batch, Keys(0)).loss.item()


@pytest.mark.parametrize("name", PRESETS.names())
def test_held_out_loss_falls(world, name):
    backbone, batches, validation = world
    start = copy.deepcopy(backbone.model.state_dict())
    before = held_out(backbone, validation)
    step = MaskedStep(method(name, attention_layer=0), backbone.scorer)
    optimiser = torch.optim.AdamW(backbone.model.parameters(), lr=3e-3)
    for n in range(STEPS):
        out = step(backbone.model, batches[n % 8], Keys(7, n // 8))
        optimiser.zero_grad()
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(backbone.model.parameters(), 1.0)
        optimiser.step()
    after = held_out(backbone, validation)
    backbone.model.load_state_dict(start)
    assert after < before - 0.2, (before, after)


def train(m: Method, model, optimiser, epochs) -> list[float]:
    step, losses = MaskedStep(m, FakeScorer()), []
    for epoch in epochs:
        out = step(model, fake_batch(), Keys(1, epoch))
        optimiser.zero_grad()
        out.loss.backward()
        optimiser.step()
        losses.append(out.loss.item())
    return losses


def fresh(name: str):
    model = TableModel()
    return method(name), model, torch.optim.AdamW(model.parameters(), lr=1e-2)


@pytest.mark.parametrize("name", PRESETS.names())
def test_resume_is_exact(name):
    expected = train(*fresh(name), range(6))
    m, model, optimiser = fresh(name)
    first = train(m, model, optimiser, range(3))
    saved = copy.deepcopy((m.state_dict(), model.state_dict(), optimiser.state_dict()))
    m, model, optimiser = fresh(name)
    for part, state in zip((m, model, optimiser), saved, strict=True):
        part.load_state_dict(state)
    assert first + train(m, model, optimiser, range(3, 6)) == expected
