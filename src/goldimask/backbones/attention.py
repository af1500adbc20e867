"""Attention for bidirectional backbones: stock kernels, with a tap on one block or several.

    A = mean over heads of softmax over all real keys of (q k^T / sqrt(d)),   all in float32

The tap sees the queries and keys that the block itself uses (after RoPE and adapters), keeps the
rows it was asked for, and then lets the stock kernel produce the block's output, which stays
unchanged (D10, docs/decisions.md). No other block pays anything. Scores are made for a few heads at
a time, within a memory budget, and without autocast, which would round q k^T to bfloat16.

LLaDA rotates queries and keys in float32 and casts them back (`rope_full_precision`); the cast
back is here, because this is the first place after the rotation that we own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import transformers.modeling_flash_attention_utils as flash
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask, flash_attention_mask, sdpa_mask
from transformers.models.llama.modeling_llama import eager_attention_forward

SDPA = "goldimask_sdpa"
# What a user or a config may ask for, and our version of it. The names must not contain "flash".
IMPLEMENTATIONS = {"sdpa": SDPA, "eager": "goldimask_eager", "flash_attention_2": "goldimask_fa2"}


class AttentionTap:
    """Collects the attention of one block, or of several, during one forward pass.

    A plain object, not a dataclass: wrappers copy dataclasses they find in keyword arguments, and
    this one is written to.
    """

    def __init__(
        self,
        layer: int | Sequence[int],
        rows: Tensor | None,  # [B, N] query rows, -1 = padding; None = no rows wanted
        valid: Tensor | None,  # [B, T] real positions; None = all
        received: bool = False,
        budget_mb: float = 256.0,
        onto: Tensor | None = None,  # [B, T, S]: A @ onto is kept instead of A
    ) -> None:
        self.layer = layer
        self.layers = (layer,) if isinstance(layer, int) else tuple(layer)
        self.rows = rows
        self.valid = valid
        self.want_received = received
        self.budget_mb = budget_mb
        self.onto = onto
        self.found: dict[int, tuple[Tensor | None, Tensor | None]] = {}

    @property
    def attention(self) -> Tensor | None:
        """[B, N, T] of the block, or [L, B, N, T] of several in the order asked for."""
        return self._of(0)

    @property
    def received(self) -> Tensor | None:
        """[B, T], or [L, B, T]."""
        return self._of(1)

    def _of(self, what: int) -> Tensor | None:
        kept = [self.found[layer][what] for layer in self.layers if layer in self.found]
        known = [x for x in kept if x is not None]
        if not known:
            return None
        return known[0] if isinstance(self.layer, int) else torch.stack(known)

    @torch.no_grad()
    def capture(self, query: Tensor, key: Tensor, scaling: float, layer: int) -> None:
        """query [B, H, T, d], key [B, H_kv, T, d]."""
        attention = received = None
        if self.want_received:
            everything = head_mean(query, key, scaling, self.valid, self.budget_mb)  # [B, T, T]
            real = everything if self.valid is None else everything * self.valid[:, :, None]
            received = real.sum(1)
            if self.rows is not None:
                index = self.rows.clamp_min(0)[:, :, None].expand(-1, -1, key.shape[2])
                attention = everything.gather(1, index)
        elif self.rows is not None:
            index = self.rows.clamp_min(0)[:, None, :, None]
            query = query.gather(2, index.expand(-1, query.shape[1], -1, query.shape[3]))
            attention = head_mean(query, key, scaling, self.valid, self.budget_mb)
        if attention is not None and self.rows is not None:
            attention.mul_((self.rows >= 0)[:, :, None])
            if self.onto is not None:
                with torch.autocast(query.device.type, enabled=False):
                    attention = attention @ self.onto
        self.found[layer] = attention, received


def head_mean(
    query: Tensor, key: Tensor, scaling: float, valid: Tensor | None, budget_mb: float
) -> Tensor:
    """Mean over heads of the float32 softmax rows: [B, H, N, d] x [B, H_kv, T, d] -> [B, N, T]."""
    b, heads, n, d = query.shape
    kv_heads, length = key.shape[1], key.shape[2]
    group = heads // kv_heads  # query heads that share one key head
    per_head = 2 * 4 * b * group * n * length  # scores and their softmax, in float32
    step = max(1, min(kv_heads, int(budget_mb * 2**20) // max(1, per_head)))
    hidden = None if valid is None else ~valid[:, None, None, :].bool()  # [B, 1, 1, T]
    total = query.new_zeros((b, n, length), dtype=torch.float32)
    with torch.autocast(query.device.type, enabled=False):
        for start in range(0, kv_heads, step):
            k = key[:, start : start + step].float()
            q = query[:, start * group : (start + k.shape[1]) * group].float() * scaling
            scores = q.reshape(b, k.shape[1], group * n, d) @ k.transpose(2, 3)
            if hidden is not None:
                scores.masked_fill_(hidden, float("-inf"))
            total += scores.softmax(-1).view(b, k.shape[1] * group, n, length).sum(1)
    return total.div_(heads)


def _tapped(kernel: Any) -> Any:
    """The stock kernel, after a look at the queries and keys if this is the tapped block."""

    def forward(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        scaling: float,
        dropout: float = 0.0,
        tap: AttentionTap | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor | None]:
        if query.dtype != value.dtype:  # float32 RoPE over a lower precision model
            query, key = query.to(value.dtype), key.to(value.dtype)
        if tap is not None and module.layer_idx in tap.layers:
            tap.capture(query, key, scaling, module.layer_idx)  # type: ignore[arg-type]
        return kernel(
            module, query, key, value, attention_mask, scaling=scaling, dropout=dropout, **kwargs
        )

    return forward


def flash_kernel(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """FlashAttention 2. The stock function finds its kernel by the config's name, which is ours."""
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))  # [B, T, H, d]
    out = flash._flash_attention_forward(
        q,
        k,
        v,
        attention_mask,  # the 2-D padding mask, or None
        query_length=q.shape[1],
        is_causal=False,
        dropout=dropout,
        softmax_scale=scaling,
        attn_implementation="flash_attention_2",
    )
    return out, None


def register_attention() -> None:
    """Make our implementations known to transformers; both registries, or padding is ignored."""
    kernels = {
        "sdpa": (sdpa_attention_forward, sdpa_mask),
        "eager": (eager_attention_forward, eager_mask),
        "flash_attention_2": (flash_kernel, flash_attention_mask),
    }
    for name, (kernel, mask) in kernels.items():
        AttentionInterface.register(IMPLEMENTATIONS[name], _tapped(kernel))
        AttentionMaskInterface.register(IMPLEMENTATIONS[name], mask)
