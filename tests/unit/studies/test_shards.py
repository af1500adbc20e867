"""Any number of shards gives the numbers of one process, and nothing else is merged."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from goldimask.cli import app
from goldimask.errors import GoldimaskError

FROZEN = {
    "response": ("--examples", 9, "--seeds", 2, "--draws", 1),
    "support": ("--examples", 16, "--sets", 2, "--layer", "last"),
    "quality": ("--examples", 9),
    "eligibility": ("--limit", 3, "--states", 2),
}


def call(*words: object) -> str:
    done = CliRunner().invoke(app, ["study", *map(str, words)])
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout


@pytest.mark.parametrize("study", FROZEN)
def test_shards_of_a_frozen_model(study: str, small_model: Path, tmp_path: Path) -> None:
    words = (study, small_model, *FROZEN[study], "--batch-size", 4, "--json")
    whole = json.loads(call(*words, "-o", tmp_path / "whole"))
    for i in (2, 0):
        assert call(*words, "-o", tmp_path / "parts", "--shard", f"{i}/3") == ""
    assert not list((tmp_path / "parts").glob("*/result.json"))
    assert json.loads(call(*words, "-o", tmp_path / "parts", "--shard", "1/3")) == whole


def test_shards_of_study_1_share_its_runs(small_model: Path, tmp_path: Path) -> None:
    words = ["budget", small_model, "--examples", 4, "--heldout", 4, "--steps", 1, "--seeds", 1]
    words += ["--batch-size", 4, "--rules", "uniform,all", "--device", "cpu", "--json", "-o"]
    whole = json.loads(call(*words, tmp_path / "whole"))
    assert call(*words, tmp_path / "parts", "--shard", "0/2") == ""
    assert len(list((tmp_path / "parts" / "runs").glob("*/manifest.json"))) == 1
    assert json.loads(call(*words, tmp_path / "parts", "--shard", "1/2")) == whole


def test_a_part_of_something_else_is_refused(small_model: Path, tmp_path: Path) -> None:
    words = ("quality", small_model, "--examples", 8, "--batch-size", 4, "-o", tmp_path)
    call(*words, "--shard", "0/2")
    for other in (("--seeds", 2), ("--dtype", "bfloat16"), ("--batch-size", 2)):
        with pytest.raises(GoldimaskError, match="choose another folder"):
            call(*words, *other, "--shard", "1/2")
    folder = tmp_path / "parts" / f"quality-{small_model.name}"
    shutil.rmtree(folder / "1-of-2", ignore_errors=True)
    (folder / "0-of-2" / "pieces.npz").write_bytes(b"x")
    with pytest.raises(GoldimaskError, match=r"pieces\.npz' is damaged"):
        call(*words, "--shard", "1/2")
    with pytest.raises(GoldimaskError, match="name it with --out"):
        call("quality", small_model, "--shard", "0/2")
