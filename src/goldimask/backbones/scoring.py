"""Log-probabilities where they are needed, computed inside `forward` (paper, Algorithm 1).

    row(i) = i         LLaDA: the row of a token predicts that token
    row(i) = i - 1     Dream: the row before it does (position 0 keeps its own, meaningless, row)
    log p_i = z[row(i), x_i] - logsumexp z[row(i), :],     z = W h

Only the rows of the asked positions go through the vocabulary projection, a chunk of rows at a
time; with gradient each chunk is recomputed in the backward pass, so that [B, T, V] never exists
in either pass. `predictor_rows` is the only place that knows about Dream's shift; scoring,
decoding and the attention rows (`predictor`) all go through it.

Everything crosses wrappers (PEFT, DDP, FSDP) as plain keyword arguments and comes back in the
output.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from transformers import Cache, PreTrainedConfig
from transformers.utils.generic import ModelOutput

from goldimask.backbones.attention import IMPLEMENTATIONS, SDPA, AttentionTap
from goldimask.backbones.head import FloatHead
from goldimask.backbones.liger import liger_logp
from goldimask.errors import GoldimaskError
from goldimask.processes import send
from goldimask.step import LayerSpec
from goldimask.types import Batch, Signal, Signals

BUDGET_MB = 256.0
Kernel = Literal["torch", "liger"]
AttentionRows = Literal["token", "predictor"]


@dataclass
class DiffusionOutput(ModelOutput):
    """What a forward pass was asked for; the rest is None."""

    # [B, T, V] raw rows, or [M, V] aligned to tokens with `logits_mask`
    logits: Tensor | None = None
    logp: Tensor | None = None  # [B, T]
    entropy: Tensor | None = None  # [B, T]
    attention: Tensor | None = None  # [B, N, T]; of several blocks [L, B, N, T]
    received: Tensor | None = None  # [B, T]; of several blocks [L, B, T]
    past_key_values: Cache | None = None
    hidden_states: tuple[Tensor, ...] | None = None
    attentions: tuple[Tensor, ...] | None = None


def predictor_rows(positions: Tensor, shift: bool, length: int | None = None) -> Tensor:
    """The rows whose logits predict the tokens at `positions`.

    Positions count within a row, or over the flattened batch when `length` (T) is given.
    """
    if not shift:
        return positions
    if length is None:
        return (positions - 1).clamp_min(0)
    return positions - (positions % length != 0).long()


class DiffusionModel:
    """The forward pass of every family, mixed into a stock causal model before its own class."""

    config: Any
    model: nn.Module
    lm_head: nn.Module

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        name: str = config._attn_implementation  # type: ignore[assignment]
        config._attn_implementation_internal = IMPLEMENTATIONS.get(name, name)
        self.lm_head = FloatHead.of(self.lm_head)  # type: ignore[arg-type]

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        logits_to_keep: int | Tensor = 0,
        *,
        score_ids: Tensor | None = None,
        score_mask: Tensor | None = None,
        score_entropy: bool = False,
        score_mb: float = BUDGET_MB,
        score_kernel: Kernel = "torch",
        logits_mask: Tensor | None = None,
        tap_layer: int | Sequence[int] | None = None,
        tap_rows: Tensor | None = None,
        tap_onto: Tensor | None = None,
        tap_received: bool = False,
        **kwargs: Any,  # transformers' own, for its blocks
    ) -> DiffusionOutput:
        """`score_mask` and `logits_mask` select tokens: masks [B, T], or flat positions [M] where
        the host knows them, which spares a wait for the device; `tap_rows` [B, N] are query rows.
        `tap_onto` [B, T, S] sums the attention of those rows over sets of keys: [B, N, S].
        """
        if kwargs.pop("labels", None) is not None:
            raise GoldimaskError(
                "labels: a diffusion backbone has no built-in loss; use MaskedStep"
            )
        if score_mask is not None and score_ids is None:
            raise GoldimaskError("score_mask: needs score_ids, the tokens to be scored")
        valid = attention_mask if attention_mask is not None and attention_mask.ndim == 2 else None
        tap = None
        if tap_layer is not None:
            if attention_mask is not None and valid is None:
                raise GoldimaskError("attention_mask: the attention tap needs the 2-D padding mask")
            tap = AttentionTap(tap_layer, tap_rows, valid, tap_received, score_mb, tap_onto)
            kwargs["tap"] = tap
        if valid is not None and past_key_values is None:
            if position_ids is None:  # count real tokens, so that left padding changes nothing
                position_ids = (valid.long().cumsum(1) - 1).clamp_min_(0)
            if self.config._attn_implementation == SDPA:  # a view: no [B, T, T] mask, no sync
                b, t = valid.shape
                attention_mask = valid.bool()[:, None, None, :].expand(b, 1, t, t)
        base = self.model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            **kwargs,
        )
        h = base.last_hidden_state
        out = DiffusionOutput(
            past_key_values=base.past_key_values,
            hidden_states=base.hidden_states,
            attentions=base.attentions,
        )
        if tap is not None:
            out.attention, out.received = tap.attention, tap.received
        shift = bool(self.config.logit_shift)
        if score_mask is not None and score_ids is not None:
            positions, rows = selected_rows(h, score_mask, shift)
            out.logp, out.entropy = score_rows(
                rows, self.lm_head, score_ids, positions, score_entropy, score_mb, score_kernel
            )
        if logits_mask is not None:
            out.logits = self.lm_head(selected_rows(h, logits_mask, shift)[1])
        elif score_mask is None:
            out.logits = self.lm_head(keep_rows(h, logits_to_keep))
        return out

    def generate(self, *_: object, **__: object) -> NoReturn:
        """Refused: the inherited loop writes one token after the other."""
        raise GoldimaskError(
            "generate: a diffusion model is decoded with goldimask.decode, not left to right"
        )


def keep_rows(h: Tensor, keep: int | Tensor) -> Tensor:
    """transformers' `logits_to_keep`: the last n raw rows (0 = all), or chosen ones."""
    if isinstance(keep, int):
        return h[:, -keep:] if keep else h
    return h[:, keep]


