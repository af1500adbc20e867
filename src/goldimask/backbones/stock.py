"""Llama, Qwen2, Qwen3 and Qwen3-MoE without the causal mask, under transformers' own names.

    h += W_o attention(rope(norm?(W_q n)), rope(norm?(W_k n)), W_v n),   n = RMSNorm(h)
    h += W_down(silu(W_gate n) * W_up n),                                n = RMSNorm(h)

Qwen2 has biases on q, k and v; Qwen3 normalises q and k per head before RoPE; Qwen3-MoE sends each
token to some of its experts, weighted by the router's softmax. One switch of the config makes all
of them bidirectional. Which token a row predicts (`logit_shift`) is a setting, see `known.py`; it
is applied in `scoring.predictor_rows` alone.
"""

from __future__ import annotations

import json
from typing import Any, ClassVar

from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from goldimask.backbones.base import Family
from goldimask.backbones.scoring import DiffusionModel
from goldimask.errors import GoldimaskError, short

# LLaDA-MoE's config: fields that stand for one architecture only; another value is refused
MOE_FIXED: dict[str, tuple[Any, ...]] = {
    "clip_qkv": (None,),
    "partial_rotary_factor": (None, 1, 1.0),
    "qk_layernorm": (True,),
    "routed_scaling_factor": (None, 1, 1.0),
    "router_num_group": (None, 0, 1),
    "score_function": (None, "softmax"),
    "shared_expert_intermediate_size": (None, 0),
}
NOT_PUBLISHED = ("is_causal", "layer_types", "published", "rope_parameters")


class FullAttention:
    """Mixed into a stock config: bidirectional, nothing cached, with mask token and alignment."""

    def __post_init__(self, **kwargs: Any) -> None:
        if getattr(self, "use_sliding_window", False):
            raise GoldimaskError(
                "config.json: use_sliding_window=true; only full attention is known"
            )
        self.is_causal = False
        self.use_cache = False  # Dream's config says true; every pass would build a cache
        self.logit_shift = bool(kwargs.pop("logit_shift", False))
        self.mask_token_id = kwargs.pop("mask_token_id", None)
        for name in ("is_causal", "use_cache"):
            kwargs.pop(name, None)
        super().__post_init__(**kwargs)  # type: ignore[misc]


class FullLlamaConfig(FullAttention, LlamaConfig):
    """Llama."""


class DiffuLlamaConfig(FullAttention, LlamaConfig):
    """Llama under DiffuLLaMA's tensor names."""

    model_type: ClassVar[str] = "diffullama"  # type: ignore[misc]


class FullQwen2Config(FullAttention, Qwen2Config):
    """Qwen2."""


class DreamConfig(FullAttention, Qwen2Config):
    """Qwen2 with the alignment of the autoregressive model that Dream grew from."""

    model_type: ClassVar[str] = "Dream"  # type: ignore[misc]

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**{"logit_shift": True, **kwargs})


class FullQwen3Config(FullAttention, Qwen3Config):
    """Qwen3."""


class FullQwen3MoeConfig(FullAttention, Qwen3MoeConfig):
    """Qwen3-MoE."""


def moe_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """LLaDA-MoE's config in Qwen3-MoE's words; its nulls mean what they say nothing about."""
    if "expert_intermediate_size" not in fields:
        return fields
    for name, valid in MOE_FIXED.items():
        if fields.get(name, valid[0]) not in valid:
            raise GoldimaskError(
                f"config.json: {name}={short(fields[name])} is not LLaDA-MoE's architecture"
            )
    dense = fields.get("moe_layer_freq")
    if isinstance(dense, list) and not all(dense):
        raise GoldimaskError("config.json: moe_layer_freq: a block without experts is not known")
    width = fields["expert_intermediate_size"]
    named = {"moe_intermediate_size": width, "intermediate_size": width}
    return {**{k: v for k, v in fields.items() if v is not None}, **named}


