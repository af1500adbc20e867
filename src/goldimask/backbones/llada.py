"""LLaDA on stock transformers: Llama without the causal mask, under LLaDA's own names.

    h += W_o attention(rope(W_q n), rope(W_k n), W_v n),  n = RMSNorm(h)
    h += W_down(silu(W_gate n) * W_up n),                 n = RMSNorm(h)

The published config and tensors use other names for the same things; this file translates both
ways. Differences to Llama that matter: attention is bidirectional, RoPE is applied in float32
whatever the model's precision, the embedding has no padding row (a padding row would get no
gradient, and pad is EOS here), and row i predicts token i.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from goldimask.backbones.base import Family
from goldimask.backbones.scoring import DiffusionModel
from goldimask.backbones.stock import FullAttention
from goldimask.errors import GoldimaskError, short

# LLaDA's name -> Llama's name
FIELDS = {
    "d_model": "hidden_size",
    "n_heads": "num_attention_heads",
    "n_kv_heads": "num_key_value_heads",
    "n_layers": "num_hidden_layers",
    "mlp_hidden_size": "intermediate_size",
    "embedding_size": "vocab_size",
    "max_sequence_length": "max_position_embeddings",
    "weight_tying": "tie_word_embeddings",
    "activation_type": "hidden_act",
}
# Fields of the published config that stand for one architecture only; another value is refused.
FIXED: dict[str, Any] = {
    "alibi": False,
    "attention_layer_norm": False,
    "bias_for_layer_norm": False,
    "block_type": "llama",
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "layer_norm_type": "rms",
    "layer_norm_with_affine": True,
    "multi_query_attention": None,
    "rope": True,
    "scale_logits": False,
}
# Fields that have no bearing on the function; the published values, written back on saving.
INERT: dict[str, Any] = {
    "alibi_bias_max": 8.0,
    "attention_dropout": 0.0,
    "attention_layer_norm_with_affine": True,
    "block_group_size": 1,
    "embedding_dropout": 0.0,
    "flash_attention": False,
    "init_cutoff_factor": None,
    "init_device": "meta",
    "init_fn": "mitchell",
    "init_std": 0.02,
    "mlp_ratio": 4,
    "precision": "amp_bf16",
    "residual_dropout": 0.0,
}
BLOCK_NAMES = {
    "attn_norm": "input_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_norm": "post_attention_layernorm",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}
# published -> native, the linear layers of a block by their last name
LINEAR_NAMES = {a: b.partition(".")[2] for a, b in BLOCK_NAMES.items() if "." in b}
# `ff_out` is the head at the top level and the down projection inside a block
TOP_NAMES = {"wte": "model.embed_tokens", "ln_f": "model.norm", "ff_out": "lm_head"}
NAMES = {f"blocks.{{}}.{a}": f"model.layers.{{}}.{b}" for a, b in BLOCK_NAMES.items()} | TOP_NAMES


class LLaDAConfig(FullAttention, LlamaConfig):
    """Reads the published config.json or one with Llama's names; `hub_config` writes the former."""

    model_type: ClassVar[str] = "llada"  # type: ignore[misc]
    bos_token_id: int | None = (
        None  # not in the published config; Llama's defaults mean nothing here
    )
    eos_token_id: int | list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        translate(self, kwargs)
        self.rope_full_precision = bool(kwargs.pop("rope_full_precision", True))
        # a padding_idx would freeze EOS, which is also the pad token; remember the id elsewhere
        self.padding_token_id = kwargs.pop("padding_token_id", self.pad_token_id)
        self.pad_token_id = None
        super().__post_init__(**kwargs)


