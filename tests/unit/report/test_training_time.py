"""Training times from run folders: ratios within a setting, never across."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from goldimask.records import Run, open_run
from goldimask.report.training_time import training_time


def folder(root: Path, name: str, method: str, training: float, **changes) -> Run:
    """A run of ten steps, as far as the table reads it."""
    run = root / name
    run.mkdir()
    hardware = changes.pop("hardware", ["4 x NVIDIA B200"])
    recipe = {
        "seed": changes.pop("seed", 42),
        "backbone": {"name": "llada-8b-instruct"},
        "data": {"corpus": changes.pop("corpus", "s1k")},
        "method": {"preset": method},
    }
    (run / "recipe.yaml").write_text(json.dumps(recipe))
    clock = {"loading": 900.0, "training": training, "validation": 500.0, "checkpoints": 70.0}
    facts = {"steps": 10, "seconds": {**clock, "hardware": hardware}, **changes}
    manifest = {"kind": "train", "key": "k", "model": "m", "weights": "w", "facts": facts}
    (run / "manifest.json").write_text(json.dumps(manifest))
    return open_run(run)


def test_times_are_relative_to_vanilla_over_seeds(tmp_path: Path) -> None:
    runs = [
        folder(tmp_path, "v1", "vanilla", 100.0),
        folder(tmp_path, "v2", "vanilla", 120.0, seed=43),
        folder(tmp_path, "g", "goldimask-d", 132.0),
    ]
    table = training_time(runs)
    assert table.columns == ("method", "runs", "s/step", "hours", "relative", "paper")
    assert table.rows[0] == ("vanilla", 2, 11.0, pytest.approx(110 / 3600), 1.0, 1.0)
    assert table.rows[1] == ("goldimask-d", 1, 13.2, pytest.approx(132 / 3600), 1.2, 1.21)
    assert "4 x NVIDIA B200" in table.note and "llada-8b-instruct on s1k" in table.note


def test_settings_are_kept_apart_and_averaged_as_in_the_paper(tmp_path: Path) -> None:
    runs = [
        folder(tmp_path, "a", "vanilla", 100.0),
        folder(tmp_path, "b", "gift", 110.0),
        folder(tmp_path, "c", "vanilla", 200.0, corpus="lift-sft-12k"),
        folder(tmp_path, "d", "gift", 240.0, corpus="lift-sft-12k"),
        folder(tmp_path, "e", "gift", 900.0, hardware=["1 x other"]),
        folder(tmp_path, "f", "gift", 1.0, hardware=["1 x other", "4 x NVIDIA B200"]),
        folder(tmp_path, "g", "gift", 1.0, seconds=None),
        folder(tmp_path, "h", "cart", 101.0),
        folder(tmp_path, "i", "gift", 110.0, seed=43),
    ]
    table = training_time(runs)
    cells = {(row[0], row[1]): row[5] for row in table.rows}
    assert cells[("a", "gift")] == 1.1 and cells[("b", "gift")] == 1.2
    assert cells[("c", "gift")] is None  # no Vanilla on that machine
    assert cells[("average", "gift")] == 1.15 and cells[("average", "vanilla")] == 1.0
    assert ("a", "cart") in cells and ("average", "cart") not in cells  # in one of the two settings
    assert {row[1]: row[2] for row in table.rows if row[0] == "average"} == {
        "vanilla": 2,
        "gift": 3,
    }
    assert "Left out: f (moved between machines), g (no seconds)" in table.note
    assert training_time([]).rows == ()
