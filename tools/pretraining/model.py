"""A model to begin with: its layout, its sizes, and weights that help a small model to learn early.

    inside a block    W ~ N(0, 1 / fan_in); divided by sqrt(2 layers) where it writes to the
                      residual stream
    embedding         E_v = e_v + s;  e_v ~ N(0, 1/4) for each token, s ~ N(0, 1/4) shared by all
    head              as `new_backbone` leaves it, N(0, 0.02^2)

A model with rotary positions, no biases and no causal mask has nothing to attend *by position* with
until its tokens share a direction: a query and a key that do not depend on the token. The shared
vector s is that direction. With it, and with attention scores of order one from the first step,
copying from a fixed distance is learned in a third of the steps (docs/tiny.md).
"""

from __future__ import annotations

import torch
from torch import nn

from goldimask.backbones import FAMILIES, Backbone
from goldimask.backbones import new_backbone as new_model
from goldimask.keys import Stream, torch_seed
from pretraining.recipe import ModelSection
from pretraining.tokenizer import build_tokenizer

SPREAD = 0.5
WRITES = ("o_proj.weight", "down_proj.weight")


def new_backbone(section: ModelSection, seed: int) -> Backbone:
    """An untrained model with the tiny tokenizer, in the layout of its family."""
    tokenizer = build_tokenizer(section.family)
    special = {
        "mask_token_id": tokenizer.mask_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "rope_theta": section.rope_theta,
        "rms_norm_eps": 1e-5,
    }
    if section.family == "dream":
        sizes = {
            "hidden_size": section.width,
            "num_hidden_layers": section.layers,
            "num_attention_heads": section.heads,
            "num_key_value_heads": section.heads,
            "intermediate_size": section.mlp,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": section.max_length,
            "tie_word_embeddings": False,
        }
        backbone = new_model(FAMILIES["dream"], {**sizes, **special}, tokenizer, seed, "tiny")
    else:
        sizes = {
            "d_model": section.width,
            "n_layers": section.layers,
            "n_heads": section.heads,
            "mlp_hidden_size": section.mlp,
            "embedding_size": len(tokenizer),
            "max_sequence_length": section.max_length,
            "weight_tying": False,
        }
        backbone = new_model(FAMILIES["llada"], {**sizes, **special}, tokenizer, seed, "tiny")
    init_weights(backbone.model, section.layers, seed)
    return backbone


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
