"""The attention tap against transformers' own eager attention, and through every wrapper."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from builders import WRITERS
from goldimask.backbones import Backbone, load_backbone
from goldimask.backbones.attention import head_mean
from goldimask.backbones.lora import add_lora
from goldimask.types import Batch, Signal

every_family = pytest.mark.parametrize("family", WRITERS, indirect=True, scope="session")
TAP = frozenset({Signal.LOGP, Signal.ATTENTION, Signal.RECEIVED})


def eager_maps(folder: Path, backbone: Backbone, batch: Batch, hidden: Tensor) -> list[Tensor]:
    """Head-mean attention of every block, [B, T, T] each, by stock eager attention."""
    model = load_backbone(folder, attn="eager").model
    model.config._attn_implementation_internal = "eager"
    positions = (batch.valid.long().cumsum(1) - 1).clamp_min(0)
    with torch.no_grad():
        out = model.model(
            input_ids=batch.ids.masked_fill(hidden, backbone.mask_id),
            attention_mask=batch.valid,
            position_ids=positions,
            output_attentions=True,
        )
    return [a.mean(1) for a in out.attentions]


@pytest.mark.parametrize("layer", ["last", 0, 0.5])
@pytest.mark.parametrize("attn", ["sdpa", "eager"])
def test_rows_and_columns(
    folder: Path, make_batch: Callable, layer: str | int | float, attn: str
) -> None:
    backbone = load_backbone(folder, attn=attn)
    batch, hidden = make_batch([15, 21, 6], "left")
    with torch.no_grad():
        got = backbone.scorer(backbone.model, batch, hidden, TAP, layer)
        rows_only = backbone.scorer(
            backbone.model, batch, hidden, frozenset({Signal.ATTENTION}), layer
        )
    block = {"last": 2, 0: 0, 0.5: 1}[layer]
    expected = eager_maps(folder, backbone, batch, hidden)[block]
    received = (expected * batch.valid[:, :, None]).sum(1)
    torch.testing.assert_close(got.received, received, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(got.attention, rows_only.attention, rtol=1e-6, atol=1e-7)
    for b in range(3):
        rows = got.rows[b][got.rows[b] >= 0]
        assert rows.tolist() == hidden[b].nonzero().squeeze(1).tolist()
        torch.testing.assert_close(
            got.attention[b, : len(rows)], expected[b, rows], rtol=1e-5, atol=1e-6
        )
        assert torch.allclose(got.attention[b, : len(rows)].sum(-1), torch.ones(len(rows)))


@every_family
def test_predictor_rows(folder: Path, backbone: Backbone, make_batch: Callable) -> None:
    """Dream's option `predictor` reads the row before; in LLaDA both options are the same row."""
    batch, hidden = make_batch([15, 21])
    scorer = replace(backbone.scorer, attention_rows="predictor")
    with torch.no_grad():
        got = scorer(backbone.model, batch, hidden, frozenset({Signal.ATTENTION}))
    expected = eager_maps(folder, backbone, batch, hidden)[-1]
    back = 1 if backbone.shift else 0
    for b in range(2):
        rows = got.rows[b][got.rows[b] >= 0]  # still the candidates
        assert rows.tolist() == hidden[b].nonzero().squeeze(1).tolist()
        torch.testing.assert_close(
            got.attention[b, : len(rows)], expected[b, rows - back], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("layer", ["last", 0])
def test_the_tap_changes_nothing_else(
    backbone: Backbone, make_batch: Callable, layer: str | int
) -> None:
    batch, hidden = make_batch([15, 21])
    rows = TAP - {Signal.RECEIVED}
    with torch.no_grad():
        plain = backbone.scorer(backbone.model, batch, hidden).logp
        tapped = backbone.scorer(backbone.model, batch, hidden, rows, layer).logp
        received = backbone.scorer(backbone.model, batch, hidden, TAP, layer).logp
    assert torch.equal(plain, tapped) and torch.equal(plain, received)


def test_head_groups_within_the_budget() -> None:
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(2, 6, 5, 8, generator=generator)
    k = torch.randn(2, 3, 7, 8, generator=generator)
    valid = torch.ones(2, 7, dtype=torch.bool)
    valid[1, 4:] = False
    scores = (q @ k.repeat_interleave(2, 1).transpose(2, 3)) * 0.3
    scores = scores.masked_fill(~valid[:, None, None], float("-inf"))
    for budget in (256.0, 1e-9):
        got = head_mean(q, k, 0.3, valid, budget)
        torch.testing.assert_close(got, scores.softmax(-1).mean(1))


def test_lower_precision_keeps_a_float32_softmax(folder: Path, make_batch: Callable) -> None:
    backbone = load_backbone(folder, dtype="bfloat16")
    batch, hidden = make_batch([15, 21])
    with torch.no_grad():
        out = backbone.scorer(backbone.model, batch, hidden, TAP)
    assert out.attention.dtype == out.logp.dtype == out.received.dtype == torch.float32
    real = out.rows >= 0
    assert (out.attention.sum(-1)[real] - 1).abs().max() < 1e-5


def test_flash_plumbing(
    folder: Path, make_batch: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a GPU: what FlashAttention would be given, computed by a stand-in."""

    def stand_in(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, **options: object) -> Tensor:
        assert options["is_causal"] is False
        assert options["attn_implementation"] == "flash_attention_2"
        assert mask is None or mask.ndim == 2
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        keys = None if mask is None else mask.bool()[:, None, None, :]
        out = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=keys, scale=options["softmax_scale"]
        )
        return out.transpose(1, 2)

    monkeypatch.setattr(
        "transformers.modeling_flash_attention_utils._flash_attention_forward", stand_in
    )
    backbone = load_backbone(folder)
    for lengths in ([15, 21], [15, 15]):
        batch, hidden = make_batch(lengths)
        results = []
        for name in ("goldimask_sdpa", "goldimask_fa2"):
            backbone.model.config._attn_implementation_internal = name
            with torch.no_grad():
                results.append(backbone.scorer(backbone.model, batch, hidden, TAP))
        torch.testing.assert_close(results[0].logp, results[1].logp, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(results[0].attention, results[1].attention)


def with_adapter(backbone: Backbone) -> Backbone:
    return add_lora(backbone, 0, r=2, alpha=4, dropout=0.0)


def test_through_peft_checkpointing_and_training_mode(
    backbone: Backbone, make_batch: Callable
) -> None:
    """Recomputed blocks give the same gradients; the tap works in both modes without gradient."""
    batch, hidden = make_batch([15, 21])
    with torch.no_grad():
        expected = backbone.scorer(backbone.model, batch, hidden, TAP)
    wrapped = with_adapter(backbone)
    gradients = []
    for checkpointing in (False, True):
        if checkpointing:
            wrapped.model.gradient_checkpointing_enable({"use_reentrant": False})
            wrapped.model.enable_input_require_grads()
        wrapped.model.train()
        with torch.no_grad():
            got = wrapped.scorer(wrapped.model, batch, hidden, TAP)
        torch.testing.assert_close(got.attention, expected.attention)
        torch.testing.assert_close(got.received, expected.received)
        wrapped.model.zero_grad()
        wrapped.scorer(wrapped.model, batch, hidden).logp.sum().backward()
        gradients.append(
            {n: p.grad.clone() for n, p in wrapped.model.named_parameters() if p.grad is not None}
        )
    assert gradients[0].keys() == gradients[1].keys() and len(gradients[0]) == 18
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-5, atol=1e-6)


def test_through_ddp(tmp_path: Path, backbone: Backbone, make_batch: Callable) -> None:
    batch, hidden = make_batch([15, 21])
    with torch.no_grad():
        expected = backbone.scorer(backbone.model, batch, hidden, TAP)
    plain = backbone.scorer(backbone.model, batch, hidden)
    plain.logp.sum().backward()
    want = {n: p.grad.clone() for n, p in backbone.model.named_parameters()}
    backbone.model.zero_grad()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        ddp = torch.nn.parallel.DistributedDataParallel(backbone.model)
        with torch.no_grad():
            got = backbone.scorer(ddp, batch, hidden, TAP)
        torch.testing.assert_close(got.attention, expected.attention)
        backbone.scorer(ddp, batch, hidden).logp.sum().backward()
        del ddp  # before its process group: the last to hold the group would wait for its threads
        gc.collect()
    finally:
        torch.distributed.destroy_process_group()
    for name, p in backbone.model.named_parameters():
        torch.testing.assert_close(p.grad, want[name])
