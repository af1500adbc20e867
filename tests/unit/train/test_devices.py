"""One device a process, float32 masters, and FSDP2's arithmetic."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from goldimask import processes
from goldimask.backbones import load_backbone
from goldimask.data.batches import collate, make_batch
from goldimask.errors import GoldimaskError
from goldimask.train.arguments import (
    check_precision,
    check_trainer,
    training_arguments,
)
from goldimask.train.launch import master_weights, shard
from goldimask.types import Example, Signal


def example(length: int = 45) -> Example:
    ids = torch.randint(10, 60, (length,), generator=torch.Generator().manual_seed(0)).tolist()
    return Example(ids, 9, [False] * 9 + [True] * (length - 9), 1)


def test_several_gpus_and_one_process_are_no_data_parallel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers counts the GPUs of the machine into the batch of one process."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 8)
    options = {"use_cpu": False, "per_device_train_batch_size": 1}
    made = training_arguments(options, tmp_path, seed=0, global_batch_size=8, has_validation=False)
    assert made.n_gpu == 1 and made.train_batch_size == 1
    assert made.gradient_accumulation_steps == 8


def test_any_accelerator_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: torch.device("xpu"))
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 4)
    monkeypatch.setattr("torch.accelerator.current_device_index", lambda: 2)
    assert processes.devices() == 4 and processes.own_device() == torch.device("xpu:2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert processes.own_device() == torch.device("xpu:1")


def test_a_device_without_float64_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apple's: sums, draws and close decisions would fail there in the middle of a run."""
    monkeypatch.setattr("torch.accelerator.is_available", lambda: True)
    monkeypatch.setattr("torch.accelerator.current_accelerator", lambda: torch.device("mps"))
    monkeypatch.setattr("torch.accelerator.device_count", lambda: 1)
    assert processes.devices() == 0 and processes.own_device() == torch.device("cpu")
    with pytest.raises(GoldimaskError, match="'mps' has no float64"):
        load_backbone("tiny", device="mps")


def test_ranks_wait_half_an_hour_for_one_that_prepares(monkeypatch: pytest.MonkeyPatch) -> None:
    """NCCL's own patience is ten minutes, and the Trainer's setting comes too late."""
    asked: dict = {}
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("accelerate.PartialState", lambda **options: asked.update(options))
    processes.start()
    assert asked == {"cpu": True, "timeout": timedelta(minutes=30)}


def test_a_small_update_survives_full_tuning() -> None:
    """bfloat16 weights are refused, or get float32 masters: 1 + 5e-6 is 1 in bfloat16."""
    model = torch.nn.Linear(4, 4).bfloat16()
    model.bias.requires_grad_(False)
    with pytest.raises(GoldimaskError, match=r"bfloat16 weights cannot.*trainer.bf16=true"):
        check_precision(model, mixed=False)
    check_precision(model, mixed=True)
    master_weights(model)
    assert model.weight.dtype == torch.float32 and model.bias.dtype == torch.bfloat16
    before = model.weight.detach().clone()
    model.weight.grad = torch.ones_like(model.weight)
    torch.optim.SGD([model.weight], lr=5e-6).step()
    assert bool((model.weight != before).all())


def test_an_optimiser_that_rounds_is_refused() -> None:
    with pytest.raises(GoldimaskError, match=r"trainer.optim: adamw_anyprecision rounds"):
        check_trainer({"optim": "adamw_anyprecision"})


def test_one_example_alone_needs_no_mask() -> None:
    alone = make_batch([example(45)], 0, 8)
    assert alone.ids.shape == (1, 45) and alone.attention_mask() is None
    assert collate([example(45), example(30)], 0, 8)["ids"].shape == (2, 48)


@pytest.fixture
def one_rank(tmp_path: Path):
    dist.init_process_group("gloo", f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_sharding_changes_no_number(one_rank, small_model: Path) -> None:
    """bfloat16 arithmetic; log p, attention and gradient sums in float32, as without FSDP2."""
    want = frozenset({Signal.LOGP, Signal.ATTENTION})
    found = []
    for sharded in (False, True):
        backbone = load_backbone(small_model, device="cpu", dtype="bfloat16")
        batch = make_batch([example()], backbone.pad_id)
        if sharded:
            shard(backbone.model, "cpu", "bf16")
        with torch.autocast("cpu", dtype=torch.bfloat16):
            out = backbone.scorer(backbone.model, batch, batch.response, want)
            assert out.logp is not None and out.attention is not None
            out.logp.sum().backward()
        grads = {n: p.grad for n, p in backbone.model.named_parameters()}
        found.append((out.logp.detach(), out.attention, grads))
    (logp, attention, _), (logp2, attention2, grads) = found
    assert logp2.dtype == attention2.dtype == torch.float32
    assert torch.equal(logp, logp2) and torch.equal(attention, attention2)
    assert {g.dtype for g in grads.values()} == {torch.float32}
    for name, g in grads.items():
        torch.testing.assert_close(g.full_tensor(), found[0][2][name].float(), rtol=0.02, atol=0.02)


def test_a_model_to_be_sharded_waits_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    from goldimask.config import BackboneSection
    from goldimask.train import prepare

    asked: dict = {}
    monkeypatch.setattr(prepare, "load_backbone", lambda name, **options: asked.update(options))
    monkeypatch.setattr(processes, "own_device", lambda: torch.device("cuda:3"))
    prepare.make_backbone(BackboneSection())
    assert asked["device"] == torch.device("cuda:3") and asked["dtype"] is None
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    prepare.make_backbone(BackboneSection())
    assert asked["device"] == "cpu" and asked["dtype"] == "bfloat16"
