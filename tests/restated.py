"""Every architecture once more, in plain torch, from the published tensor names: the oracle.

RMSNorm, half-rotation RoPE, grouped-query attention, SwiGLU; biases, norms of queries and keys, and
experts where the stored tensors have them. Nothing is imported from transformers or the library.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

LLADA = {
    "embed": "model.transformer.wte",
    "final": "model.transformer.ln_f",
    "head": "model.transformer.ff_out",
    "block": "model.transformer.blocks.{}.",
    "norm1": "attn_norm",
    "q": "q_proj",
    "k": "k_proj",
    "v": "v_proj",
    "o": "attn_out",
    "norm2": "ff_norm",
    "gate": "ff_proj",
    "up": "up_proj",
    "down": "ff_out",
}
DREAM = {
    "embed": "model.embed_tokens",
    "final": "model.norm",
    "head": "lm_head",
    "block": "model.layers.{}.",
    "norm1": "input_layernorm",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "norm2": "post_attention_layernorm",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}
DIFFULLAMA = {**DREAM, "embed": "embed_tokens", "final": "denoise_model.norm"}
DIFFULLAMA["block"] = "denoise_model.layers.{}."


def read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and every tensor of a folder."""
    state: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        state |= load_file(file)
    return json.loads((folder / "config.json").read_text()), state


def restated_logits(
    folder: Path, ids: Tensor, valid: Tensor | None = None, dtype: torch.dtype = torch.float32
) -> Tensor:
    """[B, T] ids -> raw [B, T, V] logits."""
    config, state = read(folder)
    names = DIFFULLAMA if "embed_tokens.weight" in state else DREAM
    names = LLADA if "d_model" in config else names
    state = {k: v.to(dtype) for k, v in state.items()}
    if names is LLADA:
        heads, kv, layers = config["n_heads"], config["n_kv_heads"], config["n_layers"]
    else:
        heads, kv = config["num_attention_heads"], config["num_key_value_heads"]
        layers = config["num_hidden_layers"]
    eps, theta = config["rms_norm_eps"], config["rope_theta"]

    def linear(x: Tensor, name: str) -> Tensor:
        # one rounding for product and bias, as the published code's linear layers do
        return torch.nn.functional.linear(x, state[name + ".weight"], state.get(name + ".bias"))

    def norm(x: Tensor, name: str) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps)
        return state[name + ".weight"] * y.to(x.dtype)

    def feed_forward(x: Tensor, *parts: str) -> Tensor:
        gate = linear(x, parts[0])
        gated = (
            gate * torch.sigmoid(gate) if dtype == torch.float32 else torch.nn.functional.silu(gate)
        )
        return linear(gated * linear(x, parts[1]), parts[2])

    def mixture(x: Tensor, block: str) -> Tensor:
        """Every expert on every token, weighted by the router; zero but for the best few."""
        scores = linear(x, block + "gate").float().softmax(-1)  # [B, T, experts]
        limit = scores.sort(-1, descending=True)[0][..., config["num_experts_per_tok"] - 1, None]
        weights = scores * (scores >= limit)  # not made to sum to one again
        out = torch.zeros_like(x)
        for e in range(config["num_experts"]):
            parts = (f"{block}experts.{e}.{part}_proj" for part in ("gate", "up", "down"))
            out = out + weights[..., e, None] * feed_forward(x, *parts)
        return out

    h = state[names["embed"] + ".weight"][ids]
    for n in range(layers):
        block = names["block"].format(n)
        x = norm(h, block + names["norm1"])
        q, k, v = (
            linear(x, block + names[part]).unflatten(-1, (count, -1)).transpose(1, 2)
            for part, count in (("q", heads), ("k", kv), ("v", kv))
        )
        if block + "self_attn.q_norm.weight" in state:
            q, k = norm(q, block + "self_attn.q_norm"), norm(k, block + "self_attn.k_norm")
        full = names is LLADA  # LLaDA rotates in float32 whatever the precision
        q, k = rotate(q, theta, full), rotate(k, theta, full)
        k, v = (z.repeat_interleave(heads // kv, dim=1) for z in (k, v))
        a = attend(q, k, v, valid).transpose(1, 2).flatten(2)
        h = h + linear(a, block + names["o"])
        x = norm(h, block + names["norm2"])
        if block + "mlp.gate.weight" in state:
            h = h + mixture(x, block + "mlp.")
        else:
            h = h + feed_forward(x, *(block + names[part] for part in ("gate", "up", "down")))
    head = names["head"] if names["head"] + ".weight" in state else names["embed"]
    return norm(h, names["final"]).float() @ state[head + ".weight"].float().T  # sums in float32


def rotate(x: Tensor, theta: float, full: bool) -> Tensor:
    """Half-rotation RoPE at positions 0..T-1."""
    t, d = x.shape[-2:]
    angles = torch.arange(t)[:, None].float() / theta ** (torch.arange(0, d, 2).float() / d)
    cos, sin = (f(torch.cat((angles, angles), -1)) for f in (torch.cos, torch.sin))
    y = x.float() if full else x
    cos, sin = cos.to(y.dtype), sin.to(y.dtype)
    turned = torch.cat((-y[..., d // 2 :], y[..., : d // 2]), -1)
    return (y * cos + turned * sin).to(x.dtype)


def attend(q: Tensor, k: Tensor, v: Tensor, valid: Tensor | None) -> Tensor:
    """Every position sees every real position."""
    if q.dtype != torch.float32:  # the same kernel as the model, so that rounding can be equal
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)
    scores = q @ k.transpose(2, 3) / q.shape[-1] ** 0.5
    if valid is not None:
        scores = scores.masked_fill(~valid[:, None, None, :], float("-inf"))
    return scores.softmax(-1) @ v
