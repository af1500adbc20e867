"""What `goldimask model` says about a checkpoint, from its headers and its tokenizer alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from goldimask.backbones.base import Backbone, Family
from goldimask.backbones.checkpoint import check_tensors, empty_model, read_config, read_shapes
from goldimask.backbones.footprint import Use, footprint, inference
from goldimask.backbones.identity import TOKENIZER
from goldimask.backbones.loading import assemble, load_tokenizer
from goldimask.backbones.lookup import find_model
from goldimask.backbones.lora import TARGETS, target_modules
from goldimask.errors import GoldimaskError
from goldimask.known import first

EXAMPLE = (
    {"role": "user", "content": "What is 2 + 3?"},
    {"role": "assistant", "content": "5"},
    {"role": "user", "content": "And 5 + 4?"},
)
ANSWER = "5 + 4 = 9"
BYTES = {"F32": 4, "BF16": 2, "F16": 2}


def inspect_model(
    name_or_folder: str | Path,
    length: int | None = None,
    batch: int = 1,
    lora_r: int = 128,
    lora_targets: Sequence[str] = TARGETS,
    shards: int = 8,
) -> dict[str, Any]:
    """Everything that can be known without loading a weight; a broken checkpoint is an error."""
    source = find_model(name_or_folder)
    folder = source.folder(weights=False)
    config, family = read_config(folder, source.base, source.settings({}))
    model: Any = empty_model(config, family)
    config = model.config
    dtypes: dict[str, int] = {}
    stored = any(folder.glob("*.safetensors"))
    if stored:
        check_tensors(folder, config, family)
        _, dtypes = read_shapes(folder)
    adapter = adapter_use(model, family, lora_r, lora_targets)
    width = min((BYTES.get(k, 4) for k in dtypes), default=2)
    positions = config.max_position_embeddings
    usable = first(getattr(config, "usable_length", None), positions)
    length = length or min(1024, usable)
    return {
        "name": source.name,
        "folder": str(folder),
        "family": family.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "active_parameters": active_parameters(model),
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
        "max_length": positions,
        "usable_length": usable,
        "alignment": "row i predicts token i + 1"
        if config.logit_shift
        else "row i predicts token i",
        "rope": "float32" if getattr(config, "rope_full_precision", False) else "model's precision",
        **texts(folder, model, family, source.name),
        "memory": memory(model, length, batch, adapter, width, shards),
    }


def texts(folder: Path, model: nn.Module, family: Family, name: str) -> dict[str, Any]:
    """What the tokenizer says; a folder with a config alone has none."""
    if not any((folder / file).is_file() for file in TOKENIZER):
        return {"tokens": {}, "chat": {"error": f"{folder}: no tokenizer files"}}
    backbone = assemble(model, load_tokenizer(folder, family), family, name, str(folder))
    return {"tokens": tokens(backbone), "chat": chat(backbone)}


def active_parameters(model: nn.Module) -> int:
    """Parameters that one token meets: of the experts only those that it is sent to."""
    config: Any = model.config
    share = getattr(config, "num_experts_per_tok", 1) / (getattr(config, "num_experts", 1) or 1)
    named = ((name, p.numel()) for name, p in model.named_parameters())
    return round(sum(n * share if ".experts." in name else n for name, n in named))


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


def adapter_use(model: nn.Module, family: Family, r: int, targets: Sequence[str]) -> dict[str, int]:
    """What `footprint.Use` has to know about an adapter."""
    layers = target_modules(model, family, targets)
    inside = sum(m.in_features for name, m in layers.items() if ".layers." in name)
    blocks: int = model.config.num_hidden_layers  # type: ignore[union-attr]
    adapter = adapter_size(model, family, r, targets)
    return {"adapter": adapter, "rank": r, "inputs": inside // blocks}


def memory(
    model: nn.Module,
    length: int,
    batch: int,
    adapter: dict[str, int],
    weight_bytes: int,
    shards: int,
) -> dict[str, Any]:
    """Peaks in GiB (`footprint.py`) on one device, and on each of `shards` that share the model."""
    kinds: dict[str, dict[str, Any]] = {
        "lora": adapter,
        "lora_checkpointed": {**adapter, "checkpointed": True},
        "lora_nf4": {**adapter, "quant": "nf4"},
        "lora_nf4_checkpointed": {**adapter, "quant": "nf4", "checkpointed": True},
        "full": {},
        "full_checkpointed": {"checkpointed": True},
    }

    def peak(**options: Any) -> float:
        use = Use(length, batch, weight_bytes=weight_bytes, **options)
        return footprint(model, use)["peak"]

    return {
        "length": length,
        "batch": batch,
        "bytes_per_weight": weight_bytes,
        "adapter_parameters": adapter["adapter"],
        "shards": shards,
        "gib": {
            "inference": inference(model, length, batch, weight_bytes),
            **{name: peak(**options) for name, options in kinds.items()},
        },
        "gib_sharded": {
            name: peak(**options, shards=shards)
            for name, options in kinds.items()
            if "quant" not in options
        },
    }
