"""The grid: cells by content, resumed, failing, in processes, from the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import yaml
from goldimask.campaign.cache import cell_key
from goldimask.campaign.cell import trainable, trained
from goldimask.campaign.data import heldout_examples, heldout_rows, training_rows
from goldimask.studies.schedule import Tuning
from typer.testing import CliRunner

from goldimask.campaign import grid
from goldimask.campaign.grid import plan, run_grid
from goldimask.campaign.settings import (
    Cell,
    JudgingSection,
    Lab,
    cells,
    check,
    load_lab,
)
from goldimask.errors import GoldimaskError

JUDGING = JudgingSection(
    tasks=("tiny-sort",), problems=4, taus=(0.005, 0.02), main_tau=0.02, heldout=5
)


@pytest.fixture
def lab(small_model: Path) -> Lab:
    return Lab(
        backbones=(str(small_model),),
        rows=("vanilla", "goldimask-d"),
        seeds=(0,),
        examples=8,
        tuning=Tuning(steps=2, batch_size=4, warmup=1),
        judging=JUDGING,
        cost_rounds=1,
    )


def test_cells_are_made_once_and_found_again(lab: Lab, tmp_path: Path) -> None:
    jobs = plan(lab, tmp_path)
    made = run_grid(lab, jobs)
    assert made.reused == 0 and not made.failed and len(made.records) == 2
    stamps = {job.file: job.file.stat().st_mtime_ns for job in jobs}
    wider = replace(lab, rows=("base", *lab.rows))  # another row leaves the others as they are
    again = run_grid(wider, plan(wider, tmp_path))
    assert again.reused == 2 and len(again.records) == 3
    assert {f: f.stat().st_mtime_ns for f in stamps} == stamps
    for cell, record in made.records.items():
        assert again.records[cell] == json.loads(json.dumps(record))
    assert len(list((tmp_path / "cells").iterdir())) == 3  # nothing half-written is left
    (one,) = (j.file for j in jobs if j.cell.row == "vanilla")
    one.write_text("{ torn")
    assert run_grid(lab, jobs).reused == 1 and json.loads(one.read_text())["tasks"]


def test_the_key_follows_the_content(lab: Lab, small_model: Path, tmp_path: Path) -> None:
    cell = Cell(str(small_model), "goldimask-d", 0)
    key = cell_key(lab, cell)
    same = replace(lab, output="elsewhere", seeds=(0, 1), rows=("goldimask-d",), cost_rounds=9)
    assert cell_key(same, cell) == key
    for change in (
        {"tuning": replace(lab.tuning, learning_rate=1e-3)},
        {"judging": replace(lab.judging, problems=5)},
        {"corpus": "tiny-1k-clean"},
        {"examples": 12},
        {"attention_layer": 0},
    ):
        assert cell_key(replace(lab, **change), cell) != key
    assert cell_key(lab, replace(cell, row="vanilla")) != key
    assert cell_key(lab, replace(cell, seed=1)) != key
    from shutil import copytree

    copytree(small_model, tmp_path / "other")
    config = json.loads((tmp_path / "other" / "config.json").read_text())
    (tmp_path / "other" / "config.json").write_text(json.dumps(config))  # other bytes
    assert cell_key(lab, replace(cell, backbone=str(tmp_path / "other"))) != key


def test_adapters_leave_the_weights_alone(lab: Lab, tmp_path: Path) -> None:
    adapted = replace(lab, rows=("vanilla",), lora_rank=2, cost_rounds=0)
    (job,) = plan(adapted, tmp_path)
    assert job.key != plan(replace(adapted, lora_rank=0), tmp_path)[0].key
    backbone = trainable(adapted, lab.backbones[0], 0)
    before = {name: p.detach().clone() for name, p in backbone.model.named_parameters()}
    trained(adapted, job.cell, backbone)
    moved = {n for n, p in backbone.model.named_parameters() if not torch.equal(p, before[n])}
    assert moved and all("lora_" in name for name in moved)
    assert run_grid(adapted, [job]).records[job.cell]["training"]["steps"] == 2


def test_a_failing_cell_does_not_stop_the_others(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = grid.run_and_write

    def fail(lab, cell, key, file, commit):
        if cell.row == "vanilla":
            raise RuntimeError("the disk is on fire")
        return right(lab, cell, key, file, commit)

    monkeypatch.setattr(grid, "run_and_write", fail)
    told = []
    made = run_grid(lab, plan(lab, tmp_path), tell=lambda *x: told.append(x))
    (cell,) = made.failed
    assert cell.row == "vanilla" and "on fire" in made.failed[cell]
    assert [c.row for c in made.records] == ["goldimask-d"] and len(told) == 2
    monkeypatch.undo()
    again = run_grid(lab, plan(lab, tmp_path))
    assert again.reused == 1 and not again.failed


def test_processes_give_the_same_cells(lab: Lab, tmp_path: Path) -> None:
    alone = run_grid(lab, plan(lab, tmp_path / "one"))
    many = run_grid(lab, plan(lab, tmp_path / "two"), workers=2)
    assert not many.failed
    for cell, record in alone.records.items():
        other = many.records[cell]
        assert other["tasks"] == record["tasks"]
        assert other["heldout"] == pytest.approx(record["heldout"], rel=1e-5)
    with pytest.raises(GoldimaskError, match="--jobs"):
        run_grid(lab, [], workers=0)


def test_problems_are_divided_over_the_seeds(lab: Lab, tmp_path: Path) -> None:
    divided = replace(
        lab, rows=("base",), seeds=(5, 9), judging=replace(JUDGING, spread=True, taus=(0.02,))
    )
    made = run_grid(divided, plan(divided, tmp_path))
    parts = {c.seed: r["tasks"]["0.02"]["tiny-sort"] for c, r in made.records.items()}
    assert [parts[s]["first"] for s in (5, 9)] == [0, 1]
    assert all(
        p["every"] == 2 and len(p["correct"]) == len(p["steps"]) == 2 for p in parts.values()
    )
    whole = replace(divided, judging=replace(divided.judging, spread=False))
    assert len(cells(whole)) == 1
    (record,) = run_grid(whole, plan(whole, tmp_path)).records.values()
    steps = record["tasks"]["0.02"]["tiny-sort"]["steps"]
    assert steps[0::2] == parts[5]["steps"] and steps[1::2] == parts[9]["steps"]


def test_held_out_text_is_clean_and_leaves_identifiers_out(small_model: Path) -> None:
    from goldimask.backbones import load_backbone
    from goldimask.tiny.identifiers import IDENTIFIERS

    backbone = load_backbone(small_model)
    rows = heldout_rows("tiny-1k", 10)
    assert all(r["wrong"] == "0" and r["identifiers"] for r in rows)
    assert not {r["prompt"] for r in rows} & {r["prompt"] for r in training_rows("tiny-1k", 99, 0)}
    for example in heldout_examples(rows, backbone):
        scored = [i for i, s in zip(example.ids, example.supervisable, strict=True) if s]
        words = backbone.decode(scored).replace(":", " ").split()
        assert scored and not set(words) & set(IDENTIFIERS)


def test_eta_changes_labels_and_nothing_else() -> None:
    own, same, none, many = (
        training_rows("tiny-1k-labels", 60, 2, eta) for eta in (None, 0.15, 0.0, 0.4)
    )
    assert own == same and all(row["wrong"] == "0" for row in none)
    wrong = [sum(int(row["wrong"]) for row in rows) for rows in (none, own, many)]
    assert wrong == sorted(wrong) and wrong[2] > 1.5 * wrong[1] > 0
    assert len({tuple(row["prompt"] for row in rows) for rows in (own, none, many)}) == 1
    assert [r["response"] for r in none] == [
        r["response"] for r in training_rows("tiny-sft", 60, 2)
    ]


def test_recipe_presets_and_mistakes(tmp_path: Path) -> None:
    for preset in ("smoke", "standard", "ablations", "full"):
        lab = load_lab("recipes/lab.yaml", preset)
        assert lab.rows[:2] == ("base", "vanilla")
        if preset != "smoke":
            assert lab.judging.problems >= 500 and len(lab.seeds) >= 3
    assert load_lab("lab", "smoke", ["tuning.steps=7"]).tuning.steps == 7
    file = tmp_path / "mine.yaml"
    for wrong, message in (
        ({"rows": ["vanila"]}, "did you mean 'vanilla'"),
        ({"row": ["vanilla"]}, "did you mean 'rows'"),
        ({"seeds": [1, 1]}, "none twice"),
        ({"judging": {"main_tau": 0.5}}, "main_tau"),
        ({"variants": {"x": {"preset": "vanilla", "wiegh": {}}}, "rows": ["x"]}, "weigh"),
        ({"backbones": ["a/tiny", "b/tiny"]}, "share"),
        ({"eta": 1.5}, "eta: 1.5 must be a probability"),
        ({"eta": 0.3, "corpus": "tiny-sft"}, "eta: corpus 'tiny-sft' has no wrong results"),
    ):
        file.write_text(yaml.safe_dump(wrong))
        with pytest.raises(GoldimaskError, match=message):
            load_lab(file)
    with pytest.raises(GoldimaskError, match="--preset"):
        load_lab("lab", "smok")


def test_command_line(lab: Lab, small_model: Path, tmp_path: Path) -> None:
    from goldimask.cli import app

    words = ["compare", "lab", "--preset", "smoke", f"backbones=[{small_model}]", "examples=8"]
    words += ["tuning={steps: 2, batch_size: 4}", "judging.tasks=[tiny-sort]", "cost_rounds=1"]
    words += ["judging.problems=3", "judging.taus=[0.005,0.02]", "judging.main_tau=0.02"]
    words += ["judging.heldout=5", "-o", str(tmp_path / "out"), "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    summary = json.loads(done.stdout.strip().splitlines()[-1])
    assert summary["cells"] == {"done": 3, "reused": 0} and not summary["failed"]
    ratio = summary["backbones"]["small"]["rows"]["goldimask-d"]["cost"]
    assert ratio > 1.0 and summary["backbones"]["small"]["rows"]["vanilla"]["cost"] == 1.0
    assert (tmp_path / "out" / "report.md").is_file()
    saved = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert {"commit", "command", "preset", "lab"} <= set(saved)
    again = CliRunner().invoke(app, words)
    assert json.loads(again.stdout.strip().splitlines()[-1])["cells"]["reused"] == 3
    planned = CliRunner().invoke(app, [*words, "--plan"])
    assert json.loads(planned.stdout.strip().splitlines()[-1])["waiting"] == 0


def test_other_thresholds_may_take_fewer_problems(lab: Lab, tmp_path: Path) -> None:
    few = replace(lab, rows=("base",), judging=replace(JUDGING, sweep_problems=2))
    (record,) = run_grid(few, plan(few, tmp_path)).records.values()
    counts = {tau: len(found["tiny-sort"]["correct"]) for tau, found in record["tasks"].items()}
    assert counts == {"0.005": 2, "0.02": 4}
    cell = cells(few)[0]
    assert cell_key(few, cell) != cell_key(lab, cell)
    with pytest.raises(GoldimaskError, match="per seed"):
        check(replace(few, seeds=(0, 1, 2)))


def test_supervision_is_tallied_by_class(small_model: Path) -> None:
    from goldimask.campaign.classes import CLASSES, Tally, classify
    from goldimask.campaign.data import clean_rows, to_examples
    from goldimask.studies.schedule import Tuning
    from goldimask.studies.tuning import tune

    from goldimask.backbones import load_backbone
    from goldimask.methods import method

    backbone = load_backbone(small_model, dtype="float32", device="cpu")
    rows, clean = training_rows("tiny-1k", 12, 0), clean_rows("tiny-1k", 12, 0)
    examples = to_examples(rows, backbone)
    kinds = classify(rows, clean, examples, backbone)
    for row, example in zip(rows, examples, strict=True):
        found = kinds[example.example_id]
        assert (found == CLASSES.index("wrong")).sum() == int(row["wrong"])
        assert (found == CLASSES.index("identifiers")).sum() == 4  # the opening word, three words
    tally = Tally(kinds)
    tune(backbone, examples, method("vanilla"), Tuning(steps=3, batch_size=4), 0, tally)
    shares = tally.shares()
    for name in ("candidates", "targets", "weight"):
        assert sum(s[name] for s in shares.values()) == pytest.approx(1.0)
    for share in shares.values():
        assert share["candidates"] == pytest.approx(share["targets"])  # Vanilla reveals nothing
    assert shares["wrong"]["weight"] > 0
    assert clean_rows("tiny-sft", 4, 0) is None


def test_workers_end_with_the_command():
    """A process that follows a parent which is not its own ends itself."""
    code = (
        "from goldimask.campaign.grid import follow; follow(-1, 0.01); import time; time.sleep(60)"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=50).returncode == 1
