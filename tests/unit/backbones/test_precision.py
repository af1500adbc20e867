"""What is float32 under autocast and on a bfloat16 base: attention, logits, log p."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from goldimask.backbones import load_backbone
from goldimask.backbones.attention import head_mean
from goldimask.backbones.head import FloatHead
from goldimask.data.batches import make_batch
from goldimask.types import Example, Signal

AUTOCAST = torch.autocast("cpu", dtype=torch.bfloat16)


def randn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_autocast_does_not_round_the_tap() -> None:
    q, k = (randn(1, 4, 40, 32, seed=i).mul(1.6).bfloat16() for i in (0, 1))
    exact = head_mean(q.double(), k.double(), 32**-0.5, None, 256.0)
    with AUTOCAST:
        assert torch.equal(head_mean(q, k, 32**-0.5, None, 256.0), exact)


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("kept", [torch.bfloat16, torch.float32])
def test_logits_keep_their_float32_sums(autocast: bool, kept: torch.dtype) -> None:
    plain = nn.Linear(64, 501, bias=False)
    plain.weight.data = randn(501, 64).bfloat16().to(kept)
    rows = randn(30, 64, seed=1).bfloat16()
    head, exact = FloatHead.of(plain), rows.double() @ plain.weight.detach().double().T
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
        logits = head(rows).detach()
    assert logits.dtype == torch.float32 and float((logits - exact).abs().max()) < 1e-4
    assert float((plain.bfloat16()(rows) - exact).abs().max()) > 0.03  # what it replaces


def test_the_head_has_the_gradients_of_a_linear_layer() -> None:
    plain = nn.Linear(32, 70, bias=False).bfloat16()
    rows, upstream = randn(9, 32).bfloat16().requires_grad_(), randn(9, 70, seed=1)
    want = torch.autograd.grad((plain(rows).float() * upstream).sum(), (rows, plain.weight))
    head = FloatHead.of(plain)
    found = torch.autograd.grad((head(rows) * upstream).sum(), (rows, head.weight))
    assert all(torch.equal(a, b) for a, b in zip(found, want, strict=True))


def test_a_small_slice_of_the_head_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    head, rows = FloatHead.of(nn.Linear(16, 50, bias=False).bfloat16()), randn(2, 5, 16).bfloat16()
    whole = head(rows)
    monkeypatch.setattr("goldimask.backbones.head.SLICE", 16 * 7)
    torch.testing.assert_close(head(rows), whole, rtol=1e-6, atol=1e-6)
    assert whole.shape == (2, 5, 50)


def test_log_p_of_a_bfloat16_base_is_as_good_as_its_hidden_rows() -> None:
    """Against the same hidden rows in float64; the old bfloat16 logits were off by hundredths."""
    backbone = load_backbone("tiny", device="cpu", dtype="bfloat16")
    ids = torch.randint(10, 60, (50,), generator=torch.Generator().manual_seed(0)).tolist()
    batch = make_batch([Example(ids, 10, [False] * 10 + [True] * 40, 1)], backbone.pad_id)
    with torch.no_grad(), AUTOCAST:
        found = backbone.scorer(backbone.model, batch, batch.response, frozenset({Signal.LOGP}))
        shown = batch.ids.masked_fill(batch.response, backbone.mask_id)
        hidden = backbone.model.model(input_ids=shown).last_hidden_state
    logs = (hidden.double() @ backbone.model.lm_head.weight.double().T).log_softmax(-1)
    exact = logs.gather(2, batch.ids[:, :, None])[:, :, 0] * batch.response
    assert found.logp is not None and found.logp.dtype == torch.float32
    assert float((found.logp - exact).abs().max()) < 1e-5
