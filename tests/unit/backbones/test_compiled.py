"""`compile: blocks`: the same losses, sets and gradients; few graphs, whatever the shapes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._dynamo.testing import CompileCounter

from builders import write_llada
from goldimask.backbones import compiled, load_backbone
from goldimask.backbones.lora import add_lora
from goldimask.data.batches import make_batch
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.step import MaskedStep
from goldimask.types import Batch, Example


def batches() -> list[Batch]:
    """Four shapes, all padded."""
    rng = np.random.default_rng(0)
    sizes = [(20, 17), (24, 17), (16, 11), (40, 35, 33)]
    found = []
    for k, lengths in enumerate(sizes):
        rows = [
            Example(rng.integers(0, 300, n).tolist(), 3, [False] * 3 + [True] * (n - 3), 10 * k + j)
            for j, n in enumerate(lengths)
        ]
        found.append(make_batch(rows, 320))
    return found


def test_losses_sets_and_gradients_are_the_same_and_graphs_few(tmp_path, monkeypatch):
    folder = write_llada(tmp_path / "model")
    counter = CompileCounter()
    own = compiled.compile_blocks
    monkeypatch.setattr("goldimask.backbones.loading.compile_blocks", lambda m: own(m, counter))

    def steps(**options):
        backbone = add_lora(load_backbone(folder, **options), 3, r=4, alpha=8.0, dropout=0.0)
        model = backbone.model.train()
        step, found = MaskedStep(method("agdo"), backbone.scorer), []
        trained = [p for p in model.parameters() if p.requires_grad]
        optimiser = torch.optim.SGD(trained, lr=0.5)
        for number, batch in enumerate(batches()):
            out = step(model, batch, Keys(0, number))
            out.loss.backward()
            gradient = torch.cat([p.grad.flatten() for p in trained])
            found.append((out.loss.item(), out.supervised, gradient))
            optimiser.step()
            optimiser.zero_grad()
        return found

    for plain, fast in zip(steps(), steps(compile="blocks"), strict=True):
        assert fast[0] == pytest.approx(plain[0], abs=1e-5)
        assert torch.equal(fast[1], plain[1])
        torch.testing.assert_close(fast[2], plain[2], atol=1e-5, rtol=1e-4)
    # without gradient; with it; and the first block, whose input has none
    assert counter.frame_count == 3
    with pytest.raises(GoldimaskError, match=r"backbone\.compile: unknown 'all'"):
        load_backbone(folder, compile="all")
