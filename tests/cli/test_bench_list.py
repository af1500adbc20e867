"""`goldimask list` and `goldimask bench`: one JSON object, the promised keys."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from goldimask import processes
from goldimask.cli.app import app
from goldimask.cli.listing import list_app
from goldimask.presets import PRESETS


@pytest.mark.parametrize("kind", ["methods", "backbones", "tasks", "recipes"])
def test_list_prints_one_object(kind):
    result = CliRunner().invoke(list_app, [kind, "--json"])
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)[kind]
    assert rows and all(row["name"] and row["summary"] for row in rows)
    human = CliRunner().invoke(list_app, [kind])
    assert human.exit_code == 0 and rows[0]["name"] in human.stdout


def test_list_methods_has_everything():
    rows = {
        r["name"]: r
        for r in json.loads(CliRunner().invoke(list_app, ["methods", "--json"]).stdout)["methods"]
    }
    assert list(rows) == PRESETS.names()
    paper = {
        "vanilla": 1.0,
        "cart": 1.01,
        "gift": 1.17,
        "agdo": 1.17,
        "lift-2": 1.24,
        "goldimask-d": 1.21,
        "goldimask-r": 1.23,
    }
    for name, cost in paper.items():
        assert rows[name]["paper_cost"] == cost
    assert all(row["passes"] in (1, 2) and row["paper"] for row in rows.values())


def test_recipes_of_the_working_folder_are_listed(tmp_path, monkeypatch):
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text("# My own run.\nseed: 1\n")
    monkeypatch.chdir(tmp_path)
    rows = json.loads(CliRunner().invoke(list_app, ["recipes", "--json"]).stdout)["recipes"]
    assert {"name": "mine", "summary": "My own run.", "source": "./recipes"} in rows


def test_listing_methods_does_not_load_torch():
    code = (
        "import sys; from goldimask.cli.listing import methods; methods(as_json=True); "
        "assert not {'torch', 'transformers', 'numba'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_bench_record():
    from goldimask.backbones.lora import add_lora
    from goldimask.data.examples import load_examples
    from goldimask.train.cost import step_costs
    from pretraining.model import new_backbone
    from pretraining.recipe import ModelSection

    backbone = new_backbone(ModelSection(width=32, layers=2, heads=2, mlp=64), seed=0)
    backbone = add_lora(backbone, 0, r=2, alpha=4.0, dropout=0.0, targets=("q_proj",))
    examples, _ = load_examples("tiny-sft", backbone, limit=16)
    names = ["cart", "agdo", "goldimask-d", "goldimask-a"]
    result = step_costs(backbone, examples, names, rounds=2, batch_size=4, batches=1)
    json.dumps(result, allow_nan=False)
    assert list(result["methods"]) == ["vanilla", *names]
    assert result["trainable"] == 2 * 2 * (2 * 32) and result["hardware"].endswith("1 thread")
    vanilla, d = result["methods"]["vanilla"], result["methods"]["goldimask-d"]
    assert vanilla["ratio"] == vanilla["limit"] == 1.0
    assert set(d) >= {"ratio", "limit", "capture_share", "shares"}
    assert d["limit"] > 1.0 and d["passes"] == 2 and d["paper"] == 1.21
    assert result["methods"]["goldimask-a"]["limit"] == 1.0
    for row in result["methods"].values():
        assert row["shares"]["backward"] > 0.02 and row["shares"]["optimiser"] > 0
        assert 0.4 < sum(row["shares"].values()) <= 1.0  # the rest: metrics, and the minimum's luck
        assert 0.0 <= row["capture_share"] < 1.0


def test_bench_runs_where_the_model_is(monkeypatch):
    """Every batch that a step sees was moved; wall time then waits for the device."""
    import torch

    from goldimask.data.examples import load_examples
    from goldimask.train import cost
    from goldimask.types import Batch
    from pretraining.model import new_backbone
    from pretraining.recipe import ModelSection

    backbone = new_backbone(ModelSection(width=32, layers=2, heads=2, mlp=64), seed=0)
    examples, _ = load_examples("tiny-sft", backbone, limit=8)
    moved: list[int] = []
    to = Batch.to

    def noted(self, device):
        moved.append(id(found := to(self, device)))
        return found

    seen = []
    step = cost.step_seconds
    monkeypatch.setattr(Batch, "to", noted)
    monkeypatch.setattr(
        cost, "step_seconds", lambda *a: seen.extend(id(b) for b, _ in a[3]) or step(*a)
    )
    cost.step_costs(backbone, examples, ["vanilla"], rounds=1, batch_size=4)
    assert seen and set(seen) <= set(moved)
    monkeypatch.setattr(processes, "DeviceTime", lambda device: ("a moment on", device))
    device = torch.device("cuda")
    assert cost.clock_of(device)() == ("a moment on", device)


def test_bench_names_an_unknown_method():
    result = CliRunner().invoke(app, ["bench", "--methods", "goldimask-z", "--json"])
    assert result.exit_code != 0
