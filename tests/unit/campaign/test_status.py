"""States of cells, from the files that runs write."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from goldimask.campaign.grid import Place, wanted
from goldimask.campaign.reading import load_parts
from goldimask.campaign.status import state_of, status
from goldimask.jobs import locked


@pytest.fixture
def place(tmp_path: Path) -> Place:
    (found,) = wanted(load_parts("lab", "smoke", ["rows=[vanilla]"]))
    return replace(found, folder=tmp_path / "cells" / f"{found.name}-0123456789abcdef")


def test_a_running_cell_tells_its_step_and_the_time_left(place: Place, tmp_path: Path) -> None:
    assert place.folder is not None and place.recipe is not None
    logs = tmp_path / "logs"
    assert state_of(place, logs).name == "queued"
    partial = place.folder.with_name(f"{place.folder.name}.partial")
    partial.mkdir(parents=True)
    lines = [json.dumps({"step": n, "loss": 1.0}) for n in (10, 20)]
    (partial / "metrics.jsonl").write_text("\n".join([*lines, '{"step": 2']))  # torn by a kill
    with locked(place.folder):
        lock = place.folder.with_name(f".{place.folder.name}.lock.json")
        holder = json.loads(lock.read_text())
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - 100))
        lock.write_text(json.dumps({**holder, "since": since}))
        found = state_of(place, logs)
        assert (found.name, found.what, found.step, found.steps) == ("running", "train", 20, 30)
        assert found.left == pytest.approx(50, abs=5)  # ten steps at five seconds
        (partial / "checkpoint-10").mkdir()
        os.utime(partial / "checkpoint-10", (0, 0))  # it began from there
        assert state_of(place, logs).left == pytest.approx(100, abs=5)
        lock.write_text(json.dumps({**holder, "process": 2**22 + 1}))  # nobody has such a number
        assert state_of(place, logs).name == "queued"
        lock.write_text(json.dumps({**holder, "host": "elsewhere", "process": 2**22 + 1}))
        assert state_of(place, logs).where == f"elsewhere:{2**22 + 1}"


def test_a_failure_shows_its_last_words(place: Place, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / f"{place.name}-train.json").write_text(json.dumps({"error": "exit 3 | no room"}))
    found = status([place], tmp_path)
    assert found["states"] == {"running": 0, "queued": 0, "failed": 1, "done": 0}
    assert found["cells"][0]["error"] == "exit 3 | no room"
