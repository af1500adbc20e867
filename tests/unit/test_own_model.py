"""examples/own_model.py: a stock ModernBERT is trained, and tapped as its own attention says."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import ModernBertConfig, ModernBertForMaskedLM

from goldimask.backbones.attention import SDPA
from goldimask.types import Batch, Signal

FILE = Path(__file__).parents[2] / "examples" / "own_model.py"


@pytest.fixture(scope="module")
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_model", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["own_model"] = module
    spec.loader.exec_module(module)
    return module


def test_it_is_short_and_learns(example: ModuleType) -> None:
    assert len(FILE.read_text().splitlines()) < 60
    losses = example.main(steps=12)
    assert sum(losses[-3:]) < 0.8 * sum(losses[:3])


def test_signals_are_the_models_own(example: ModuleType) -> None:
    """log p from the logits, attention and what is received from stock eager attention."""
    generator = torch.Generator().manual_seed(0)
    sizes: dict[str, Any] = {
        "vocab_size": 40,
        "hidden_size": 32,
        "intermediate_size": 48,
        "pad_token_id": 0,
    }
    sizes |= {"num_hidden_layers": 3, "num_attention_heads": 4, "global_attn_every_n_layers": 1}
    model = ModernBertForMaskedLM(ModernBertConfig(**sizes)).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=generator) * 0.3)
    ids = torch.randint(1, 39, (2, 11), generator=generator)
    valid = torch.ones_like(ids, dtype=torch.bool)
    valid[1, 8:] = False
    hidden = valid & (torch.rand(2, 11, generator=generator) < 0.5)
    batch = Batch(ids, valid, valid, torch.arange(2), padded=True)
    scorer = example.OwnScorer(mask_id=39, layers=3)
    model.config._attn_implementation = SDPA
    with torch.no_grad():
        got = scorer(model, batch, hidden, frozenset(Signal), 1)
        model.config._attn_implementation = "eager"
        masked = ids.masked_fill(hidden, 39)
        out = model(masked, attention_mask=valid, output_attentions=True)
    logp = out.logits.log_softmax(-1).gather(2, ids[..., None]).squeeze(2)
    torch.testing.assert_close(got.logp[hidden], logp[hidden], rtol=1e-5, atol=1e-5)
    expected = out.attentions[1].mean(1)
    torch.testing.assert_close(
        got.received, (expected * valid[:, :, None]).sum(1), rtol=1e-5, atol=1e-6
    )
    for b in range(2):
        rows = hidden[b].nonzero().squeeze(1)
        torch.testing.assert_close(
            got.attention[b, : len(rows)], expected[b, rows], rtol=1e-5, atol=1e-6
        )
