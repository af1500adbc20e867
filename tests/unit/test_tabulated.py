"""Tabulated curves: exact at their points, strict when read, part of a training's key."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from goldimask.cli import app
from goldimask.config import load_recipe
from goldimask.errors import GoldimaskError
from goldimask.methods import method
from goldimask.objective import Priority, Support, priority_curve
from goldimask.records import open_run
from goldimask.select.api import read_support, select_reveal
from goldimask.tabulated import read_table, write_table
from goldimask.train.prepare import train_key
from goldimask.weighting import utility, water_fill

GRID = np.linspace(0, 1, 401)


def sampled(folder: Path, curve: str) -> Path:
    y = (Priority() if curve == "priority" else Support())(GRID)
    return write_table(folder / f"{curve}.json", curve, GRID.tolist(), y.tolist())  # type: ignore[arg-type]


@pytest.mark.parametrize("curve", ["priority", "support"])
def test_exact_at_the_points_and_linear_between(curve: str, tmp_path: Path) -> None:
    spec = {"kind": "table", "file": str(sampled(tmp_path, curve))}
    own = priority_curve(spec) if curve == "priority" else read_support(spec, "support")
    paper = Priority() if curve == "priority" else Support()
    assert np.array_equal(own(GRID), paper(GRID))
    assert np.array_equal(own(torch.from_numpy(GRID)).numpy(), paper(GRID))
    between = np.random.default_rng(0).random((3, 500))
    second = {"priority": 6.0, "support": 2 / 0.05**2}[curve]  # the largest |f''|
    error = np.abs(own(between) - paper(between)).max()
    assert 0 < error <= second * GRID[1] ** 2 / 8
    np.testing.assert_allclose(own(torch.from_numpy(between)), own(between), atol=1e-14)


def test_the_paper_s_curves_as_tables_reveal_and_weigh_as_the_paper(tmp_path: Path) -> None:
    files = {
        c: {"kind": "table", "file": str(sampled(tmp_path, c))} for c in ("priority", "support")
    }
    rng = np.random.default_rng(1)
    attention = rng.dirichlet(np.full(40, 0.3), 40).astype(np.float32)
    p = rng.random(40)
    for selector in ("greedy", "randomized", "twin", "practical"):
        plain = select_reveal(attention, Priority()(p), 20, selector, rng=np.random.default_rng(0))
        lam = priority_curve(files["priority"])(p)
        options = {"rng": np.random.default_rng(0), "support": files["support"]}
        table = select_reveal(attention, lam, 20, selector, **options)
        assert table.value == pytest.approx(plain.value, rel=2e-2)
        engine = "device" if selector in ("greedy", "randomized") else "host"
        slow = select_reveal(attention, lam, 20, selector, engine="oracle",
                             **{**options, "rng": np.random.default_rng(0)})  # fmt: skip
        on_device = select_reveal(attention, lam, 20, selector, engine=engine,
                                  **{**options, "rng": np.random.default_rng(0)})  # fmt: skip
        assert table.order.tolist() == slow.order.tolist() == on_device.order.tolist()
    before, after = torch.from_numpy(np.log(rng.choice(GRID[1:], (2, 4, 30))))
    active = torch.ones(4, 30, dtype=torch.bool)
    weights = [
        water_fill(utility(before, after, curve), active, 10.0)
        for curve in (Priority(), priority_curve(files["priority"]))
    ]
    torch.testing.assert_close(weights[0], weights[1], rtol=1e-9, atol=1e-9)
    assert (weights[0] > 1).any()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"curve": "priority",\n "x": [0, 1,],\n "y": [1, 0]}', r"t\.json:2:\d+: not valid JSON"),
        ('{"curve": "support", "x": [0, 1], "y": [0, 1]}', "'support' where a priority is needed"),
        ('{"curve": "priority", "z": 1}', "t.json: z: unknown field"),
        ('{"curve": "priority", "x": [0, 1], "y": [1]}', "x has 2 numbers and y has 1"),
        ('{"curve": "priority", "x": [0, 0.5, 0.5, 1], "y": [1, 1, 1, 0]}', r"x\[2\]: 0.5 must"),
        ('{"curve": "priority", "x": [0.1, 1], "y": [1, 0]}', "x: must go from 0 to 1"),
        ('{"curve": "priority", "x": [0, 1], "y": [1, -1]}', r"y\[1\]: -1 must be at least 0"),
        ('{"curve": "priority", "x": [0, 1], "y": [0, 0]}', "0 everywhere"),
        ('{"curve": "priority", "x": [0, 1], "y": [0, "a"]}', r"y\[1\]: 'a' is not a finite"),
        ('{"curve": "support", "x": [0, 0.5, 1], "y": [0, 0.1, 1]}', r"y\[2\]: .* be concave"),
        ('{"curve": "support", "x": [0, 0.5, 1], "y": [0, 1, 0.5]}', r"y\[2\]: 0.5 must not be"),
        ('{"curve": "support", "x": [0, 1], "y": [0.1, 1]}', r"y\[0\]: 0.1 must be 0"),
    ],
)
def test_a_bad_table_is_refused_by_its_place(text: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "t.json"
    file.write_text(text)
    whole = "priority" in text or "where a priority" in message
    kind = "priority" if whole else "support"
    with pytest.raises(GoldimaskError, match=message):
        read_table({"kind": "table", "file": str(file)}, kind, "priority")  # type: ignore[arg-type]


def test_a_table_s_spec_is_strict(tmp_path: Path) -> None:
    for bad, message in (
        ({"kind": "tabel"}, "must be 'table'"),
        ({"kind": "table", "fiel": "x"}, "fiel: unknown key"),
        ({"kind": "table", "file": "nowhere.json"}, "weigh.priority.file: 'nowhere.json' cannot"),
        ({"kind": "table", "file": "x", "y": [1]}, "not both"),
    ):
        with pytest.raises(GoldimaskError, match=message):
            method("goldimask-d", weigh={"priority": bad})
    built = method("goldimask-d", select={"support": {"kind": "table", "x": [0, 1], "y": [0, 1]}})
    assert built.select.support.kind == "table"  # type: ignore[attr-defined]


def test_from_a_study_to_a_training_run(small_model: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)

    def call(*words: object):
        done = CliRunner().invoke(app, [*map(str, words)])
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return done

    words = ("--corpus", "tiny-1k", "--examples", 40, "--seeds", 1, "--json")
    call("study", "response", "tiny", *words, "--draws", 1, "--table", "lambda.json")
    call("study", "support", "tiny", *words, "--sets", 3, "--layer", 1, "--table", "phi.json")
    tables = {name: json.loads(Path(f"{name}.json").read_text()) for name in ("lambda", "phi")}
    assert tables["lambda"]["source"]["weights"] == tables["phi"]["source"]["weights"]
    assert tables["phi"]["source"]["layer"] == 1 and tables["phi"]["y"][-1] == 1
    assert max(tables["lambda"]["y"]) == 1 and tables["lambda"]["curve"] == "priority"
    table = "{{kind: table, file: {}.json}}"
    given = [f"method.{at}.priority={table.format('lambda')}" for at in ("select", "weigh")]
    given += [f"method.select.support={table.format('phi')}", "trainer.max_steps=2", "output=run"]
    given += [f"backbone.name={small_model}", "data.limit=24", "data.validation=0"]
    call("train", "tiny", *given, "trainer.eval_on_start=false", "trainer.save_strategy='no'")
    manifest = open_run("run").manifest
    assert manifest is not None
    y = tables["phi"]["y"]
    assert manifest.facts["tables"]["method.select.support"][1] == y
    recipe = load_recipe("tiny", given)
    key = train_key(recipe)
    Path("other.json").write_text(Path("lambda.json").read_text())
    moved = [w.replace("lambda.json", "other.json") for w in given]
    assert train_key(load_recipe("tiny", moved)) == key  # the points count, not the file's name
    tables["lambda"]["y"][1] *= 0.5
    Path("lambda.json").write_text(json.dumps(tables["lambda"]))
    assert train_key(recipe) != key
    done = call("study", "curves", "lambda.json", "phi.json", "-o", "figures", "--json")
    assert all(Path(f).is_file() for f in json.loads(done.stdout)["files"])
