"""Merging, the round trip train - merge - reload - decode, and the command lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

import goldimask.backbones.merge as merging
from builders import WRITERS
from goldimask import Keys, MaskedStep, method
from goldimask.backbones import load_backbone, save_backbone
from goldimask.backbones.lora import (
    adapter_parameters,
    add_lora,
    load_adapter,
    save_adapter,
)
from goldimask.backbones.merge import merge_run
from goldimask.cli import app
from goldimask.decoding import decode
from goldimask.errors import GoldimaskError, RunFailed
from goldimask.types import Batch
from restated import restated_logits

every_family = pytest.mark.parametrize("family", WRITERS, indirect=True, scope="session")
IDS = torch.arange(36).view(2, 18)


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Path:
    """A run folder as `goldimask train` leaves it."""
    backbone = add_lora(load_backbone(folder), 0, r=4, alpha=8.0, dropout=0.0)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in adapter_parameters(backbone.model).values():
            p.add_(torch.randn(p.shape, generator=generator) * 0.2)
    out = tmp_path / "run"
    out.mkdir()
    save_adapter(backbone, out / "adapter")
    section = {"name": folder.name, "path": str(folder), "dtype": "float32"}
    (out / "recipe.yaml").write_text(yaml.safe_dump({"backbone": section}))
    return out


def adapter_logits(folder: Path, run: Path) -> torch.Tensor:
    with torch.no_grad():
        return load_adapter(load_backbone(folder), run / "adapter").model(IDS).logits


@every_family
@pytest.mark.parametrize("layout", ["hub", "native"])
def test_merged_logits(folder: Path, run: Path, tmp_path: Path, layout: str) -> None:
    done = merge_run(run, tmp_path / "out", layout)  # type: ignore[arg-type]
    assert done.merged and done.dtype == "float32" and done.layout == layout
    assert done.difference < 1e-4 and done.stored_difference == 0 and done.agreement == 1
    with torch.no_grad():
        merged = load_backbone(tmp_path / "out").model(IDS).logits
    expected = adapter_logits(folder, run)
    torch.testing.assert_close(merged, expected, rtol=1e-4, atol=1e-4)
    if layout == "hub":  # the published names and fields, read by the restatement
        theirs = restated_logits(tmp_path / "out", IDS)
        torch.testing.assert_close(theirs, expected, rtol=1e-4, atol=1e-4)


def test_lower_precision_is_rounded_once(folder: Path, run: Path, tmp_path: Path) -> None:
    exact = merge_run(run, tmp_path / "exact", dtype="float32")
    half = merge_run(run, tmp_path / "half", dtype="bfloat16")
    assert half.difference == exact.difference and 0 < half.stored_difference < 0.5
    full = load_backbone(tmp_path / "exact").model.state_dict()
    low = load_backbone(tmp_path / "half", dtype="bfloat16").model.state_dict()
    assert all(torch.equal(full[k].bfloat16(), low[k]) for k in full)


def test_a_disagreement_writes_nothing(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "TOLERANCE", 0.0)
    with pytest.raises(RunFailed, match="differ"):
        merge_run(run, tmp_path / "out")
    monkeypatch.undo()
    monkeypatch.setattr(torch, "equal", lambda a, b: False)
    with pytest.raises(RunFailed, match="not stored as merged"):
        merge_run(run, tmp_path / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["run"]


def test_full_weights_change_layout(folder: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    save_backbone(load_backbone(folder), run / "model", "native")
    (run / "recipe.yaml").write_text(yaml.safe_dump({"backbone": {"name": "tiny"}}))
    done = merge_run(run, tmp_path / "out", "hub")
    assert not done.merged
    torch.testing.assert_close(
        restated_logits(tmp_path / "out", IDS), restated_logits(folder, IDS), rtol=0, atol=0
    )


def test_mistakes(run: Path, tmp_path: Path) -> None:
    with pytest.raises(GoldimaskError, match="--layout"):
        merge_run(run, tmp_path / "out", "hup")  # type: ignore[arg-type]
    with pytest.raises(GoldimaskError, match="--dtype"):
        merge_run(run, tmp_path / "out", dtype="half")
    with pytest.raises(GoldimaskError, match="already exists"):
        merge_run(run, run)
    merge_run(run, tmp_path / "out")
    with pytest.raises(GoldimaskError, match="--force"):
        merge_run(run, tmp_path / "out")
    assert merge_run(run, tmp_path / "out", force=True).merged


@every_family
def test_train_merge_reload_decode(folder: Path, tmp_path: Path, make_batch: Callable) -> None:
    """A step of GoldiMask on an adapter, a merge to the published layout, a reload, a decode."""
    backbone = add_lora(load_backbone(folder), 0, r=4, alpha=8.0)
    batch, _ = make_batch([20, 26], pad=backbone.pad_id)
    response = batch.valid.clone()
    response[:, :5] = False
    batch = Batch(batch.ids, response, batch.valid, batch.example_id)
    trained = [p for p in backbone.model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-2)
    step = MaskedStep(method("goldimask-d"), backbone.scorer)
    backbone.model.train()
    torch.manual_seed(0)
    for epoch in range(3):
        out = step(backbone.model, batch, Keys(0, epoch))
        out.loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    assert out.signals.attention is not None and torch.isfinite(out.loss)
    backbone.model.eval()
    run = tmp_path / "run"
    run.mkdir()
    save_adapter(backbone, run / "adapter")
    section = {"name": folder.name, "path": str(folder)}
    (run / "recipe.yaml").write_text(yaml.safe_dump({"backbone": section}))
    assert merge_run(run, tmp_path / "merged").difference < 1e-4
    texts = [
        decode(model, ["How many?"], length=8, block=8)
        for model in (backbone, load_backbone(tmp_path / "merged"))
    ]
    assert [d.tokens for d in texts[0]] == [d.tokens for d in texts[1]]


def test_merge_command(run: Path, tmp_path: Path) -> None:
    args = ["merge", str(run), "--to", str(tmp_path / "out"), "--layout", "native"]
    done = CliRunner().invoke(app, [*args, "--json"])
    assert done.exit_code == 0, done.output
    result = json.loads(done.stdout)
    assert result["layout"] == "native" and result["difference"] < 1e-4
    again = CliRunner().invoke(app, args)
    assert isinstance(again.exception, GoldimaskError)
    shown = CliRunner().invoke(app, [*args, "--force"])
    assert shown.exit_code == 0 and "stored as" in shown.stdout


def test_inspect_command(folder: Path, family: str) -> None:
    done = CliRunner().invoke(app, ["model", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["family"] == family and found["tensors"] == "complete"
    model = load_backbone(folder)
    assert found["parameters"] == sum(p.numel() for p in model.model.parameters())
    assert found["tokens"]["mask"]["id"] == model.mask_id
    lora = add_lora(model, seed=0)
    count = sum(p.numel() for p in adapter_parameters(lora.model).values())
    assert found["memory"]["adapter_parameters"] == count
    chat = found["chat"]
    assert chat["prompt_tokens"] == len(
        model.tokenizer(chat["prompt"], add_special_tokens=False)["input_ids"]
    )
    assert chat["response"].endswith({"llada": "<|eot_id|>", "dream": "<|im_end|>"}[family])
    shown = CliRunner().invoke(app, ["model", str(folder), "--length", "64"])
    assert shown.exit_code == 0 and "┃5 + 4 = 9" in shown.stdout


def test_memory_grows_as_it_should(folder: Path) -> None:
    from goldimask.backbones.summary import inspect_model

    small, large = (inspect_model(str(folder), n, 2)["memory"]["gib"] for n in (64, 512))
    assert all(large[k] > small[k] for k in small)
    assert large["lora_checkpointed"] < large["lora"] and large["full"] > large["inference"]


def test_inspect_refuses_broken_checkpoints(folder: Path, tmp_path: Path) -> None:
    import shutil

    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    sorted(copy.glob("*.safetensors"))[0].unlink()
    done = CliRunner().invoke(app, ["model", str(copy)])
    assert isinstance(done.exception, GoldimaskError)