def translate(config: LLaDAConfig, kwargs: dict[str, Any]) -> None:
    """Move LLaDA's fields out of `kwargs` into Llama's attributes of `config`."""
    if kwargs.get("num_experts"):
        raise GoldimaskError(
            f"config.json: num_experts={kwargs['num_experts']}: LLaDA-MoE, which calls itself "
            "llada; load it with goldimask.load_backbone, or give backbone.layout=qwen3_moe"
        )
    for name, value in FIXED.items():
        found = kwargs.pop(name, value)
        if found != value and not (value is None and not found):
            raise GoldimaskError(
                f"config.json: {name}={short(found)} is not LLaDA-8B's architecture "
                f"(needs {value!r})"
            )
    ratio = kwargs.get("mlp_ratio", INERT["mlp_ratio"])
    for name in INERT:
        kwargs.pop(name, None)
    theta = kwargs.pop("rope_theta", None)
    if theta is not None:
        kwargs["rope_theta"] = float(theta)
    old = "d_model" in kwargs
    for name, ours in FIELDS.items():
        value = kwargs.pop(name, None)
        if value is not None:
            setattr(config, ours, value)
        elif old and name == "n_kv_heads":
            config.num_key_value_heads = config.num_attention_heads
        elif old and name == "mlp_hidden_size":
            config.intermediate_size = ratio * config.hidden_size
    if old:
        config.head_dim = config.hidden_size // config.num_attention_heads


def hub_config(config: LLaDAConfig) -> dict[str, Any]:
    """The config in the published form, without `auto_map`."""
    rope: Any = config.rope_parameters
    fields = {name: getattr(config, ours) for name, ours in FIELDS.items()}
    return {
        "architectures": ["LLaDAModelLM"],
        "model_type": "llada",
        **FIXED,
        **INERT,
        **fields,
        "vocab_size": config.vocab_size,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": rope["rope_theta"],
        "rope_full_precision": config.rope_full_precision,
        "mask_token_id": config.mask_token_id,
        "bos_token_id": config.bos_token_id,
        "eos_token_id": config.eos_token_id,
        "pad_token_id": config.padding_token_id,
        "use_cache": False,
    }


def hub_targets(targets: Sequence[str]) -> list[str] | str:
    """An adapter's targets in LLaDA's words; a pattern where `ff_out` would also match the head."""
    if isinstance(targets, str):
        return targets
    if any("." in t for t in targets):  # full paths
        return sorted(LLADA.to_hub(t) for t in targets)
    theirs = {native: published for published, native in LINEAR_NAMES.items()}
    if "down_proj" not in targets and "lm_head" not in targets:
        return sorted(theirs.get(t, t) for t in targets)
    blocks = "|".join(sorted(theirs[t] for t in targets if t in theirs))
    parts = [rf".*\.blocks\.\d+\.({blocks})"] if blocks else []
    return "|".join(parts + [r".*transformer\.ff_out"] * ("lm_head" in targets))


class FullPrecisionRotaryEmbedding(LlamaRotaryEmbedding):
    """cos and sin stay float32, so that the rotation is done in float32 (LLaDA's reference)."""

    def forward(self, x: Tensor, position_ids: Tensor) -> tuple[Tensor, Tensor]:
        return super().forward(x.new_empty(0, dtype=torch.float32), position_ids)


class LLaDAForDiffusion(DiffusionModel, LlamaForCausalLM):
    """Stock Llama blocks with bidirectional attention and scoring inside `forward`."""

    config_class = LLaDAConfig

    def __init__(self, config: LLaDAConfig) -> None:
        super().__init__(config)
        if config.rope_full_precision:
            self.model.rotary_emb = FullPrecisionRotaryEmbedding(config)


LLADA = Family(
    name="llada",
    config=LLaDAConfig,
    model=LLaDAForDiffusion,
    turn_end="<|eot_id|>",
    tokenizer="PreTrainedTokenizerFast",
    hub_config=hub_config,
    names={f"model.transformer.{a}": b for a, b in NAMES.items()},
    layers=LINEAR_NAMES,
    hub_targets=hub_targets,
    template_ids={"<|start_header_id|>": 126346, "<|end_header_id|>": 126347, "<|eot_id|>": 126348},
)