def selected_rows(h: Tensor, mask: Tensor, shift: bool) -> tuple[Tensor, Tensor]:
    """Flat positions [M] of a mask [B, T] (or themselves), and the hidden rows [M, D] for them."""
    positions = mask if mask.ndim == 1 else mask.reshape(-1).nonzero().squeeze(1)  # waits
    rows = predictor_rows(positions, shift, h.shape[1])
    return positions, h.reshape(-1, h.shape[-1]).index_select(0, rows)


def score_rows(
    rows: Tensor,  # [M, D]
    head: nn.Module,
    ids: Tensor,  # [B, T]
    positions: Tensor,  # [M] flat
    entropy: bool = False,
    budget_mb: float = BUDGET_MB,
    kernel: Kernel = "torch",
) -> tuple[Tensor, Tensor | None]:
    """log p (and entropy) of `ids` at the positions, zero elsewhere; on the graph even if empty."""
    b, t = ids.shape
    targets = ids.reshape(-1).index_select(0, positions)
    if kernel == "liger" and not entropy:  # the fused kernel has no entropy
        return spread(liger_logp(rows, targets, head), positions, b, t), None
    size = chunk_rows(vocabulary(head), budget_mb)
    if len(positions) <= size:  # also the empty case
        logp, ent = score_chunk(rows, targets, head, entropy)
    else:
        parts: list[Any] = [
            checkpoint(score_chunk, r, y, head, entropy, use_reentrant=False)
            if torch.is_grad_enabled()
            else score_chunk(r, y, head, entropy)
            for r, y in zip(rows.split(size), targets.split(size), strict=True)
        ]
        logp = torch.cat([p[0] for p in parts])
        ent = torch.cat([p[1] for p in parts]) if entropy else None
    return spread(logp, positions, b, t), None if ent is None else spread(ent, positions, b, t)


def score_chunk(
    rows: Tensor, targets: Tensor, head: nn.Module, entropy: bool
) -> tuple[Tensor, Tensor | None]:
    """[n, D] hidden rows -> float32 log p of their targets [n], and the entropy [n] in nats."""
    logits = head(rows)  # float32
    if not entropy:
        return -F.cross_entropy(logits, targets, reduction="none"), None
    logs = logits.log_softmax(-1)
    # exp(-inf) * -inf would be NaN for a token that is ruled out
    ent = -(logs.exp() * logs.clamp_min(torch.finfo(torch.float32).min)).sum(-1)
    return logs.gather(1, targets[:, None]).squeeze(1), ent


