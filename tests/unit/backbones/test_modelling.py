"""`merge --with-code`: the files that `auto_map` needs, copied from a download and not run."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
import torch
import transformers.dynamic_module_utils as dynamic
from typer.testing import CliRunner

from goldimask.backbones import load_backbone, save_backbone
from goldimask.backbones.merge import merge_run
from goldimask.backbones.modelling import read_modelling
from goldimask.cli import app
from goldimask.errors import GoldimaskError

CONFIG = """
from transformers import PreTrainedConfig
class LLaDAConfig(PreTrainedConfig):
    model_type = "llada"
"""
MODEL = """
import torch
from torch import nn
from transformers import PreTrainedModel
def late():
    from . import extras
from .configuration_llada import LLaDAConfig
class LLaDAModelLM(PreTrainedModel):
    config_class = LLaDAConfig
    def __init__(self, config):
        super().__init__(config)
        wte = nn.Embedding(config.embedding_size, config.d_model)
        self.model = nn.ModuleDict({"transformer": nn.ModuleDict({"wte": wte})})
        self.post_init()
"""


@pytest.fixture
def download(folders: dict[str, Path], tmp_path: Path) -> Path:
    """A download of tiny LLaDA with code of our own in the place of the published one."""
    folder = tmp_path / "download"
    shutil.copytree(folders["llada"], folder)
    (folder / "configuration_llada.py").write_text(CONFIG)
    (folder / "modeling_llada.py").write_text(MODEL)
    (folder / "extras.py").write_text("x = 1\n")
    (folder / "setup.py").write_text("not asked for")
    return folder


@pytest.fixture
def run(download: Path, tmp_path: Path) -> Path:
    """A run with full weights."""
    folder = tmp_path / "run"
    folder.mkdir()
    save_backbone(load_backbone(download), folder / "model", "native")
    (folder / "recipe.yaml").write_text("backbone: {name: tiny}\n")
    return folder


def test_others_open_the_merged_folder(
    download: Path, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    words = ["merge", str(run), "--to", str(out), "--with-code", str(download), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    files = ["configuration_llada.py", "extras.py", "modeling_llada.py"]
    assert json.loads(done.stdout)["code"] == files
    assert sorted(p.name for p in out.glob("*.py")) == files
    assert all((out / f).read_bytes() == (download / f).read_bytes() for f in files)
    ours = load_backbone(out).model.state_dict()["model.embed_tokens.weight"]
    monkeypatch.setattr(dynamic, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    where = json.loads((out / "config.json").read_text())["auto_map"]["AutoModel"]
    kind = dynamic.get_class_from_dynamic_module(where, out)  # as AutoModel does without goldimask
    theirs = kind.from_pretrained(out)
    assert type(theirs).__name__ == "LLaDAModelLM"
    assert torch.equal(theirs.state_dict()["model.transformer.wte.weight"], ours)


def test_nothing_is_run(download: Path, run: Path, tmp_path: Path) -> None:
    for name in ("configuration_llada", "modeling_llada", "extras"):
        file = download / f"{name}.py"
        file.write_text(file.read_text() + "\nraise SystemExit('this was run')\n")
    assert len(merge_run(run, tmp_path / "out", with_code=download).code) == 3
    load_backbone(tmp_path / "out")


def test_refused_before_any_work(download: Path, run: Path, tmp_path: Path) -> None:
    out, config = tmp_path / "out", download / "config.json"
    model, good = download / "modeling_llada.py", json.loads(config.read_text())
    with pytest.raises(GoldimaskError, match="--layout hub"):
        merge_run(run, out, "native", with_code=download)
    for value in ("other/repo--modeling.X", "../up.X", "a/b.X", "modeling_llada", ["a.B"], None):
        config.write_text(json.dumps({**good, "auto_map": {"AutoModel": value}}))
        with pytest.raises(GoldimaskError, match=r"auto_map\.AutoModel"):
            merge_run(run, out, with_code=download)
    config.write_text(json.dumps({**good, "architectures": ["DreamModel"]}))
    with pytest.raises(GoldimaskError, match=r"architectures is .*DreamModel"):
        merge_run(run, out, with_code=download)
    config.write_text(json.dumps({k: v for k, v in good.items() if k != "auto_map"}))
    with pytest.raises(GoldimaskError, match="no auto_map"):
        merge_run(run, out, with_code=download)
    config.write_text(json.dumps(good))
    for line in ("from .. import x", "from .sub.x import y", "from . import *"):
        model.write_text(f"\n{line}\n")
        with pytest.raises(GoldimaskError, match=r"modeling_llada\.py:2: imports from outside"):
            merge_run(run, out, with_code=download)
    model.write_text("def (")
    with pytest.raises(GoldimaskError, match="not Python"):
        merge_run(run, out, with_code=download)
    model.write_text("from .absent import x")
    with pytest.raises(GoldimaskError, match=r"absent\.py is missing"):
        merge_run(run, out, with_code=download)
    model.unlink()
    model.symlink_to(download / "extras.py")
    with pytest.raises(GoldimaskError, match="--local-dir"):
        read_modelling(download)
    assert not out.exists()
