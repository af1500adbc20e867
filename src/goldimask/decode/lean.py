"""The exact forward pass of one example, for small models on a CPU in float32.

The function of the model's own forward, arranged for one canvas and the rows that are asked for:

    norm gains    folded into the projections that follow:  W (g * x / rms) = (W diag g)(x / rms)
    q, k, v       one product; heads of q and k interleaved, so that RoPE is a complex product
    block 1       q, k, v depend on the token alone: a table over the vocabulary, looked up
    block L       keys and values of all T rows; queries, output, MLP, norm and head of the n
                  predicting rows alone (every other block needs all its rows)

Nothing is approximated; sums run in another order, so logits agree with the model's to rounding.
Adapters are included: a projection's matrix is read off by applying it to the identity. Examples
are not padded into a batch: one canvas fills a core, and an example's numbers are bit for bit the
same in any batch. Large models, accelerators, other precisions and wrapped models take
`forward.exact_logits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from goldimask.decode.forward import Decodable
from goldimask.decode.rows import Row
from goldimask.decode.types import Settings

LARGEST = 100_000_000  # parameters; the fused copies double the memory
TABLE = 4096  # largest vocabulary with a table for the first block

Affine = tuple[Tensor, Tensor | None]  # weight, [out, in] while fusing and [in, out] after; bias


@dataclass(frozen=True)
class Block:
    """One transformer block, fused."""

    q: Affine
    kv: Affine
    qkv: Affine
    out: Affine
    gate: Affine
    up: Affine
    down: Affine
    heads: int
    kv_heads: int
    size: int  # of a head
    scaling: float
    eps: float


@dataclass(frozen=True)
class Lean:
    """A model in this form."""

    embed: Tensor  # [V, D]
    blocks: tuple[Block, ...]
    head: Affine
    eps: float
    cis: Tensor  # [T, 1, d/2] complex, cos + i sin
    table: Tensor | None  # [V, (H + 2 H_kv) d]: q, k, v of the first block
    shift: bool


@torch.inference_mode()
def lean_parts(backbone: Decodable, width: int) -> Lean | None:
    """The fused model if this pass serves the backbone, else None. Expects evaluation mode."""
    model = plain_model(backbone.model)
    if model is None:
        return None
    body = model.model
    blocks = tuple(fuse(layer) for layer in body.layers)
    embed = body.embed_tokens.weight
    cos, sin = body.rotary_emb(torch.empty(0), torch.arange(width)[None])  # [1, T, d], halves alike
    half = cos.shape[-1] // 2
    first = blocks[0]
    return Lean(
        embed=embed,
        blocks=blocks,
        head=transposed(scaled(dense(model.lm_head), body.norm.weight)),
        eps=body.norm.variance_epsilon,
        cis=torch.complex(cos[0, :, None, :half], sin[0, :, None, :half]),
        table=times(unit(embed, first.eps), first.qkv) if len(embed) <= TABLE else None,
        shift=backbone.shift,
    )


def plain_model(model: Any) -> Any | None:
    """The stock model under an adapter, if it is small, float32 and on the CPU."""
    from goldimask.backbones.dream import DreamForDiffusion
    from goldimask.backbones.llada import LLaDAForDiffusion

    if hasattr(model, "get_base_model"):  # PEFT
        model = model.get_base_model()
    if type(model) not in (LLaDAForDiffusion, DreamForDiffusion):
        return None
    parameters = list(model.parameters())
    served = all(p.device.type == "cpu" and p.dtype == torch.float32 for p in parameters)
    small = sum(p.numel() for p in parameters) <= LARGEST
    return model if served and small and model.config.hidden_act == "silu" else None


def fuse(layer: Any) -> Block:
    attention, mlp = layer.self_attn, layer.mlp
    size = attention.head_dim
    before, after = layer.input_layernorm.weight, layer.post_attention_layernorm.weight
    q = scaled(interleaved(dense(attention.q_proj), size), before)
    k = scaled(interleaved(dense(attention.k_proj), size), before)
    kv = stacked(k, scaled(dense(attention.v_proj), before))
    return Block(
        q=transposed(q),
        kv=transposed(kv),
        qkv=transposed(stacked(q, kv)),
        out=transposed(dense(attention.o_proj)),
        gate=transposed(scaled(dense(mlp.gate_proj), after)),
        up=transposed(scaled(dense(mlp.up_proj), after)),
        down=transposed(dense(mlp.down_proj)),
        heads=len(q[0]) // size,
        kv_heads=len(k[0]) // size,
        size=size,
        scaling=attention.scaling,
        eps=layer.input_layernorm.variance_epsilon,
    )


def dense(module: Any) -> Affine:
    """Matrix and bias of an affine module, whatever it is made of."""
    if type(module) is nn.Linear:
        return module.weight, module.bias
    zero = module(torch.zeros(1, module.in_features))  # [1, out]
    weight = (module(torch.eye(module.in_features)) - zero).t().contiguous()
    return weight, zero[0] if zero.any() else None


def transposed(affine: Affine) -> Affine:
    return affine[0].t().contiguous(), affine[1]


def scaled(affine: Affine, gain: Tensor) -> Affine:
    return affine[0] * gain, affine[1]


def stacked(a: Affine, b: Affine) -> Affine:
    if a[1] is None and b[1] is None:
        return torch.cat([a[0], b[0]]), None
    biases = [w.new_zeros(len(w)) if bias is None else bias for w, bias in (a, b)]
    return torch.cat([a[0], b[0]]), torch.cat(biases)


def interleaved(affine: Affine, size: int) -> Affine:
    """Rows of each head from (first half, second half) to pairs; q k^T does not change."""
    order = torch.arange(len(affine[0])).view(-1, 2, size // 2).transpose(1, 2).reshape(-1)
    return affine[0][order], None if affine[1] is None else affine[1][order]


def lean_logits(
    lean: Lean, rows: Sequence[Row], windows: Sequence[np.ndarray], settings: Settings, mask_id: int
) -> Tensor:
    """[n, V] logits of all windows in order, like `forward.exact_logits`."""
    tables = []
    for row, where in zip(rows, windows, strict=True):
        wanted = torch.from_numpy(row.prompt + where)
        if lean.shift:
            wanted = (wanted - 1).clamp_min(0)
        logits = one(lean, torch.from_numpy(row.canvas), wanted)
        if settings.cfg:
            blind = row.canvas.copy()
            blind[: row.prompt] = mask_id
            free = one(lean, torch.from_numpy(blind), wanted)
            logits = free + (settings.cfg + 1) * (logits - free)
        tables.append(logits)
    return tables[0] if len(tables) == 1 else torch.cat(tables)


def one(lean: Lean, ids: Tensor, wanted: Tensor) -> Tensor:
    """Logits of the rows `wanted` [n] of the canvas `ids` [T]: [n, V]."""
    size = ids.shape[0]
    x = F.embedding(ids, lean.embed)  # [T, D]; faster than indexing
    cis = lean.cis[:size]
    for i, block in enumerate(lean.blocks[:-1]):
        if i == 0 and lean.table is not None:
            qkv = F.embedding(ids, lean.table)
        else:
            qkv = times(unit(x, block.eps), block.qkv)
        cut = (block.heads + block.kv_heads) * block.size
        qk = rotate(qkv[:, :cut], cis, block.size)
        q, k = qk[:, : block.heads], qk[:, block.heads :]
        x = finish(block, x, q, k, qkv[:, cut:].view(size, -1, block.size))
    block = lean.blocks[-1]
    h = unit(x, block.eps)
    kv = times(h, block.kv)
    cut = block.kv_heads * block.size
    k, v = rotate(kv[:, :cut], cis, block.size), kv[:, cut:].view(size, -1, block.size)
    q = rotate(times(h.index_select(0, wanted), block.q), cis[wanted], block.size)
    x = finish(block, x.index_select(0, wanted), q, k, v)
    return times(unit(x, lean.eps), lean.head)


def finish(block: Block, x: Tensor, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention, output projection and MLP of the rows of q."""
    mixed = F.scaled_dot_product_attention(
        q.transpose(0, 1)[None],
        k.transpose(0, 1)[None],
        v.transpose(0, 1)[None],
        scale=block.scaling,
        enable_gqa=block.heads != block.kv_heads,
    )
    x = plus(x, mixed[0].transpose(0, 1).flatten(1), block.out)
    h = unit(x, block.eps)
    gated = F.silu(times(h, block.gate), inplace=True).mul_(times(h, block.up))
    return plus(x, gated, block.down)


def times(h: Tensor, affine: Affine) -> Tensor:
    """W h + b"""
    weight, bias = affine
    return torch.mm(h, weight) if bias is None else torch.addmm(bias, h, weight)


def plus(x: Tensor, h: Tensor, affine: Affine) -> Tensor:
    """x + W h + b"""
    out = torch.addmm(x, h, affine[0])
    return out if affine[1] is None else out + affine[1]


def unit(x: Tensor, eps: float) -> Tensor:
    """x / rms(x); a product with a vector of ones sums faster than a reduction at this size"""
    return x * torch.mm(x * x, averages(x.shape[1])).add_(eps).rsqrt_()


@cache
def averages(width: int) -> Tensor:
    return torch.full((width, 1), 1 / width)


def rotate(x: Tensor, cis: Tensor, size: int) -> Tensor:
    """RoPE on interleaved heads: [T, H d] -> [T, H, d]."""
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, size // 2, 2)))
    return torch.view_as_real(pairs * cis).flatten(-2)
