"""Scoring inside `forward` equals full logits, in value and gradient, for both alignments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from builders import WRITERS
from goldimask.backbones import Backbone, predictor_rows
from goldimask.backbones.scoring import (
    block_index,
    candidate_rows,
    chunk_rows,
    score_rows,
)
from goldimask.errors import GoldimaskError
from goldimask.types import Batch, Signal

every_family = pytest.mark.parametrize("family", WRITERS, indirect=True, scope="session")
BOTH = frozenset({Signal.LOGP, Signal.ENTROPY})


def full_logits(backbone: Backbone, batch: Batch, hidden: Tensor) -> Tensor:
    """Row i predicts token i: the whole [B, T, V], shifted by concatenation as decoders do."""
    ids = batch.ids.masked_fill(hidden, backbone.mask_id)
    raw = backbone.model(ids, attention_mask=batch.attention_mask()).logits
    return torch.cat([raw[:, :1], raw[:, :-1]], 1) if backbone.shift else raw


def oracle(backbone: Backbone, batch: Batch, hidden: Tensor) -> tuple[Tensor, Tensor]:
    logs = full_logits(backbone, batch, hidden).log_softmax(-1)
    logp = logs.gather(2, batch.ids[..., None]).squeeze(2) * hidden
    return logp, -(logs.exp() * logs).sum(-1) * hidden


@every_family
@pytest.mark.parametrize("budget_mb", [256.0, 0.02])  # one chunk; four rows per chunk
@pytest.mark.parametrize("side", ["right", "left"])
def test_values_and_gradients(
    backbone: Backbone, make_batch: Callable, budget_mb: float, side: str
) -> None:
    batch, hidden = make_batch([17, 23, 9], side)
    scorer = replace(backbone.scorer, budget_mb=budget_mb)
    upstream = torch.linspace(-1, 1, hidden.numel()).view_as(hidden)
    results = []
    for score in (
        lambda: (lambda s: (s.logp, s.entropy))(scorer(backbone.model, batch, hidden, BOTH)),
        lambda: oracle(backbone, batch, hidden),
    ):
        backbone.model.zero_grad()
        logp, entropy = score()
        ((logp * upstream).sum() + (entropy * upstream.flip(1)).sum()).backward()
        gradients = {n: p.grad for n, p in backbone.model.named_parameters()}
        results.append((logp.detach(), entropy.detach(), gradients))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    assert (results[0][0][~hidden] == 0).all()


def test_chunks_do_not_change_the_training_pass(backbone: Backbone, make_batch: Callable) -> None:
    """Without entropy another kernel is used; it gives the same values, and is chunked too."""
    batch, hidden = make_batch([23, 11])
    assert int(hidden.sum()) > chunk_rows(384, 0.02) == 4
    with torch.no_grad():
        expected, _ = oracle(backbone, batch, hidden)
        for budget in (256.0, 0.02, 1e-9):
            out = replace(backbone.scorer, budget_mb=budget)(backbone.model, batch, hidden)
            torch.testing.assert_close(out.logp, expected, rtol=1e-5, atol=1e-5)
            assert out.entropy is None and out.attention is None and out.received is None


def test_nothing_hidden_stays_on_the_graph(backbone: Backbone, make_batch: Callable) -> None:
    batch, hidden = make_batch([9, 9])
    logp = backbone.scorer(backbone.model, batch, hidden & False).logp
    assert logp.shape == (2, 9) and (logp == 0).all()
    logp.sum().backward()
    assert all(p.grad is not None for p in backbone.model.parameters())
    with torch.no_grad():
        out = backbone.scorer(backbone.model, batch, hidden & False, frozenset(Signal))
    assert out.attention.shape == (2, 0, 9) and out.rows.shape == (2, 0)


def test_impossible_token_has_finite_entropy() -> None:
    """A logit of -inf (a token ruled out) does not make the entropy NaN."""
    head = torch.nn.Linear(4, 3, bias=True)
    with torch.no_grad():
        head.bias[2] = float("-inf")
        ids = torch.zeros(1, 2, dtype=torch.long)
        _, entropy = score_rows(torch.zeros(2, 4), head, ids, torch.arange(2), entropy=True)
    assert entropy is not None and torch.isfinite(entropy).all()


@every_family
def test_logits_mask_is_aligned_to_tokens(backbone: Backbone, make_batch: Callable) -> None:
    batch, hidden = make_batch([12, 17], "left")
    hidden[1, 0] = True  # position 0 keeps its own row
    ids = batch.ids.masked_fill(hidden, backbone.mask_id)
    with torch.no_grad():
        rows = backbone.model(ids, attention_mask=batch.valid, logits_mask=hidden).logits
        expected = full_logits(backbone, batch, hidden)[hidden]
    torch.testing.assert_close(rows, expected, rtol=1e-5, atol=1e-5)


@every_family
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_changes_nothing(backbone: Backbone, make_batch: Callable, side: str) -> None:
    lengths = [14, 25, 8]
    batch, hidden = make_batch(lengths, side)
    with torch.no_grad():
        together = backbone.scorer(backbone.model, batch, hidden, frozenset(Signal))
        for b in range(len(lengths)):
            real = batch.valid[b]
            alone = Batch(
                batch.ids[b, real][None],
                batch.response[b, real][None],
                batch.valid[b, real][None],
                batch.example_id[b : b + 1],
                padded=False,
            )
            s = backbone.scorer(backbone.model, alone, hidden[b, real][None], frozenset(Signal))
            n = int(hidden[b].sum())
            pairs = [
                (together.logp[b, real], s.logp[0]),
                (together.entropy[b, real], s.entropy[0]),
                (together.received[b, real], s.received[0]),
                (together.attention[b, :n][:, real], s.attention[0]),
            ]
            for left, right in pairs:
                torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-5)
            assert (together.attention[b, :, ~real] == 0).all()
            assert (together.attention[b, n:] == 0).all()
            assert (together.rows[b, n:] == -1).all()


def test_positions_count_real_tokens(backbone: Backbone, make_batch: Callable) -> None:
    """RoPE is relative, but in low precision the angles themselves are rounded."""
    batch, _ = make_batch([3, 5], "left")
    seen = []
    backbone.model.model.register_forward_pre_hook(
        lambda _, __, kwargs: seen.append(kwargs["position_ids"].tolist()), with_kwargs=True
    )
    with torch.no_grad():
        backbone.model(batch.ids, attention_mask=batch.valid)
    assert seen == [[[0, 0, 0, 1, 2], [0, 1, 2, 3, 4]]]


def test_shift_is_stated_once() -> None:
    positions = torch.tensor([0, 1, 4, 5, 9])
    assert predictor_rows(positions, False).equal(positions)
    assert predictor_rows(positions, True).tolist() == [0, 0, 3, 4, 8]
    assert predictor_rows(positions, True, length=5).tolist() == [0, 0, 3, 5, 8]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.booleans(), min_size=6, max_size=6), min_size=1, max_size=4))
def test_candidate_rows(mask: list[list[bool]]) -> None:
    rows = candidate_rows(torch.tensor(mask))
    longest = max(sum(row) for row in mask)
    assert rows.shape == (len(mask), longest)
    for row, got in zip(mask, rows.tolist(), strict=True):
        where = [i for i, x in enumerate(row) if x]
        assert got == where + [-1] * (longest - len(where))


def test_block_index() -> None:
    assert [block_index(x, 5) for x in ("last", 0, 4, -1, -5, 0.0, 0.5, 1.0)] == [
        *(4, 0, 4, 4, 0, 0, 2, 4)
    ]
    for wrong in (5, -6, 1.5, -0.1, "first", "probe", True, None):
        with pytest.raises(GoldimaskError, match=r"method\.attention_layer"):
            block_index(wrong, 5)  # type: ignore[arg-type]


def test_mistakes_are_named(backbone: Backbone) -> None:
    ids = torch.zeros(1, 4, dtype=torch.long)
    with pytest.raises(GoldimaskError, match="score_ids"):
        backbone.model(ids, score_mask=ids.bool())
    with pytest.raises(GoldimaskError, match="labels"):
        backbone.model(ids, labels=ids)
    with pytest.raises(GoldimaskError, match=r"goldimask\.decode"):
        backbone.model.generate(ids)
    with pytest.raises(GoldimaskError, match="2-D"):
        mask = torch.ones(1, 1, 4, 4, dtype=torch.bool)
        backbone.model(ids, attention_mask=mask, tap_layer=0, tap_received=True)
