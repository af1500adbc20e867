"""A model from scratch, with weights that depend on the seed alone.

W ~ N(0, 0.02^2), and 0.02 / sqrt(2 layers) where a block writes to the residual stream; norms 1,
biases 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedTokenizerFast

from goldimask.backbones.base import Backbone, Family
from goldimask.backbones.loading import assemble
from goldimask.keys import Stream, torch_seed

INIT_STD = 0.02
RESIDUAL = ("o_proj.weight", "down_proj.weight")


def new_backbone(
    family: Family,
    config: Mapping[str, Any],
    tokenizer: PreTrainedTokenizerFast,
    seed: int,
    name: str = "new",
) -> Backbone:
    """A fresh model of any family; `config` has its field names, and a `mask_token_id`."""
    with torch.random.fork_rng(devices=[]):  # the constructor draws from the global generator
        model = family.model(family.config(**{"attn_implementation": "sdpa", **config}))
    init_weights(model, seed)
    return assemble(model, tokenizer, family, name)


@torch.no_grad()
def init_weights(model: nn.Module, seed: int) -> None:
    """Fill every parameter in the order of their names from one generator."""
    generator = torch.Generator().manual_seed(torch_seed(seed, Stream.INIT))
    config: Any = model.config
    residual = INIT_STD / (2 * config.num_hidden_layers) ** 0.5
    for name, p in sorted(model.named_parameters()):
        if p.ndim == 1:
            p.fill_(0.0 if name.endswith("bias") else 1.0)
            continue
        std = residual if name.endswith(RESIDUAL) else INIT_STD
        p.copy_(torch.randn(p.shape, generator=generator) * std)
