"""Shared fixtures: one small model, offline, one thread."""

from __future__ import annotations

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ["HF_HUB_OFFLINE"] = "1"  # nothing here may reach for the network

import pytest
from hypothesis import settings

# In CI the drawn examples are the same at every run: the change is judged, not luck. Elsewhere they
# are new each time, and `make fuzz` looks for hours.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a two-block LLaDA-layout model and the embedded tokenizer."""
    from goldimask.backbones import FAMILIES, new_backbone, save_backbone
    from pretraining.tokenizer import build_tokenizer

    tokenizer = build_tokenizer()
    config = {
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "vocab_size": len(tokenizer),
        "max_position_embeddings": 512,
        "mask_token_id": tokenizer.mask_token_id,
    }
    folder = tmp_path_factory.mktemp("model") / "small"
    save_backbone(new_backbone(FAMILIES["llada"], config, tokenizer, seed=0), folder)
    return folder
