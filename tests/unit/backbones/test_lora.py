"""Adapters: where they go, what they depend on, both sets of names, and what is refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file

from builders import random_state
from goldimask.backbones import Backbone, load_backbone, save_backbone
from goldimask.backbones.llada import hub_targets
from goldimask.backbones.lora import (
    adapter_parameters,
    add_lora,
    load_adapter,
    save_adapter,
)
from goldimask.errors import GoldimaskError

IDS = torch.arange(24).view(2, 12)
ALL = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def tuned(folder: Path, targets: tuple[str, ...] = ALL, **options: object) -> Backbone:
    """A backbone with an adapter that does something."""
    backbone = load_backbone(folder, **options)  # type: ignore[arg-type]
    backbone = add_lora(backbone, 3, r=4, alpha=8.0, dropout=0.1, targets=targets)
    shapes = {k: tuple(p.shape) for k, p in adapter_parameters(backbone.model).items()}
    with torch.no_grad():
        for name, value in random_state(shapes, seed=5, std=0.2).items():
            adapter_parameters(backbone.model)[name].copy_(value)
    return backbone


def logits(backbone: Backbone) -> torch.Tensor:
    with torch.no_grad():
        return backbone.model(IDS).logits


def test_fresh_adapter_changes_nothing_and_depends_on_the_seed(folder: Path) -> None:
    plain = logits(load_backbone(folder))
    state = torch.get_rng_state()
    made = [add_lora(load_backbone(folder), seed, r=4, alpha=8) for seed in (0, 0, 1)]
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(logits(made[0]), plain)
    a, b, c = (adapter_parameters(m.model) for m in made)
    assert len(a) == 2 * 3 * 3
    assert all(torch.equal(a[k], b[k]) for k in a)
    assert not all(torch.equal(a[k], c[k]) for k in a)
    assert all((p == 0).all() for k, p in a.items() if "lora_B" in k)
    bounds = {float(p.detach().abs().max()) for k, p in a.items() if "lora_A" in k}
    assert min(bounds) > 0.1 and max(bounds) <= 32**-0.5


def test_only_the_adapter_trains_in_float32(folder: Path) -> None:
    backbone = add_lora(load_backbone(folder, dtype="bfloat16"), 0, r=4)
    trained = {n: p for n, p in backbone.model.named_parameters() if p.requires_grad}
    assert len(trained) == len(adapter_parameters(backbone.model))
    assert {p.dtype for p in trained.values()} == {torch.float32}
    assert backbone.model.base_model.model.lm_head.weight.dtype == torch.bfloat16
    assert not any(m.training for m in backbone.model.modules())  # dropout follows the base


@pytest.mark.parametrize(
    ("targets", "words"),
    [
        (("q_proj", "qproj"), ("'qproj'", "did you mean 'q_proj'")),
        ((), ("empty",)),
        (("embed_tokens",), ("matches no linear layer",)),
    ],
)
def test_targets_that_match_nothing(backbone: Backbone, targets: tuple, words: tuple) -> None:
    with pytest.raises(GoldimaskError, match=r"lora\.targets") as caught:
        add_lora(backbone, 0, targets=targets)
    assert all(word in str(caught.value) for word in words)


def test_published_target_names_are_explained(folders: dict[str, Path]) -> None:
    with pytest.raises(GoldimaskError, match="'attn_out' is called 'o_proj' here"):
        add_lora(load_backbone(folders["llada"]), 0, targets=("attn_out",))


@pytest.mark.parametrize("bad", [{"r": 0}, {"dropout": 1.0}])
def test_bad_settings(backbone: Backbone, bad: dict) -> None:
    with pytest.raises(GoldimaskError, match=r"lora\.(r|dropout)"):
        add_lora(backbone, 0, **bad)


def test_saved_adapter_loads_here_and_in_peft(folder: Path, tmp_path: Path) -> None:
    backbone = tuned(folder)
    saved = save_adapter(backbone, tmp_path / "adapter")
    again = load_adapter(load_backbone(folder), saved)
    assert torch.equal(logits(again), logits(backbone))
    assert not any(p.requires_grad for p in again.model.parameters())
    stock = PeftModel.from_pretrained(load_backbone(folder).model, saved).eval()
    with torch.no_grad():
        assert torch.equal(stock(IDS).logits, logits(backbone))
    config = json.loads((saved / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (4, 8, 0.1)


def test_trainable_adapter_can_go_on(folder: Path, tmp_path: Path) -> None:
    saved = save_adapter(tuned(folder, ("q_proj",)), tmp_path / "adapter")
    again = load_adapter(load_backbone(folder), saved, trainable=True)
    again.model(IDS).logits.sum().backward()
    assert all(p.grad is not None for p in adapter_parameters(again.model).values())


def test_published_names(folders: dict[str, Path], tmp_path: Path) -> None:
    """Adapters made on the published LLaDA code have other paths; we write and read them."""
    backbone = tuned(folders["llada"])
    saved = save_adapter(backbone, tmp_path / "adapter")
    state = load_file(saved / "hub" / "adapter_model.safetensors")
    prefix = "base_model.model.model.transformer.blocks.2."
    names = ("q_proj", "k_proj", "v_proj", "attn_out", "ff_proj", "up_proj", "ff_out")
    assert {k for k in state if k.startswith(prefix)} == {
        f"{prefix}{n}.lora_{x}.weight" for n in names for x in "AB"
    }
    again = load_adapter(load_backbone(folders["llada"]), saved / "hub")
    assert torch.equal(logits(again), logits(backbone))


def test_published_targets_avoid_the_head() -> None:
    import re

    assert hub_targets(["q_proj", "o_proj", "gate_proj"]) == ["attn_out", "ff_proj", "q_proj"]
    pattern = hub_targets(["q_proj", "down_proj"])
    assert isinstance(pattern, str)
    assert re.fullmatch(pattern, "model.transformer.blocks.3.ff_out")
    assert re.fullmatch(pattern, "model.transformer.blocks.31.q_proj")
    assert not re.fullmatch(pattern, "model.transformer.ff_out")
    both = hub_targets(["lm_head", "down_proj"])
    assert re.fullmatch(both, "model.transformer.ff_out")  # type: ignore[arg-type]


def test_adapter_on_some_blocks_only(folder: Path, tmp_path: Path) -> None:
    """Adapters that skip blocks load as they are: full paths instead of names."""
    saved = save_adapter(tuned(folder, ("q_proj", "v_proj")), tmp_path / "adapter")
    state = load_file(saved / "adapter_model.safetensors")
    kept = {k: v for k, v in state.items() if ".layers.1." in k}
    save_file(kept, saved / "adapter_model.safetensors", {"format": "pt"})
    again = load_adapter(load_backbone(folder), saved)
    assert set(adapter_parameters(again.model)) == set(kept)
    assert save_adapter(again, tmp_path / "second")
    third = load_adapter(load_backbone(folder), tmp_path / "second")
    assert torch.equal(logits(third), logits(again))


def spoil_state(change: Callable[[dict], None]) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        state = load_file(folder / "adapter_model.safetensors")
        change(state)
        save_file(state, folder / "adapter_model.safetensors", {"format": "pt"})

    return spoil


def spoil_config(**changes: object) -> Callable[[Path], None]:
    def spoil(folder: Path) -> None:
        path = folder / "adapter_config.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return spoil


def to_pickle(folder: Path) -> None:
    (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin")


A0 = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (spoil_state(lambda s: s.pop(A0)), ("1 missing", A0)),
        (spoil_state(lambda s: s.update(other=torch.zeros(1))), ("1 unexpected", "other")),
        (spoil_state(lambda s: s.update({A0: torch.zeros(3, 32)})), ("wrongly shaped", "[3, 32]")),
        (
            spoil_state(lambda s: s.update({A0.replace("q_proj", "z_proj"): torch.zeros(4, 32)})),
            ("unexpected", "z_proj"),
        ),
        (spoil_config(use_dora=True), ("use_dora",)),
        (spoil_config(bias="all"), ("bias",)),
        (spoil_config(peft_type="IA3"), ("IA3", "LORA")),
        (to_pickle, ("pickle",)),
        (lambda f: (f / "adapter_config.json").unlink(), ("adapter_config.json",)),
        (
            lambda f: (f / "adapter_config.json").write_text("{"),
            ("adapter_config.json", "not valid JSON"),
        ),
    ],
)
def test_damaged_adapters(
    folders: dict[str, Path], tmp_path: Path, spoil: Callable[[Path], None], words: tuple
) -> None:
    saved = save_adapter(tuned(folders["llada"], ("q_proj",)), tmp_path / "adapter")
    shutil.rmtree(saved / "hub")
    spoil(saved)
    with pytest.raises(GoldimaskError) as caught:
        load_adapter(load_backbone(folders["llada"]), saved)
    assert all(word in str(caught.value) for word in words), caught.value


def test_saving_the_wrong_thing(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(GoldimaskError, match="no adapter"):
        save_adapter(load_backbone(folder), tmp_path / "x")
    with pytest.raises(GoldimaskError, match="carries an adapter"):
        save_backbone(tuned(folder, ("q_proj",)), tmp_path / "x")
    assert not list(tmp_path.iterdir())
