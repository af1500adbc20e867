"""Memory of a training step, from shapes: what one device holds at the peak.

Bytes that a token of a block keeps; d width, q and k widths of queries and keys, f feed-forward, r
rank, s bytes of the arithmetic (2 for bfloat16), d_in the inputs of the layers with an adapter:

    LoRA           8 d (norms, float32) + s (2 q + 2 k) + 3 s f + sum of (s + 1) d_in + s r
    full           16 d + 5 s d         + s (2 q + 2 k) + 4 s f
    full, sharded  8 d + 4 s d          + s (2 q + 2 k) + 4 s f

A frozen layer keeps no input, a dropout keeps one byte. Full tuning has a float32 residual stream
and a copy of every layer's input; sharded weights arrive in the arithmetic's precision, and it has
neither. Recomputed blocks (gradient checkpointing) keep the residual stream and one block.

W bytes of weights, A parameters that are trained, R outside of blocks, c bytes that all blocks
keep, L logits (within their budget); of n ranks that share the model each holds 1 / n of the state
W + 8 A and of the gradients 4 A:

    begin of the backward pass   state (+ gradients of earlier micro-batches) + c + L + the head's
    its end                      state + gradients + one block; sharded: + (s + 4) R in full tuning
    without gradient             state + 8 d + 3 s f a token + L + 4 T^2, the probe's attention
    sharded                      + R and two blocks, gathered; R twice while it is gathered

In full tuning autocast makes copies of the float32 weights, 2 bytes each, alive until their
backward pass. nf4 holds a block's layers in 0.516 bytes a weight, and the largest one in full for
a moment. Allocators, kernels and the CUDA context (about a gigabyte) come on top.
`tools/storage.py` counts the same storage by storage; the tests hold both together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from goldimask.backbones.scoring import BUDGET_MB

GIB = 2**30
NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)  # 64 weights share an 8-bit scale, 256 scales a float32 one


@dataclass(frozen=True)
class Use:
    """The options of a run that decide its memory."""

    length: int
    batch: int = 1
    adapter: int = 0  # parameters of the adapter; 0 is full tuning
    rank: int = 0
    inputs: int = 0  # widths of the adapter's inputs, summed over the layers of one block
    checkpointed: bool = False
    quant: str | None = None
    shards: int = 1  # ranks that share one model (FSDP2)
    accumulated: bool = False  # gradients of earlier micro-batches are there
    probe: bool = True
    eval_batch: int = 0
    weight_bytes: int = 2
    eager: bool = False  # attention without a fused kernel


def footprint(model: nn.Module, use: Use) -> dict[str, float]:
    """GiB by phase, with the largest as `peak`."""
    c: Any = model.config
    total = sum(p.numel() for p in model.parameters())
    blocks = c.num_hidden_layers
    inside = sum(p.numel() for n, p in model.named_parameters() if ".layers." in n)
    block, outside = inside / blocks, total - inside
    head = c.vocab_size * c.hidden_size
    trained = use.adapter or total
    full, s, n = not use.adapter, use.weight_bytes, use.shards
    kept = total * (4 if full else s) + (4 * use.adapter)
    largest = 0
    if use.quant:
        kept += inside * (NF4 - s)
        largest = s * c.hidden_size * feed_forward(c)
    state = (kept + 8 * trained) / n
    gradients = 4 * trained / n
    tokens = use.batch * use.length
    one = tokens * (
        block_bytes(c, use) + (8 * c.num_attention_heads * use.length if use.eager else 0)
    )
    if use.batch > 1:  # the padding mask, as every fused kernel that takes one wants it
        one += s * tokens * use.length
    copies = 0 if n > 1 or not full or s == 4 else s * block
    stacked = blocks * (one + copies)
    if use.checkpointed:
        stacked = blocks * tokens * c.hidden_size * (4 if full and n == 1 else s) + one + copies
    logits = min(BUDGET_MB * 2**20, 12 * tokens * c.vocab_size)
    gathered = 0 if n == 1 else s * outside + 2 * s * block
    of_head = 0 if not full else head * (12 if n == 1 else 2 * s)
    begin = state + gradients * use.accumulated + stacked + logits + gathered + of_head + largest
    end = state + gradients + one + copies
    if n > 1:  # the last unit's gradients: in the arithmetic's precision, and summed in float32
        end = state + gradients * inside / total + (s + 4) * outside * full
    found = {"begin of backward": begin, "end of backward": end}
    if use.probe:
        found["probe"] = state + forward_only(c, use, use.batch, block, outside, full) + largest
    if use.eval_batch:
        quiet = forward_only(c, use, use.eval_batch, block, outside, full)
        found["evaluation"] = state + quiet + largest
    found |= {"weights": kept / n, "peak": max(found.values())}
    return {name: value / GIB for name, value in found.items()}


def forward_only(c: Any, use: Use, batch: int, block: float, outside: float, full: bool) -> float:
    """Bytes of a pass without gradient beside the state."""
    tokens, s = batch * use.length, use.weight_bytes
    logits = min(BUDGET_MB * 2**20, 12 * tokens * c.vocab_size)
    passing = tokens * (3 * s * feed_forward(c) + 8 * c.hidden_size) + 4 * tokens * use.length
    if use.shards > 1:
        return s * outside + 2 * s * block + max(s * outside, passing + logits)
    copies = s * (block * c.num_hidden_layers + outside) if full and s == 2 else 0
    return passing + logits + copies


def inference(model: nn.Module, length: int, batch: int, weight_bytes: int = 2) -> float:
    """GiB of a forward pass over a loaded model."""
    use = Use(length, batch, adapter=1, weight_bytes=weight_bytes)
    weights = weight_bytes * sum(p.numel() for p in model.parameters())
    return (weights + forward_only(model.config, use, batch, 0, 0, False)) / GIB


def block_bytes(c: Any, use: Use) -> float:
    """Bytes that one token of one block keeps for the backward pass."""
    s, d, f = use.weight_bytes, c.hidden_size, feed_forward(c)
    wide = (getattr(c, "head_dim", None) or d // c.num_attention_heads) * c.num_attention_heads
    narrow = wide * c.num_key_value_heads // c.num_attention_heads
    attention = s * (2 * wide + 2 * narrow)
    if not use.adapter and use.shards > 1:
        return (8 + 4 * s) * d + attention + 4 * s * f
    if not use.adapter:
        return (16 + 5 * s) * d + attention + 4 * s * f
    return 8 * d + attention + 3 * s * f + (s + 1) * use.inputs + 3 * s * use.rank


def feed_forward(c: Any) -> int:
    """Width that one token meets; of experts, those that it is sent to."""
    return c.intermediate_size * (getattr(c, "num_experts_per_tok", None) or 1)