class LlamaForDiffusion(DiffusionModel, LlamaForCausalLM):
    config_class = FullLlamaConfig


class DiffuLlamaForDiffusion(DiffusionModel, LlamaForCausalLM):
    config_class = DiffuLlamaConfig


class Qwen2ForDiffusion(DiffusionModel, Qwen2ForCausalLM):
    config_class = FullQwen2Config


class DreamForDiffusion(DiffusionModel, Qwen2ForCausalLM):
    config_class = DreamConfig


class Qwen3ForDiffusion(DiffusionModel, Qwen3ForCausalLM):
    config_class = FullQwen3Config


class Qwen3MoeForDiffusion(DiffusionModel, Qwen3MoeForCausalLM):
    config_class = FullQwen3MoeConfig


def hub_config(config: Any) -> dict[str, Any]:
    """The fields as published, under the name that the checkpoint came with; no `auto_map`."""
    fields = json.loads(config.to_json_string(use_diff=False))
    name = getattr(config, "published", {"model_type": fields["model_type"]})
    rope = dict(fields["rope_parameters"])
    theta = rope.pop("rope_theta")
    scaling = None if rope.get("rope_type", "default") == "default" else rope
    hidden = ("_", *NOT_PUBLISHED, "auto_map", "dtype", "transformers_version")
    kept = {k: v for k, v in fields.items() if not k.startswith("_") and k not in hidden}
    return {**kept, **name, "rope_theta": theta, "rope_scaling": scaling}


def hub_moe_config(config: Any) -> dict[str, Any]:
    """The same, with LLaDA-MoE's word for the width of an expert."""
    fields = hub_config(config)
    fields["expert_intermediate_size"] = fields["moe_intermediate_size"]
    return {**fields, "num_experts": config.num_experts, "qk_layernorm": True}


def split_experts(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """transformers' [experts, 2 f, d] and [experts, d, f] -> one matrix each, as published."""
    out: dict[str, Tensor] = {}
    for name, value in state.items():
        path, _, part = name.rpartition(".")
        if not path.endswith(".experts"):
            out[name] = value
            continue
        for n, expert in enumerate(value):
            pair = expert.chunk(2) if part == "gate_up_proj" else (expert,)
            names = ("gate_proj", "up_proj") if part == "gate_up_proj" else ("down_proj",)
            parts = zip(names, pair, strict=True)
            out |= {f"{path}.{n}.{k}.weight": v.clone() for k, v in parts}  # no shared storage
    return out


def stock(name: str, config: Any, model: Any, **more: Any) -> Family:
    """A row: what is left out is Qwen's."""
    defaults = {
        "turn_end": "<|im_end|>",
        "tokenizer": "Qwen2Tokenizer",
        "hub_config": hub_config,
    }
    return Family(name=name, config=config, model=model, **{**defaults, **more})


LLAMA_TOKENS = {"turn_end": "<|eot_id|>", "tokenizer": "PreTrainedTokenizerFast"}
STOCK = (
    stock("dream", DreamConfig, DreamForDiffusion),
    stock("llama", FullLlamaConfig, LlamaForDiffusion, **LLAMA_TOKENS),
    stock("qwen2", FullQwen2Config, Qwen2ForDiffusion),
    stock("qwen3", FullQwen3Config, Qwen3ForDiffusion),
    stock(
        "qwen3_moe",
        FullQwen3MoeConfig,
        Qwen3MoeForDiffusion,
        turn_end="<|role_end|>",
        tokenizer="PreTrainedTokenizerFast",
        hub_config=hub_moe_config,
        read=moe_fields,
        split=split_experts,
    ),
    stock(
        "diffullama",
        DiffuLlamaConfig,
        DiffuLlamaForDiffusion,
        **LLAMA_TOKENS,
        names={"embed_tokens": "model.embed_tokens", "denoise_model": "model"},
    ),
)
