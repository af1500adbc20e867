"""`--dry-run`: figures that can be checked by hand, without weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from goldimask.config import load_recipe, parse_recipe
from goldimask.errors import GoldimaskError
from goldimask.train.estimate import TFLOPS, estimate


def test_a_named_backbone_needs_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are known: 8,015,581,184 parameters, an adapter of 100,663,296."""
    found = estimate(load_recipe("llada8b"), processes=4)
    assert found["parameters"] == 8_015_581_184
    assert found["trainable"] == 100_663_296
    assert (found["micro_batch"], found["accumulation"]) == (1, 2)
    assert found["tokens_per_step"] == 8 * 4096 and found["steps"] == 2480
    assert "data.max_length" in found["tokens_from"] and "not downloaded" in found["backbone_from"]
    size = 8_015_581_184 - 126_464 * 4096
    flops = 2480 * 8 * 4096 * size * (2 + 2 + 2)  # forward, backward of frozen weights, probe
    assert found["hours"] == pytest.approx(flops / (4 * TFLOPS * 1e12) / 3600)
    assert found["memory_gib"] > 16


def test_dream_is_known_too() -> None:
    found = estimate(
        load_recipe("dream7b", ["data.corpus=kodcode", "method.preset=vanilla"]), processes=8
    )
    assert found["trainable"] == 55_050_240
    assert found["passes"] == 1 and found["accumulation"] == 1


def small(model: Path, **changes):
    data = {"corpus": "tiny-sft", "limit": 60, "validation": 12}
    return parse_recipe({"backbone": {"path": str(model)}, "data": data, **changes})


def test_local_data_gives_real_counts(small_model: Path) -> None:
    found = estimate(small(small_model, trainer={"max_steps": 12}))
    assert found["examples"] == 48 and found["epochs"] == 2.0
    assert found["tokens_from"] == "data" and 0 < found["tokens_per_step"] < 8 * 512


def test_impossible_batches_are_explained(small_model: Path) -> None:
    with pytest.raises(GoldimaskError, match="global_batch_size: 8 is not a multiple of 3"):
        estimate(small(small_model, trainer={"per_device_train_batch_size": 1}), processes=3)


def test_an_unknown_backbone_is_an_error() -> None:
    with pytest.raises(GoldimaskError, match="no-such"):
        estimate(parse_recipe({"backbone": {"path": "./no-such"}, "data": {"corpus": "tiny-sft"}}))
