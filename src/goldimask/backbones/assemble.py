"""A model and a tokenizer -> a `Backbone`: which ids mean what, per family."""

from __future__ import annotations

from typing import Any

from torch import nn

from goldimask.backbones.base import Backbone, Family
from goldimask.backbones.dream import DreamConfig, DreamForDiffusion
from goldimask.backbones.llada import LLaDAConfig, LLaDAForDiffusion
from goldimask.backbones.scoring import TokenScorer
from goldimask.errors import GoldimaskError

FAMILIES: dict[Family, tuple[type, type]] = {
    "llada": (LLaDAConfig, LLaDAForDiffusion),
    "dream": (DreamConfig, DreamForDiffusion),
}
TURN_END = {"llada": "<|eot_id|>", "dream": "<|im_end|>"}
USABLE_LENGTH = {"dream": 2048}  # the model card; the config's 131072 was inherited from Qwen2.5


def family_of(model_type: str) -> Family | None:
    """`model_type` of a config.json -> family."""
    return {"llada": "llada", "dream": "dream"}.get(str(model_type).lower())  # type: ignore[return-value]


def assemble(model: nn.Module, tokenizer: Any, name: str, path: str = "") -> Backbone:
    """Collect the special ids and the alignment; refuses ids that the embedding does not have."""
    config: Any = model.config
    family = family_of(config.model_type)
    assert family is not None
    mask_id = config.mask_token_id if config.mask_token_id is not None else tokenizer.mask_token_id
    if mask_id is None or not 0 <= mask_id < config.vocab_size:
        raise GoldimaskError(
            f"{path or name}: mask_token_id is {mask_id}, not a row of the embedding "
            f"({config.vocab_size} rows); set it in config.json"
        )
    pad_id = getattr(config, "padding_token_id", None)
    pad_id = config.pad_token_id if pad_id is None else pad_id
    pad_id = tokenizer.pad_token_id if pad_id is None else pad_id
    turn_end = tokenizer.get_vocab().get(TURN_END[family], tokenizer.eos_token_id)
    missing = [k for k, v in {"pad": pad_id, "turn end": turn_end}.items() if v is None]
    if missing:
        raise GoldimaskError(
            f"{path or name}: the tokenizer has no {' and no '.join(missing)} token"
        )
    layers, shift = config.num_hidden_layers, config.logit_shift
    return Backbone(
        model=model,
        tokenizer=tokenizer,
        name=name,
        family=family,
        mask_id=mask_id,
        pad_id=pad_id,
        turn_end_id=turn_end,
        special_ids=special_ids(tokenizer) | {mask_id, pad_id, turn_end},
        shift=shift,
        layers=layers,
        max_length=min(
            config.max_position_embeddings,
            USABLE_LENGTH.get(family, config.max_position_embeddings),
        ),
        scorer=TokenScorer(mask_id, shift, layers),
        path=path,
    )


def special_ids(tokenizer: Any) -> frozenset[int]:
    """Every id that the tokenizer marks as special."""
    added = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(added | set(tokenizer.all_special_ids))
