"""`--dry-run`: figures that can be checked by hand, without weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from goldimask.config import load_recipe, parse_recipe
from goldimask.errors import GoldimaskError
from goldimask.train.cards import SHARE, card_named, cards
from goldimask.train.estimate import estimate


def test_a_named_backbone_needs_no_download(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes are known: 8,015,581,184 parameters, an adapter of 100,663,296."""
    found = estimate(load_recipe("llada8b"), processes=4)
    assert found["parameters"] == 8_015_581_184
    assert found["trainable"] == 100_663_296
    assert (found["micro_batch"], found["accumulation"]) == (1, 2)
    assert found["tokens_per_step"] == 8 * 4096 and found["steps"] == 2480
    assert "data.max_length" in found["tokens_from"] and "not downloaded" in found["backbone_from"]
    size = 8_015_581_184 - 126_464 * 4096
    attention = 4 * 4096 * 4096 * 32
    each = size * (2 + 2 + 2)  # forward, backward of frozen weights, probe
    each += attention * (1 + 2.5 + 1) + 2 * 4096 * 4096  # and what the tap adds
    flops = 2480 * 8 * 4096 * each
    assert found["exaflop"] == pytest.approx(flops / 1e18)
    update = 2480 * 28 * 100_663_296 / 2039e9
    seconds = flops / (4 * SHARE * 312e12) + update  # selection hides behind accumulation
    assert found["hours"] == pytest.approx(seconds / 3600)
    assert found["hours_at"].startswith("estimated for 4 x A100 80GB")
    assert found["memory_gib"] == pytest.approx(38.4, abs=1) and found["fits"].endswith("yes")


def test_memory_follows_the_options() -> None:
    """What the figures ignored before: quantisation, sharding, the batch of the evaluation."""

    def peak(*words: str, **more: Any) -> float:
        return estimate(load_recipe("llada8b", list(words)), **more)["memory_gib"]

    checkpointed = "trainer.gradient_checkpointing=true"
    assert peak(checkpointed) == pytest.approx(18.4, abs=0.6)
    assert peak("backbone.quant=nf4", checkpointed) == pytest.approx(8.8, abs=0.6)
    assert peak("lora=null", checkpointed, processes=8, launch="fsdp2") < 25  # 120 on each before
    assert peak(checkpointed, "evaluation.batch_size=32") > 25


def test_selection_counts_where_nothing_hides_it() -> None:
    made = load_recipe("llada8b")
    hidden, alone = (estimate(made, processes=n)["hours_at"] for n in (4, 8))
    assert "selection 0 h" in hidden and "selection 0 h" not in alone


def test_cards_are_found_by_what_drivers_call_them() -> None:
    names = {
        "NVIDIA A100-SXM4-80GB": 80,
        "NVIDIA A100-PCIE-40GB": 40,
        "NVIDIA H100 80GB HBM3": 80,
        "NVIDIA GeForce RTX 4090": 24,
        "NVIDIA L40S": 48,
    }
    assert {name: card_named(name).memory_gb for name in names} == names
    assert all(c.tflops > 50 and c.bandwidth_gb > 100 for c in cards())
    with pytest.raises(GoldimaskError, match="--card: unknown 'H1000'"):
        card_named("H1000")


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


def test_dream_is_trained_at_the_length_that_the_plan_names(tmp_path: Path) -> None:
    """4,096 tokens in the packaged recipe's plan, in the plan of a tiny Dream, and in its run."""
    from builders import write_dream
    from goldimask.train.run import train

    packaged = estimate(load_recipe("dream7b"))
    assert packaged["max_length"] == 4096 and "was trained for 2,048" in packaged["warning"]
    assert estimate(load_recipe("llada8b"))["warning"] is None
    rows = [{"prompt": f"count {i}", "response": "7 " * n} for i, n in enumerate((3000, 1500, 9))]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    words = {
        "output": tmp_path / "x",
        "backbone.path": write_dream(tmp_path / "Dream-v0-Instruct-7B", num_hidden_layers=1),
        "backbone.dtype": "float32",
        "lora.r": 2,
        "data": f"{{path: {file}, validation: 0, group_by_length: false}}",
        "method.preset": "vanilla",
        "global_batch_size": 3,
        "trainer": "{max_steps: 1, per_device_train_batch_size: 1, report_to: none}",
    }
    made = load_recipe("dream7b", [f"{k}={v}" for k, v in words.items()])
    plan = estimate(made)
    assert plan["max_length"] == 4096 and "x 4096 tokens" in plan["memory_of"]
    assert "2 of 3 rows are longer than the 2,048 tokens" in plan["warning"]
    said: list[str] = []
    train(made, say=said.append)
    assert f"warning   {plan['warning']}" in said
    total = next(line for line in said if line.split()[0] == "total")
    assert total.split()[-1] == "4096"
    assert any("1 truncated to 4,096 tokens" in line for line in said)
