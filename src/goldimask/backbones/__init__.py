"""Masked diffusion models on stock transformers, without remote code.

Importing this package registers LLaDA, Dream and DiffuLLaMA with transformers' Auto classes.
"""

from __future__ import annotations

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from transformers.conversion_mapping import register_checkpoint_conversion_mapping

from goldimask.backbones.attention import register_attention
from goldimask.backbones.base import Backbone, Family
from goldimask.backbones.checkpoint import FAMILIES
from goldimask.backbones.identity import weights_hash
from goldimask.backbones.loading import load_backbone
from goldimask.backbones.lookup import BACKBONES, ModelSource, find_model
from goldimask.backbones.saving import save_backbone
from goldimask.backbones.scoring import TokenScorer, predictor_rows
from goldimask.backbones.scratch import new_backbone

__all__ = [
    "BACKBONES",
    "FAMILIES",
    "Backbone",
    "Family",
    "ModelSource",
    "TokenScorer",
    "find_model",
    "load_backbone",
    "new_backbone",
    "predictor_rows",
    "save_backbone",
    "weights_hash",
]


def _register() -> None:
    register_attention()
    for family in FAMILIES.values():
        kind = family.config.model_type
        if family.config.__mro__[2].model_type == kind:  # transformers' own name stays its own
            continue
        AutoConfig.register(kind, family.config, exist_ok=True)
        AutoModel.register(family.config, family.model, exist_ok=True)
        AutoModelForCausalLM.register(family.config, family.model, exist_ok=True)
        if family.names:
            register_checkpoint_conversion_mapping(kind, [*family.renamings()], overwrite=True)


_register()
