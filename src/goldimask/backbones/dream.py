"""Dream on stock transformers: Qwen2 without the causal mask, tensor names as they are.

Dream kept the alignment of the autoregressive model it grew from: raw row i predicts token i + 1.
That shift is applied in `scoring.predictor_rows` alone; here it is only declared (`logit_shift`).
"""

from __future__ import annotations

from typing import Any, ClassVar

from transformers import Qwen2Config, Qwen2ForCausalLM

from goldimask.backbones.base import Family
from goldimask.backbones.scoring import DiffusionModel

HUB_FIELDS = (
    "attention_dropout",
    "bos_token_id",
    "eos_token_id",
    "hidden_act",
    "hidden_size",
    "initializer_range",
    "intermediate_size",
    "mask_token_id",
    "max_position_embeddings",
    "max_window_layers",
    "num_attention_heads",
    "num_hidden_layers",
    "num_key_value_heads",
    "pad_token_id",
    "rms_norm_eps",
    "sliding_window",
    "tie_word_embeddings",
    "use_cache",
    "use_sliding_window",
    "vocab_size",
)


class DreamConfig(Qwen2Config):
    """Reads the published config.json; attention is bidirectional and nothing is cached."""

    model_type: ClassVar[str] = "Dream"  # type: ignore[misc]

    def __post_init__(self, **kwargs: Any) -> None:
        self.is_causal = False
        self.logit_shift = True
        self.mask_token_id = kwargs.pop("mask_token_id", None)
        self.use_cache = False  # the published config says true; every pass would build a cache
        kwargs.pop("use_cache", None)
        super().__post_init__(**kwargs)


class DreamForDiffusion(DiffusionModel, Qwen2ForCausalLM):
    """Stock Qwen2 blocks with bidirectional attention and scoring inside `forward`."""

    config_class = DreamConfig


def hub_config(config: DreamConfig) -> dict[str, Any]:
    """The config in the published form, without `auto_map`."""
    rope: Any = config.rope_parameters
    return {
        "architectures": ["DreamModel"],
        "model_type": "Dream",
        **{name: getattr(config, name) for name in HUB_FIELDS},
        "rope_scaling": None,
        "rope_theta": rope["rope_theta"],
    }


DREAM = Family(
    name="dream",
    config=DreamConfig,
    model=DreamForDiffusion,
    turn_end="<|im_end|>",
    tokenizer="Qwen2Tokenizer",
    hub_config=hub_config,
    usable_length=2048,  # the model card; the config's 131072 was inherited from Qwen2.5
)
