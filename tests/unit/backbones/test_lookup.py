"""Names, model folders, run folders: what they stand for, how they load, and their hashes."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import yaml

from builders import random_state
from goldimask.backbones import find_model, identity, load_backbone, save_backbone, weights_hash
from goldimask.backbones.lora import adapter_parameters, add_lora, save_adapter
from goldimask.config import BackboneSection
from goldimask.errors import GoldimaskError
from goldimask.train.prepare import make_backbone

IDS = torch.arange(24).view(2, 12)


@pytest.fixture
def run(folder: Path, tmp_path: Path) -> Path:
    """A run folder with an adapter that does something."""
    backbone = add_lora(load_backbone(folder), 0, r=2, alpha=4.0)
    parameters = adapter_parameters(backbone.model)
    shapes = {k: tuple(p.shape) for k, p in parameters.items()}
    with torch.no_grad():
        for name, value in random_state(shapes, seed=1, std=0.2).items():
            parameters[name].copy_(value)
    save_adapter(backbone, tmp_path / "run" / "adapter")
    write_recipe(tmp_path / "run", name="tiny", path=str(folder))
    return tmp_path / "run"


def write_recipe(run: Path, **section: str) -> None:
    run.mkdir(exist_ok=True)
    (run / "recipe.yaml").write_text(yaml.safe_dump({"backbone": section}))


def test_what_a_path_stands_for(folder: Path, tmp_path: Path) -> None:
    found = find_model(folder)
    assert (found.name, found.base, found.adapter) == (folder.name, str(folder), None)
    assert find_model("tiny").base == find_model("tiny").name == "tiny"
    run = tmp_path / "run"
    run.mkdir()
    with pytest.raises(GoldimaskError, match="neither a model folder nor a run folder"):
        find_model(run).folder()
    write_recipe(run, name="tiny", dtype="auto", kernel="liger")
    with pytest.raises(GoldimaskError, match="neither adapter/ nor model/"):
        find_model(run)
    (run / "adapter").mkdir()
    found = find_model(run)
    assert (found.name, found.base, found.adapter) == ("run", "tiny", run / "adapter")
    assert found.options == {"kernel": "liger"}
    (run / "recipe.yaml").write_text("seed: 1\n")
    with pytest.raises(GoldimaskError, match="backbone: missing"):
        find_model(run)
    (run / "recipe.yaml").write_text("{")
    with pytest.raises(GoldimaskError, match="not valid YAML"):
        find_model(run)


def test_a_registered_name_is_never_a_folder(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.rename(tmp_path / "tiny")
    monkeypatch.chdir(tmp_path)
    assert find_model("tiny").adapter is None
    assert find_model("./tiny").adapter == Path("tiny/adapter")


def test_a_run_loads_with_its_adapter(folder: Path, run: Path) -> None:
    loaded = load_backbone(run)
    assert loaded.name == "run" and loaded.path == str(folder)
    with torch.no_grad():
        plain, adapted = (b.model(IDS).logits for b in (load_backbone(folder), loaded))
    assert not torch.allclose(plain, adapted)
    assert not any(p.requires_grad for p in loaded.model.parameters())


def test_a_run_loads_with_the_options_of_its_recipe(
    folder: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kernel and attention rows too, which a run folder used to lose."""
    monkeypatch.setattr("goldimask.backbones.loading.verify_liger", lambda device: 0.0)
    options = {"dtype": "bfloat16", "attn": "eager", "kernel": "liger"}
    write_recipe(run, path=str(folder), attention_rows="predictor", **options)
    loaded = load_backbone(run)
    assert (loaded.scorer.kernel, loaded.scorer.attention_rows) == ("liger", "predictor")
    assert loaded.model.base_model.model.lm_head.weight.dtype == torch.bfloat16
    assert loaded.model.config._attn_implementation == "goldimask_eager"
    mine = load_backbone(run, "float32", attn="sdpa", kernel="torch", attention_rows="token")
    assert (mine.scorer.kernel, mine.scorer.attention_rows) == ("torch", "token")
    assert mine.model.base_model.model.lm_head.weight.dtype == torch.float32
    assert mine.model.config._attn_implementation == "goldimask_sdpa"
    write_recipe(run, path=str(folder), quant="int3")
    with pytest.raises(GoldimaskError, match=r"backbone\.quant"):
        load_backbone(run)


