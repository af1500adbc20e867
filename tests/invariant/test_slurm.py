"""A campaign on a real Slurm: arrays, a failure, a requeue after a signal, a resume, tables."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from needs import need
from slurm import ask, present, slurm

CAMPAIGN = """
recipe: tiny
change:
  data: {limit: 24, validation: 4}
  global_batch_size: 4
  trainer: {max_steps: 300, eval_steps: 300, save_steps: 300, logging_steps: 1, warmup_steps: 0}
rows: [vanilla, gift, goldimask-d]
seeds: [0]
per:
  rows:
    gift: {data: {max_length: 4}}   # no room for a response: it fails
    goldimask-d: {trainer: {max_steps: 2, eval_steps: 2}}
judging: {tasks: [tiny-sort], problems: 2, taus: [0.9]}
tables: [main]
figures: []
"""
SLURM = "{gpus: 0, cpus: 1, minutes: 10, partition: all}"


def compare(env: dict[str, str], folder: Path, *words: str) -> Any:
    command = [
        sys.executable,
        "-m",
        "goldimask",
        "compare",
        "c.yaml",
        "-o",
        "out",
        "--json",
        *words,
    ]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.real
def test_a_campaign_on_a_real_slurm(tmp_path: Path) -> None:
    need("Slurm", present(), "tools/slurm.sh unpacks one")
    (tmp_path / "c.yaml").write_text(CAMPAIGN)
    (tmp_path / "slurm.yaml").write_text(SLURM)
    out = tmp_path / "out"
    with slurm(tmp_path / "slurm") as env:
        given = ("--on", "slurm", "--slurm", "slurm.yaml")
        sent = compare(env, tmp_path, *given)
        assert len(sent["submitted"]) == 3 and sent["tables"]
        trainings = [numbers[0] for numbers in sent["submitted"].values()]
        assert len({x.split("_")[0] for x in trainings}) == 1  # one array
        again = compare(env, tmp_path, *given)  # somebody else, at the same time
        assert not again["submitted"]
        assert "tiny_vanilla_s0" in again["waiting"]  # the short ones may have ended meanwhile

        vanilla = next(x for name, (x, *_) in sent["submitted"].items() if "vanilla" in name)
        wait(lambda: steps(out) >= 3, 300, "the first steps")
        ask(env, "scancel", "--signal=USR2", vanilla)
        wait(lambda: "BeginTime" in queue(env).get(vanilla, ""), 200, "the job back in the queue")
        found = state(env, tmp_path, "vanilla")
        assert found["name"] == "queued" and vanilla in found["where"]
        partial = next(out.glob("cells/*vanilla*.partial"))
        begun = max(int(c.name.rpartition("-")[2]) for c in partial.glob("checkpoint-*"))
        assert 3 <= begun < 300  # the signal ended in a checkpoint
        ask(env, "scontrol", "update", f"JobId={vanilla}", "StartTime=now")
        wait(lambda: not queue(env), 600, "the end")
    log = (out / "logs" / "tiny_vanilla_s0-train.log").read_text()
    assert "stopped by" in log and f"after step {begun}" in log
    assert json.loads((out / "logs" / "tiny_gift_s0-train.json").read_text())["exit"] == 2
    states = {
        c["name"]: c["state"] for c in json.loads((out / "campaign.json").read_text())["cells"]
    }
    assert states == {
        "tiny_vanilla_s0": "done",
        "tiny_gift_s0": "failed",
        "tiny_goldimask-d_s0": "done",
    }
    assert list(next(out.glob("cells/*vanilla*/eval")).glob("done-*.json"))
    table = next((out / "tables").glob("main*.tex")).read_text()
    assert "anilla" in table and "GIFT" not in table


def queue(env: dict[str, str]) -> dict[str, str]:
    found = ask(env, "squeue", "-h", "-r", "-o", "%i|%T %r")
    return dict(line.split("|", 1) for line in found.splitlines())


def state(env: dict[str, str], folder: Path, row: str) -> dict[str, Any]:
    cells = compare(env, folder, "--status")["cells"]
    return next(c for c in cells if row in c["cell"])


def steps(out: Path) -> int:
    files = list(out.glob("cells/*vanilla*.partial/metrics.jsonl"))
    return len(files[0].read_text().splitlines()) if files else 0


def wait(ready: Any, seconds: float, what: str) -> None:
    until = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < until, f"waited in vain for {what}"
        time.sleep(1)
