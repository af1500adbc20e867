"""Weights to begin with, chosen so that a small bidirectional model finds out early where to look.

    inside a block       W ~ N(0, 1 / fan_in),   divided by sqrt(2 layers) where it writes to the
    stream embedding            E_v = e_v + s,   e_v ~ N(0, 1/4) per token,  s ~ N(0, 1/4) shared by
    all tokens head                 as `new_llada` leaves it (N(0, 0.02^2))

A model with rotary positions, no biases and no causal mask has nothing to attend *by position* with
until its tokens share a direction: a query and a key that do not depend on the token. The shared
vector s is that direction. With it, and with attention scores of order one from the first step,
copying from a fixed distance is learned in a third of the steps (docs/tiny.md).
"""

from __future__ import annotations

import torch
from torch import nn

from goldimask.keys import Stream, torch_seed

SPREAD = 0.5
WRITES = ("o_proj.weight", "down_proj.weight")


@torch.no_grad()
def init_weights(model: nn.Module, layers: int, seed: int) -> None:
    """Fill the blocks and the embedding in the order of their names from one generator."""
    generator = torch.Generator().manual_seed(torch_seed(seed, Stream.INIT, 1))
    for name, p in sorted(model.named_parameters()):
        if p.ndim != 2 or name == "lm_head.weight":
            continue
        values = torch.randn(p.shape, generator=generator)
        if name == "model.embed_tokens.weight":
            shared = torch.randn((1, p.shape[1]), generator=generator)
            p.copy_(SPREAD * (values + shared))
        else:
            scale = p.shape[1] ** -0.5
            p.copy_(values * (scale / (2 * layers) ** 0.5 if name.endswith(WRITES) else scale))
