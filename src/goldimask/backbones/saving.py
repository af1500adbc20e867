"""Writing a model in one of two layouts.

    hub      the published one: LLaDA's tensor names and config fields, for the original code,
             Fast-dLLM, dllm and vLLM plug-ins (most others are published under transformers' names)
    native   transformers' names for the same tensors and fields

`load_backbone` reads both. No `auto_map` is written: it would point at code that is not there
(`merge --with-code` copies both).
The folder appears when it is complete, or not at all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from huggingface_hub import save_torch_state_dict
from torch import Tensor

from goldimask.backbones.base import Backbone
from goldimask.errors import GoldimaskError
from goldimask.files import new_folder, write_json

Layout = Literal["hub", "native"]
SHARD_BYTES = 1_000_000_000  # writing and reading back hold a shard beside the model


def save_backbone(
    backbone: Backbone,
    folder: Path | str,
    layout: Layout = "hub",
    shard_bytes: int = SHARD_BYTES,
) -> Path:
    """Write weights, config, tokenizer and chat template; an existing folder is replaced."""
    if hasattr(backbone.model, "peft_config"):
        raise GoldimaskError(f"{folder}: the model carries an adapter; merge it or save_adapter")
    with new_folder(folder) as temporary:
        write_backbone(backbone, temporary, layout, shard_bytes)
    return Path(folder)


def write_backbone(backbone: Backbone, folder: Path, layout: Layout, shard_bytes: int) -> None:
    """Fill an existing folder: safetensors (with an index when sharded), config, tokenizer."""
    save_torch_state_dict(full_state(backbone, layout), folder, max_shard_size=shard_bytes)
    write_json(folder / "config.json", config_dict(backbone, layout))
    write_tokenizer(backbone, folder)


def full_state(backbone: Backbone, layout: Layout) -> dict[str, Tensor]:
    """The tensors under the layout's names, tied ones once."""
    config: Any = backbone.model.config
    state = {k: v.detach() for k, v in backbone.model.state_dict().items()}
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    family = backbone.family
    if layout == "native":
        return state
    return {family.to_hub(k): v.contiguous() for k, v in family.split(state).items()}


def config_dict(backbone: Backbone, layout: Layout) -> dict[str, Any]:
    """config.json in the layout's words."""
    config: Any = backbone.model.config
    dtype = str(next(backbone.model.parameters()).dtype).removeprefix("torch.")
    if layout == "hub":
        known = getattr(config, "usable_length", None)
        length = {} if known is None else {"usable_length": known}
        settings = {"layout": backbone.family.name, "logit_shift": config.logit_shift, **length}
        return {**backbone.family.hub_config(config), **settings, "torch_dtype": dtype}
    fields = json.loads(config.to_json_string(use_diff=False))
    for key in ("auto_map", "_name_or_path", "transformers_version"):
        fields.pop(key, None)
    architectures = [type(backbone.model).__name__]
    return {**fields, "architectures": architectures, "dtype": dtype}


def write_tokenizer(backbone: Backbone, folder: Path) -> None:
    """Tokenizer files for older readers too: a known class, the template in the config."""
    backbone.tokenizer.save_pretrained(folder, save_jinja_files=False)
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text("utf-8"))
    for key in ("auto_map", "is_local", "local_files_only"):
        config.pop(key, None)
    model = backbone.tokenizer.backend_tokenizer.model
    pairs = type(model).__name__ == "BPE"  # what Qwen2's class is built on
    config["tokenizer_class"] = backbone.family.tokenizer if pairs else "PreTrainedTokenizerFast"
    write_json(path, config)
    if config["tokenizer_class"] == "Qwen2Tokenizer":  # reads these, not tokenizer.json
        model.save(str(folder))
        added = {str(t): i for i, t in backbone.tokenizer.added_tokens_decoder.items()}
        write_json(folder / "added_tokens.json", added)
