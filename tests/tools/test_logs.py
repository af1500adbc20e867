"""The logs of the runs that made the shipped models, and their picture."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from pretraining.curves import draw_curves, read_log
from pretraining.optimisers import rate
from pretraining.recipe import load_pretraining

LAST = [("tiny", 8400), ("tiny-b", 8400), ("tiny-dream", 11400)]
TOOLS = Path(__file__).parents[2] / "tools"


@pytest.mark.parametrize(("name", "last"), LAST)
def test_the_logs_are_of_the_recipe(name, last):
    """Every rate in the log of a shipped model is the one that the recipe prescribes."""
    recipe = load_pretraining(TOOLS / "tiny-base.yaml")
    log = read_log(TOOLS / "logs" / f"{name}.jsonl.gz")
    rates = {record["step"]: record["rate"] for record in log if "rate" in record}
    assert list(rates) == list(range(20, last + 1, 20)) and last <= recipe.steps
    for step, found in rates.items():
        stage, inside = recipe.stage(step - 1)
        assert found == pytest.approx(rate(stage.optim, inside, stage.steps), abs=1e-6)


def test_curves_are_drawn_from_a_log(tmp_path):
    record = {"step": 1, "heldout_loss": 2.0, "test_loss": {"chain": 3.0}}
    record["test"] = {"chain": {"accuracy": 0.5, "steps": 9.0}}
    lines = [{"step": 1, "loss": 2.0}, record, {"step": 2, "loss": 1.0}]
    log = tmp_path / "log.jsonl.gz"
    log.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode()))
    png = draw_curves(read_log(log), tmp_path / "curves.png")
    assert png.read_bytes().startswith(b"\x89PNG")
