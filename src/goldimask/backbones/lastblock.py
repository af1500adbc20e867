"""The last block for the scored rows alone.

    k, v = W_k n, W_v n        at every position, n = RMSNorm(h)
    q = W_q n_m                at the scored rows m only, and everything after it:
    h_m += W_o attention(rope(q), rope(k), v);  h_m += MLP(RMSNorm(h_m));  RMSNorm;  W

Nothing reads the other rows of the last block, so leaving them out changes no result beyond the
rounding of differently shaped matrix products. It saves most of one block in both passes and in the
backward pass (the query, output and feed-forward weights are 5/6 of a block).

Queries are laid out per example, padded to the largest count; the rest is flat over the batch.
Parameters, their names and the class a wrapper looks for stay those of the stock block.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaDecoderLayer, rotate_half
from transformers.models.qwen2.modeling_qwen2 import Qwen2DecoderLayer

from goldimask.backbones.attention import IMPLEMENTATIONS


class ScoredRows:
    """Which rows are wanted, flat and padded. A plain object: wrappers take dataclasses apart."""

    def __init__(self, source: Tensor, slot: Tensor, back: Tensor, most: int) -> None:
        self.source = source  # [M] rows of the flattened [B * T]
        self.slot = slot  # [B * most] the row (0..M-1) of each padded place; 0 where there is none
        self.back = back  # [M] the padded place of each row
        self.most = most  # rows of the example that has most


def scored_rows(positions: Tensor, source: Tensor, b: int, t: int) -> ScoredRows | None:
    """From flat token positions in order, and the rows that predict them; None without any."""
    total = len(positions)
    if total == 0:
        return None
    example = torch.div(positions, t, rounding_mode="floor")
    counts = torch.bincount(example, minlength=b)
    most = int(counts.max())
    number = torch.arange(total, device=positions.device)
    back = example * most + number - (counts.cumsum(0) - counts)[example]
    slot = number.new_zeros(b * most).index_copy_(0, back, number)
    return ScoredRows(source, slot, back, most)


def forward_rows(
    block: Any,
    h: Tensor,  # [B, T, D]
    rows: ScoredRows,
    mask: Tensor | None,  # [B, 1, T, T], the same for every query
    position_embeddings: tuple[Tensor, Tensor],
    **kwargs: Any,
) -> Tensor:
    """[M, D]: the block's output at the scored rows."""
    b, t, d = h.shape
    attn = block.self_attn
    n = block.input_layernorm(h)
    k = attn.k_proj(n).view(b, t, -1, attn.head_dim).transpose(1, 2)
    v = attn.v_proj(n).view(b, t, -1, attn.head_dim).transpose(1, 2)
    q = attn.q_proj(n.reshape(b * t, d).index_select(0, rows.source))
    q = q.view(len(rows.source), -1, attn.head_dim)
    cos, sin = position_embeddings  # [1 or B, T, d]
    k = k * cos[:, None] + rotate_half(k) * sin[:, None]
    at = rows.source if len(cos) == b else rows.source % t
    own_cos, own_sin = (x.flatten(0, 1).index_select(0, at)[:, None] for x in (cos, sin))
    q = q * own_cos + rotate_half(q) * own_sin
    q = q.index_select(0, rows.slot).view(b, rows.most, -1, attn.head_dim).transpose(1, 2)
    attend: Any = ALL_ATTENTION_FUNCTIONS[attn.config._attn_implementation]
    out, _ = attend(
        attn,
        q,
        k,
        v,
        None if mask is None else mask[:, :, : rows.most],
        dropout=attn.attention_dropout if attn.training else 0.0,
        scaling=attn.scaling,
        **kwargs,
    )
    out = attn.o_proj(out.reshape(b * rows.most, -1).index_select(0, rows.back))
    h = h.reshape(b * t, d).index_select(0, rows.source) + out
    return h + block.mlp(block.post_attention_layernorm(h))


def _with_rows(stock: type[nn.Module]) -> type[nn.Module]:
    """The stock block, which also takes `scored_rows`."""

    class Block(stock):  # type: ignore[valid-type, misc]
        def forward(
            self,
            hidden_states: Tensor,
            attention_mask: Tensor | None = None,
            position_embeddings: Any = None,
            scored_rows: ScoredRows | None = None,
            **kwargs: Any,
        ) -> Tensor:
            if scored_rows is None:
                return super().forward(
                    hidden_states,
                    attention_mask=attention_mask,
                    position_embeddings=position_embeddings,
                    **kwargs,
                )
            return forward_rows(
                self, hidden_states, scored_rows, attention_mask, position_embeddings, **kwargs
            )

    Block.__name__ = Block.__qualname__ = stock.__name__  # sharding finds blocks by this name
    return Block


BLOCKS: dict[type[nn.Module], type[nn.Module]] = {
    stock: _with_rows(stock) for stock in (LlamaDecoderLayer, Qwen2DecoderLayer)
}


def prepare_last_block(model: Any) -> None:
    """Let the last block of a stock model take `scored_rows`."""
    block = model.model.layers[-1]
    block.__class__ = BLOCKS[type(block)]


def can_trim(model: Any, attention_mask: Tensor | None, kwargs: dict[str, Any]) -> bool:
    """Is only the last block's output at the scored rows wanted, and are its queries free?"""
    whole = ("output_hidden_states", "output_attentions", "past_key_values", "use_cache")
    if any(kwargs.get(name) for name in whole):
        return False
    if model.config.output_hidden_states or model.config.output_attentions:
        return False
    if getattr(model.model.layers[-1].self_attn, "sliding_window", None) is not None:
        return False
    # FlashAttention takes the 2-D mask and unpads queries with it
    flash = model.config._attn_implementation == IMPLEMENTATIONS["flash_attention_2"]
    return attention_mask is None or not flash