def chunk_rows(vocab: int, budget_mb: float) -> int:
    """Rows whose float32 logits, their log-softmax and the gradient of both fit in the budget."""
    return max(1, int(budget_mb * 2**20) // (3 * 4 * vocab))


def vocabulary(head: nn.Module) -> int:
    """V, also when PEFT wraps the head."""
    return int(getattr(head, "out_features", None) or head.base_layer.out_features)  # type: ignore[union-attr]


def spread(values: Tensor, positions: Tensor, b: int, t: int) -> Tensor:
    """[M] values at flat positions -> [B, T] with zeros elsewhere."""
    where = (torch.div(positions, t, rounding_mode="floor"), positions % t)
    return values.new_zeros(b, t).index_put(where, values)  # not a view: FSDP2 hooks the output


def candidate_rows(mask: Tensor) -> Tensor:
    """[B, T] bool -> [B, N] positions in order, padded with -1."""
    counts = mask.sum(1)
    n = int(counts.max()) if mask.numel() else 0
    order = mask.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :n]
    return order.masked_fill(torch.arange(n, device=mask.device) >= counts[:, None], -1)


@dataclass(frozen=True)
class TokenScorer:
    """The `Scorer` of a backbone: hides positions behind the mask token and measures them."""

    mask_id: int
    shift: bool
    layers: int
    attention_rows: AttentionRows = "token"  # differ only when shifted; D10, docs/decisions.md
    budget_mb: float = BUDGET_MB
    kernel: Kernel = "torch"

    def __call__(
        self,
        model: nn.Module,
        batch: Batch,
        hidden: Tensor,
        want: frozenset[Signal] = frozenset({Signal.LOGP}),
        layer: LayerSpec | Sequence[LayerSpec] = "last",
        where: np.ndarray | None = None,
        onto: Tensor | None = None,
    ) -> Signals:
        """Several layers come from one pass, stacked; `onto` as `tap_onto` of the forward pass."""
        asked: dict[str, Any] = {}
        rows, chosen = None, hidden
        if where is not None:
            chosen = send(np.flatnonzero(where), hidden.device)
        if Signal.ATTENTION in want and where is None:
            rows = candidate_rows(hidden)
        elif Signal.ATTENTION in want:
            rows = send(candidate_rows(torch.from_numpy(where)), hidden.device)
        if rows is not None:
            asked["tap_rows"] = self.query_rows(rows)
        if onto is not None:
            asked["tap_onto"] = onto
        if Signal.RECEIVED in want:
            asked["tap_received"] = True
        if asked:
            asked["tap_layer"] = (
                block_index(layer, self.layers)
                if isinstance(layer, LayerSpec)
                else tuple(block_index(x, self.layers) for x in layer)
            )
        if Signal.ENTROPY in want:
            asked["score_entropy"] = True
        out = model(
            input_ids=batch.ids.masked_fill(hidden, self.mask_id),
            attention_mask=batch.attention_mask(),
            score_ids=batch.ids,
            score_mask=chosen,
            score_mb=self.budget_mb,
            score_kernel=self.kernel,
            **asked,
        )
        return Signals(out.logp, out.entropy, out.attention, rows, out.received)

    def query_rows(self, rows: Tensor) -> Tensor:
        """The attention rows of the candidates: their own, or those of their predictors."""
        if self.attention_rows == "token":
            return rows
        return predictor_rows(rows, self.shift).masked_fill(rows < 0, -1)


def block_index(layer: LayerSpec, layers: int) -> int:
    """`last`, an index (negative counts from the end) or a fraction of the depth -> block index."""
    at = f"method.attention_layer: {layer!r}"
    if layer == "last":
        return layers - 1
    if layer == "probe":
        raise GoldimaskError(f"{at} must be resolved to an index before the first step")
    if isinstance(layer, bool) or not isinstance(layer, int | float):
        raise GoldimaskError(f"{at} is not 'last', 'probe', an index or a fraction of the depth")
    if isinstance(layer, float):
        if not 0.0 <= layer <= 1.0:
            raise GoldimaskError(f"{at}: a fraction of the depth lies in [0, 1]")
        return round(layer * (layers - 1))
    if not -layers <= layer < layers:
        raise GoldimaskError(f"{at}: this backbone has blocks 0 to {layers - 1}")
    return layer % layers
