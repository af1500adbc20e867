"""The last block for the scored rows alone against the whole block."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from goldimask.backbones import Backbone, load_backbone
from goldimask.backbones.lastblock import forward_rows, scored_rows
from goldimask.backbones.lora import LoraSettings, add_lora
from goldimask.types import Batch, Signal, Signals

ALL = frozenset({Signal.LOGP, Signal.ENTROPY, Signal.ATTENTION})


def both_ways(
    backbone: Backbone,
    batch: Batch,
    hidden: Tensor,
    want: frozenset[Signal],
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[Signals, dict[str, Tensor], int]]:
    """(signals, gradients, calls of `forward_rows`) with the rows alone, then with all of them."""
    import goldimask.backbones.lastblock as lastblock
    import goldimask.backbones.scoring as scoring

    found = []
    for trim in (True, False):
        calls = []

        def counted(*args, calls=calls, **kwargs) -> Tensor:
            calls.append(1)
            return forward_rows(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(lastblock, "forward_rows", counted)
            if not trim:
                patch.setattr(scoring, "can_trim", lambda *a: False)
            backbone.model.zero_grad()
            signals = backbone.scorer(backbone.model, batch, hidden, want)
            weight = torch.linspace(0.5, 2.0, hidden.numel()).view(hidden.shape)
            assert signals.logp is not None
            (signals.logp * weight).sum().backward()
        grads = {
            n: p.grad.clone() for n, p in backbone.model.named_parameters() if p.grad is not None
        }
        found.append((signals, grads, len(calls)))
    return found


def compare(found: list[tuple[Signals, dict[str, Tensor], int]]) -> None:
    (a, grads, _), (b, whole, none) = found
    assert none == 0
    for name in ("logp", "entropy", "attention"):
        left, right = getattr(a, name), getattr(b, name)
        assert (left is None) == (right is None)
        if left is not None:
            torch.testing.assert_close(left, right, rtol=1e-5, atol=2e-6)
    assert grads.keys() == whole.keys()  # every parameter takes part, also for DDP
    for name, grad in grads.items():
        torch.testing.assert_close(grad, whole[name], rtol=2e-4, atol=2e-5, msg=name)


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("lengths", [[21, 21], [9, 21, 15], [17]])
@pytest.mark.parametrize("attn", ["sdpa", "eager"])
def test_the_same_scores_and_gradients(
    folder: Path, make_batch: Callable, lengths: list[int], attn: str, side: str, monkeypatch
) -> None:
    backbone = load_backbone(folder, attn=attn)
    batch, hidden = make_batch(lengths, side)
    backbone = replace(backbone, scorer=replace(backbone.scorer, attention_rows="predictor"))
    found = both_ways(backbone, batch, hidden, ALL, monkeypatch)
    assert found[0][2] == 1  # it did run for the rows alone
    compare(found)
    own = replace(backbone, scorer=replace(backbone.scorer, attention_rows="token"))
    found = both_ways(own, batch, hidden, ALL, monkeypatch)
    assert found[0][2] == (not backbone.shift)  # Dream's own rows are not those that score
    compare(found)


@pytest.mark.parametrize("share", ["none", "one", "all"])
def test_any_number_of_rows(backbone: Backbone, make_batch: Callable, share: str, monkeypatch):
    batch, hidden = make_batch([9, 12])
    hidden = torch.zeros_like(hidden) if share != "all" else batch.valid.clone()
    hidden[1, 4] |= share == "one"  # an example without any row
    found = both_ways(backbone, batch, hidden, frozenset({Signal.LOGP}), monkeypatch)
    assert found[0][2] == (share != "none")
    compare(found)


def test_adapters_and_checkpointing(backbone: Backbone, make_batch: Callable, monkeypatch) -> None:
    tuned = add_lora(backbone, LoraSettings(4, 8.0, 0.0, ("q_proj", "v_proj", "o_proj")), 0)
    for name, p in tuned.model.named_parameters():
        if "lora_B" in name:
            p.data.normal_(0.0, 0.1, generator=torch.Generator().manual_seed(1))
    tuned.model.train()
    tuned.model.gradient_checkpointing_enable({"use_reentrant": False})  # type: ignore[operator]
    batch, hidden = make_batch([13, 20])
    found = both_ways(tuned, batch, hidden, frozenset({Signal.LOGP}), monkeypatch)
    assert found[0][2] == 2  # forward, and again in the backward pass
    compare(found)


def test_hidden_states_are_whole_when_asked_for(backbone: Backbone, make_batch: Callable) -> None:
    batch, hidden = make_batch([11, 11])
    with torch.no_grad():
        out = backbone.model(
            batch.ids, score_ids=batch.ids, score_mask=hidden, output_hidden_states=True
        )
    assert out.hidden_states[-1].shape[:2] == batch.ids.shape


def test_rows_are_laid_out_per_example() -> None:
    positions = torch.tensor([1, 3, 10, 11, 12])  # of [3, 5]: two rows, none, three
    rows = scored_rows(positions, positions, 3, 5)
    assert rows is not None and rows.most == 3
    assert rows.back.tolist() == [0, 1, 6, 7, 8]
    assert rows.slot.view(3, 3).tolist() == [[0, 1, 0], [0, 0, 0], [2, 3, 4]]
    assert scored_rows(positions[:0], positions[:0], 3, 5) is None
