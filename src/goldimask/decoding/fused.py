"""A small float32 model in the form the lean pass works with.

    norm gains    folded into the projections that follow:  W (g * x / rms) = (W diag g)(x / rms)
    q, k, v       one product; so are the gate and up projections of the MLP
    block 1       q, k, v depend on the token alone: a table over the vocabulary

Nothing is approximated. Adapters are included: a projection's matrix is read off by applying it to
the identity. Large models, accelerators, other precisions and wrapped models are declined; they
take `forward.exact_logits`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from goldimask.decoding.forward import Decodable

LARGEST = 100_000_000  # parameters; the fused copies double the memory
TABLE = 4096  # largest vocabulary with a table for the first block

Affine = tuple[Tensor, Tensor | None]  # weight, [out, in] while fusing and [in, out] after; bias


@dataclass(frozen=True)
class Block:
    """One transformer block, fused."""

    qkv: Affine
    out: Affine
    gate_up: Affine
    down: Affine
    heads: int
    kv_heads: int
    size: int  # of a head
    scaling: np.float32
    eps: np.float32

    @cached_property
    def parts(self) -> tuple[Affine, Affine, Affine]:
        """q, k and v: columns of `qkv`, in rows of their own since strided products are slower."""
        widths = [n * self.size for n in (self.heads, self.kv_heads, self.kv_heads)]
        weight, bias = self.qkv
        biases = [None] * 3 if bias is None else bias.split(widths)
        weights = (part.contiguous() for part in weight.split(widths, dim=1))
        q, k, v = zip(weights, biases, strict=True)
        return q, k, v


@dataclass(frozen=True)
class Lean:
    """A model in this form."""

    embed: Tensor  # [V, D]
    blocks: tuple[Block, ...]
    head: Affine
    eps: np.float32
    cos: np.ndarray  # [T, d/2]
    sin: np.ndarray  # [T, d/2]
    table: np.ndarray | None  # [V, (H + 2 H_kv) d]: q, k, v of the first block
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
    normed = embed * (embed.square().mean(1, keepdim=True) + float(first.eps)).rsqrt()
    return Lean(
        embed=embed,
        blocks=blocks,
        head=transposed(scaled(dense(model.lm_head), body.norm.weight)),
        eps=np.float32(body.norm.variance_epsilon),
        cos=cos[0, :, :half].contiguous().numpy(),
        sin=sin[0, :, :half].contiguous().numpy(),
        table=times(normed, first.qkv).numpy() if len(embed) <= TABLE else None,
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
    projections = (attention.q_proj, attention.k_proj, attention.v_proj)
    q, k, v = (scaled(dense(projection), before) for projection in projections)
    return Block(
        qkv=transposed(stacked(q, stacked(k, v))),
        out=transposed(dense(attention.o_proj)),
        gate_up=transposed(
            stacked(scaled(dense(mlp.gate_proj), after), scaled(dense(mlp.up_proj), after))
        ),
        down=transposed(dense(mlp.down_proj)),
        heads=len(q[0]) // size,
        kv_heads=len(k[0]) // size,
        size=size,
        scaling=np.float32(attention.scaling),
        eps=np.float32(layer.input_layernorm.variance_epsilon),
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


def times(h: Tensor, affine: Affine, out: Tensor | None = None) -> Tensor:
    """W h + b"""
    weight, bias = affine
    if bias is None:
        return torch.mm(h, weight) if out is None else torch.mm(h, weight, out=out)
    made = torch.addmm(bias, h, weight)
    return made if out is None else out.copy_(made)
