"""The plan: counts, hours and disk, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from goldimask.campaign.plan import make_estimate, sizes_of
from goldimask.campaign.reading import load_parts
from goldimask.known import PUBLISHED

CODE = """
import sys
from goldimask.cli import app
try:
    app(["compare", "paper", "--plan", "--json", "--out", sys.argv[1]])
except SystemExit:
    pass
heavy = {"torch", "transformers", "datasets", "peft"} & set(sys.modules)
assert not heavy, heavy
"""


def test_the_plan_of_the_paper_loads_nothing(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, tmp_path], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["trainings"] == {"all": 190, "done": 0, "unfinished": 0, "missing": 190}
    # one of every trained cell and of five untuned ones, 54 of AIME, 24 sweeps
    assert found["evaluations"]["all"] == 190 + 5 + 54 + 24
    assert found["not_here"].keys() >= {"llada-8b-instruct", "s1k", "kodcode"}
    assert found["gpu_hours"] == found["gpu_hours_left"] > 1000 and found["disk_gb"] > 100
    assert not any(tmp_path.iterdir())


def test_sizes_are_those_of_the_models() -> None:
    from goldimask.backbones.checkpoint import FAMILIES, empty_model
    from goldimask.backbones.summary import active_parameters, adapter_use

    for name in ("llada-8b-instruct", "dream-7b-instruct", "llada-moe-7b-instruct"):
        row = next(p for p in PUBLISHED if p.name == name)
        family = FAMILIES[row.layout]
        model = empty_model(family.config(**row.sizes), family)
        sizes = sizes_of(name)
        assert sizes is not None
        embedding = model.get_input_embeddings().weight.numel()
        assert sizes.weights == pytest.approx(active_parameters(model) - embedding, rel=0.01)
        targets = ("q_proj", "k_proj", "v_proj")
        adapter = adapter_use(model, family, 128, targets)["adapter"]
        assert sizes.adapter(128, targets) == adapter


def test_the_hours_are_those_of_the_dry_run() -> None:
    from goldimask.config import load_recipe
    from goldimask.train.estimate import estimate

    (part,) = load_parts("paper-time", None, ["rows=[vanilla]", "corpora=[s1k]"])
    found = make_estimate([part], Path("nowhere"))
    assert found["trainings"]["all"] == 1
    alone = estimate(load_recipe("llada8b", ["method.preset=vanilla"]), card="A100 80GB")
    assert found["gpu_hours"] == pytest.approx(alone["hours"], rel=0.02)
    faster = make_estimate([part], Path("nowhere"), "B200")
    assert faster["gpu_hours"] < found["gpu_hours"] / 5
