"""LLaDA and Dream on stock transformers, without remote code.

Importing this package registers both families with transformers' Auto classes.
"""

from __future__ import annotations

from transformers import AutoConfig, AutoModel, AutoModelForCausalLM
from transformers.conversion_mapping import register_checkpoint_conversion_mapping

from goldimask.backbones.assemble import FAMILIES
from goldimask.backbones.attention import register_attention
from goldimask.backbones.base import BACKBONES, Backbone
from goldimask.backbones.llada import conversion
from goldimask.backbones.loading import load_backbone
from goldimask.backbones.saving import save_backbone
from goldimask.backbones.scoring import TokenScorer, predictor_rows
from goldimask.backbones.scratch import new_dream, new_llada

__all__ = [
    "BACKBONES",
    "Backbone",
    "TokenScorer",
    "load_backbone",
    "new_dream",
    "new_llada",
    "predictor_rows",
    "save_backbone",
]


def _register() -> None:
    register_attention()
    for config, model in FAMILIES.values():
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModel.register(config, model, exist_ok=True)
        AutoModelForCausalLM.register(config, model, exist_ok=True)
    register_checkpoint_conversion_mapping("llada", [*conversion()], overwrite=True)


_register()
