"""The loaded models compute the published architectures, by an independent restatement."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from builders import WRITERS, dream_config, llada_config
from goldimask.backbones import FAMILIES, Backbone, load_backbone, save_backbone
from goldimask.backbones.checkpoint import empty_model
from restated import restated_logits

GENERATOR = torch.Generator().manual_seed(7)
IDS = torch.randint(320, (3, 29), generator=GENERATOR)
every_family = pytest.mark.parametrize("family", WRITERS, indirect=True, scope="session")


@every_family
def test_logits_equal_the_restatement(backbone: Backbone, folder: Path) -> None:
    with torch.no_grad():
        logits = backbone.model(IDS).logits
    torch.testing.assert_close(logits, restated_logits(folder, IDS), rtol=1e-5, atol=1e-5)


@every_family
def test_the_causal_control_differs(backbone: Backbone, folder: Path) -> None:
    """The comparison above can fail: one flag makes the same weights causal."""
    backbone.model.config.is_causal = True
    with torch.no_grad():
        logits = backbone.model(IDS).logits
    assert (logits - restated_logits(folder, IDS)).abs().max() > 0.1


@every_family
@pytest.mark.parametrize("attn", ["sdpa", "eager"])
def test_padding_equals_the_restatement(folder: Path, attn: str) -> None:
    valid = torch.ones_like(IDS, dtype=torch.bool)
    valid[1, 20:] = False
    with torch.no_grad():
        logits = load_backbone(folder, attn=attn).model(IDS, attention_mask=valid).logits
    expected = restated_logits(folder, IDS, valid)
    torch.testing.assert_close(logits[valid], expected[valid], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("llada", {"n_kv_heads": 2}),
        ("llada", {"n_kv_heads": None}),
        ("llada", {"mlp_hidden_size": None, "mlp_ratio": 3}),
        ("llada", {"weight_tying": True}),
        ("dream", {"num_key_value_heads": 4, "rope_theta": 10000.0}),
    ],
)
def test_other_sizes(tmp_path: Path, family: str, changes: dict) -> None:
    written = {k: v for k, v in changes.items() if v is not None}
    defaults = {"n_kv_heads": 4, "mlp_hidden_size": 96}
    if "mlp_ratio" in changes:
        defaults["mlp_hidden_size"] = 32 * changes["mlp_ratio"]
    sizes = {**defaults, **written} if family == "llada" else written
    folder = WRITERS[family](tmp_path / "m", **sizes)
    expected = restated_logits(folder, IDS)
    config = (folder / "config.json").read_text()  # null in the config means the default
    for key, value in changes.items():
        if value is None:
            config = config.replace(f'"{key}": {defaults[key]}', f'"{key}": null')
    (folder / "config.json").write_text(config)
    with torch.no_grad():
        logits = load_backbone(folder).model(IDS).logits
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", [w for w in WRITERS if w != "llada-moe"], indirect=True)
def test_bfloat16_equals_the_reference(folder: Path) -> None:
    """Every bfloat16 rounding is the same; the last product alone keeps its float32 sums."""
    model = load_backbone(folder, dtype="bfloat16").model
    with torch.no_grad():
        logits = model(IDS).logits
    expected = restated_logits(folder, IDS, dtype=torch.bfloat16)
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-6)


def test_float32_rope_is_what_makes_llada_equal(folders: dict[str, Path]) -> None:
    backbone = load_backbone(folders["llada"], dtype="bfloat16")
    rotary = backbone.model.model.rotary_emb
    cos, _ = rotary(torch.zeros(1, 4, 8, dtype=torch.bfloat16), torch.arange(4)[None])
    assert cos.dtype == torch.float32
    backbone.model.model.rotary_emb = type(rotary).__mro__[1](backbone.model.config)
    with torch.no_grad():
        logits = backbone.model(IDS).logits
    expected = restated_logits(folders["llada"], IDS, dtype=torch.bfloat16)
    assert not torch.allclose(logits, expected, rtol=1e-5, atol=1e-6)


def test_auto_classes_need_no_flag(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(IDS).logits
    torch.testing.assert_close(logits, restated_logits(folder, IDS), rtol=1e-5, atol=1e-5)


@every_family
def test_auto_classes_open_native_folders(folder: Path, tmp_path: Path) -> None:
    saved = save_backbone(load_backbone(folder), tmp_path / "native", "native")
    model = AutoModelForCausalLM.from_pretrained(saved, dtype=torch.float32)
    with torch.no_grad():
        logits = model(IDS).logits
    torch.testing.assert_close(logits, restated_logits(folder, IDS), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("family", "sizes", "parameters", "tensors"),
    [
        (
            "llada",
            {
                "d_model": 4096,
                "n_heads": 32,
                "n_kv_heads": 32,
                "n_layers": 32,
                "mlp_hidden_size": 12288,
                "embedding_size": 126464,
                "vocab_size": 126464,
            },
            8_015_581_184,
            291,
        ),
        (
            "dream",
            {
                "hidden_size": 3584,
                "intermediate_size": 18944,
                "num_hidden_layers": 28,
                "num_attention_heads": 28,
                "num_key_value_heads": 4,
                "vocab_size": 152064,
            },
            7_615_616_512,
            339,
        ),
    ],
)
def test_published_sizes(family: str, sizes: dict, parameters: int, tensors: int) -> None:
    """The published models have exactly this many parameters and tensors (index of the Hub)."""
    fields = {"llada": llada_config, "dream": dream_config}[family](**sizes)
    for key in ("model_type", "auto_map", "architectures"):
        fields.pop(key)
    record = FAMILIES[family]
    state = empty_model(record.config(**fields), record).state_dict()
    assert sum(p.numel() for p in state.values()) == parameters
    assert len(state) == tensors
    if family == "llada":
        theirs = {name: record.to_hub(name) for name in state}
        assert all(record.to_native(b) == a != b for a, b in theirs.items())


def test_no_padding_row_in_llada(folders: dict[str, Path]) -> None:
    """Pad is EOS: a padding row would never learn EOS. Dream's reference has one."""
    assert load_backbone(folders["llada"]).model.model.embed_tokens.padding_idx is None
    dream = load_backbone(folders["dream"])
    assert dream.model.model.embed_tokens.padding_idx == dream.pad_id