def test_runs_as_bases(folder: Path, run: Path, tmp_path: Path) -> None:
    """All weights: any run can start from it. An adapter: only once it is merged."""
    full = tmp_path / "full"
    write_recipe(full, name="tiny")
    save_backbone(load_backbone(folder), full / "model")
    assert load_backbone(full).name == "full"
    write_recipe(run, path=str(full))
    assert load_backbone(run).path == str(full / "model")
    assert make_backbone(BackboneSection(path=str(full))).layers == 3
    with pytest.raises(GoldimaskError, match=r"backbone\.path: .* merge it first"):
        make_backbone(BackboneSection(path=str(run)))
    with pytest.raises(GoldimaskError, match="merge it first"):
        add_lora(load_backbone(run), 0)
    write_recipe(run, path=str(run))
    with pytest.raises(GoldimaskError, match="merge it first"):
        load_backbone(run)


def test_the_hash_is_that_of_the_content(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "elsewhere"))
    first = weights_hash(folder)
    assert len(first) == 32 and weights_hash(copy) == first
    (copy / "README.md").write_text("not part of the model")
    assert weights_hash(copy) == first
    shard = sorted(copy.glob("*.safetensors"))[0]
    for file in (shard, copy / "config.json", copy / "tokenizer_config.json"):
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert weights_hash(copy) != first, file.name
        file.write_bytes(data)
    assert weights_hash(copy) == first
    (copy / "chat_template.jinja").write_text("{{ messages }}")
    assert weights_hash(copy) != first
    shard.unlink()
    with pytest.raises(GoldimaskError, match="not there"):
        weights_hash(copy)


def test_the_hash_of_a_run(folder: Path, run: Path) -> None:
    first = weights_hash(run)
    assert first != weights_hash(folder)
    write_recipe(run, path=str(folder), attention_rows="predictor")  # nothing it decodes with
    assert weights_hash(run) == first
    write_recipe(run, path=str(folder), dtype="bfloat16")
    assert weights_hash(run) != first
    write_recipe(run, path=str(folder))
    weights = run / "adapter" / "adapter_model.safetensors"
    data = weights.read_bytes()
    weights.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert weights_hash(run) != first
    weights.unlink()
    with pytest.raises(GoldimaskError, match="adapter_model"):
        weights_hash(run)


def test_digests_are_remembered(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(identity, "MOMENT", -(10**15))  # files of this very moment, too
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    remember = tmp_path / "digests.json"
    first = weights_hash(copy, remember)
    assert first == weights_hash(copy)
    reads = []
    real = __import__("hashlib").file_digest
    monkeypatch.setattr("hashlib.file_digest", lambda f, kind: reads.append(f) or real(f, kind))
    assert weights_hash(copy, remember) == first and not reads
    shard = sorted(copy.glob("*.safetensors"))[0]
    data, stat = shard.read_bytes(), shard.stat()
    shard.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert weights_hash(copy, remember) != first and len(reads) == 1
    header = data.index(b"F32")
    shard.write_bytes(data[:header] + b"I32" + data[header + 3 :])
    os.utime(shard, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert weights_hash(copy, remember) != first and len(reads) == 2
    remember.write_text("{")
    shard.write_bytes(data)
    assert weights_hash(copy, remember) == first
    assert len(json.loads(remember.read_text())) == len(reads) - 2


@pytest.mark.parametrize("tells", ["header", "changed"])
def test_a_file_with_its_old_size_and_time_is_noticed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tells: str
) -> None:
    """Either of the two is enough: the header, or the time of the entry, which cannot be set."""
    monkeypatch.setattr(identity, "MOMENT", -(10**15))
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    remember = tmp_path / "digests.json"
    first = weights_hash(copy, remember)
    shard = sorted(copy.glob("*.safetensors"))[0]
    data, before = shard.read_bytes(), shard.stat()
    at = data.index(b"F32") if tells == "header" else len(data) - 1
    shard.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    os.utime(shard, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = shard.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
    if tells == "header":  # a file system without such a time
        known = json.loads(remember.read_text())
        known[str(shard.resolve())]["changed"] = str(after.st_ctime_ns)
        remember.write_text(json.dumps(known))
    assert weights_hash(copy, remember) != first


def test_a_file_of_this_moment_is_not_remembered(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    remember = tmp_path / "digests.json"
    weights_hash(copy, remember)
    assert not remember.exists()


def test_the_hash_of_a_hub_id(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("goldimask.backbones.lookup.snapshot_download", lambda *a, **o: folder)
    assert weights_hash("some/where") == weights_hash(folder)
