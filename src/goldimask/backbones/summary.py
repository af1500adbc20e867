"""What `goldimask model` says about a checkpoint, from its headers and its tokenizer alone.

Memory in GiB, P parameters, A adapter parameters, B T tokens, d width, f feed-forward width, L
blocks, s bytes per stored weight (2 for bfloat16):

    inference        s P + two blocks' activations + the logits budget
    LoRA             s P + 16 A + activations          (float32 weights, gradients and two moments)
    full tuning      16 P + activations
    activations      s B T (9 d + 3 f) per block, or s B T d per block and one block's worth when
                     blocks are recomputed (gradient checkpointing)

These are estimates of what must be live at the peak; allocators and kernels add to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from goldimask.backbones.base import Backbone, Family
from goldimask.backbones.checkpoint import check_tensors, read_shapes
from goldimask.backbones.loading import empty_backbone
from goldimask.backbones.lora import TARGETS, target_modules
from goldimask.backbones.scoring import BUDGET_MB
from goldimask.errors import GoldimaskError

EXAMPLE = (
    {"role": "user", "content": "What is 2 + 3?"},
    {"role": "assistant", "content": "5"},
    {"role": "user", "content": "And 5 + 4?"},
)
ANSWER = "5 + 4 = 9"
BYTES = {"F32": 4, "BF16": 2, "F16": 2}
GIB = 2**30


def inspect_model(
    name_or_folder: str | Path,
    length: int | None = None,
    batch: int = 1,
    lora_r: int = 128,
    lora_targets: Sequence[str] = TARGETS,
) -> dict[str, Any]:
    """Everything that can be known without loading a weight; a broken checkpoint is an error."""
    backbone = empty_backbone(name_or_folder)
    folder = Path(backbone.path)
    config: Any = backbone.model.config
    dtypes: dict[str, int] = {}
    stored = any(folder.glob("*.safetensors"))
    if stored:
        check_tensors(folder, config, backbone.family)
        _, dtypes = read_shapes(folder)
    adapter = adapter_size(backbone.model, backbone.family, lora_r, lora_targets)
    width = min((BYTES.get(k, 4) for k in dtypes), default=2)
    length = length or min(1024, backbone.max_length)
    return {
        "name": backbone.name,
        "folder": str(folder),
        "family": backbone.family.name,
        "parameters": sum(p.numel() for p in backbone.model.parameters()),
        "tensors": "complete" if stored else "not downloaded",
        "stored_as": dtypes,
        "sizes": {
            "layers": config.num_hidden_layers,
            "width": config.hidden_size,
            "heads": config.num_attention_heads,
            "key_value_heads": config.num_key_value_heads,
            "feed_forward": config.intermediate_size,
            "vocabulary": config.vocab_size,
            "tied": bool(config.tie_word_embeddings),
        },
        "max_length": backbone.max_length,
        "alignment": "row i predicts token i + 1" if backbone.shift else "row i predicts token i",
        "rope": "float32" if getattr(config, "rope_full_precision", False) else "model's precision",
        "tokens": tokens(backbone),
        "chat": chat(backbone),
        "memory": memory(backbone.model, length, batch, adapter, width),
    }


def tokens(backbone: Backbone) -> dict[str, Any]:
    """The special ids with their text."""
    ids = {
        "mask": backbone.mask_id,
        "pad": backbone.pad_id,
        "turn_end": backbone.turn_end_id,
        "bos": backbone.tokenizer.bos_token_id,
        "eos": backbone.tokenizer.eos_token_id,
    }
    text = backbone.tokenizer.convert_ids_to_tokens
    return {
        **{k: {"id": i, "text": None if i is None else text(i)} for k, i in ids.items()},
        "special": len(backbone.special_ids),
        "tokenizer": len(backbone.tokenizer),
    }


def chat(backbone: Backbone) -> dict[str, Any]:
    """A two-turn example: text and token counts on both sides of the boundary."""
    try:
        prompt = backbone.render(EXAMPLE)
    except GoldimaskError as error:  # a base model has no template; said, not hidden
        return {"error": str(error)}
    response = backbone.response_ids(ANSWER)
    return {
        "prompt": prompt,
        "response": backbone.tokenizer.decode(response, skip_special_tokens=False),
        "prompt_tokens": len(backbone.prompt_ids(EXAMPLE)),
        "response_tokens": len(response),
    }


def adapter_size(model: nn.Module, family: Family, r: int, targets: Sequence[str]) -> int:
    """Parameters of an adapter: r (d_in + d_out) for every linear layer it targets."""
    layers = target_modules(model, family, targets).values()
    return sum(r * (layer.in_features + layer.out_features) for layer in layers)


def memory(
    model: nn.Module, length: int, batch: int, adapter: int, weight_bytes: int = 2
) -> dict[str, Any]:
    """Estimates in GiB, by the formulas at the top; `adapter` is its number of parameters."""
    config: Any = model.config
    p = sum(x.numel() for x in model.parameters())
    row = weight_bytes * batch * length
    block = row * (9 * config.hidden_size + 3 * config.intermediate_size)
    layers = config.num_hidden_layers
    stacked = row * config.hidden_size * layers + block
    logits = min(int(BUDGET_MB * 2**20), 12 * batch * length * config.vocab_size)
    frozen = weight_bytes * p
    kinds = {
        "inference": frozen + 2 * block + logits,
        "lora": frozen + 16 * adapter + layers * block + logits,
        "lora_checkpointed": frozen + 16 * adapter + stacked + logits,
        "full": 16 * p + layers * block + logits,
        "full_checkpointed": 16 * p + stacked + logits,
    }
    return {
        "length": length,
        "batch": batch,
        "bytes_per_weight": weight_bytes,
        "adapter_parameters": adapter,
        "gib": {k: v / GIB for k, v in kinds.items()},
    }
