"""One process = two with DDP = two with FSDP2, on CPU with gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dist.worker import SGD, made
from goldimask import allow_plugins
from goldimask.config import recipe_yaml
from invariant.runs import losses, recipe, run, weights

pytestmark = [pytest.mark.dist, pytest.mark.real]
HERE = Path(__file__).parent
ENV = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
PAIRS = (
    "plain@ddp",
    "accumulated@ddp",
    "checkpointed@ddp",
    "empty@ddp",
    "remembering@ddp",
    "adapter@ddp",
    "plain@fsdp2",
    "accumulated@fsdp2",
    "divided@fsdp2",
    "checkpointed@fsdp2",
    "adapter@fsdp2",
    "empty@fsdp2",
)

# Relative, of losses, and absolute, of weights. Sums come in another order: 1.7e-5 was seen after
# six steps. Where a row has a target or two, the last digits of their gains (differences of nearly
# equal log probabilities) decide its weights: 7e-5 was seen in `empty` on another processor.
TOLERANCES = {"empty": (1e-3, 1e-4)}


@pytest.fixture(scope="module")
def folder(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All scenarios in two processes."""
    folder = tmp_path_factory.mktemp("dist")
    rows = [{"prompt": f"say {i}", "response": "7"} for i in range(20)]
    rows += [{"prompt": f"count to {i}", "response": "12 + 34 = 46 " * 3} for i in range(20)]
    (folder / "short.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command = [*torchrun, "--nproc_per_node", "2", str(HERE / "worker.py")]
    done = subprocess.run(
        [*command, str(small_model), str(folder), *PAIRS],
        capture_output=True,
        text=True,
        env=ENV,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr[-12000:]
    return folder


@pytest.fixture(scope="module")
def single(small_model: Path, folder: Path) -> dict[str, Path]:
    """The same scenarios in this process."""
    names = {pair.partition("@")[0] for pair in PAIRS}
    return {name: run(made(name, small_model, folder, "one")) for name in names}


@pytest.mark.parametrize("pair", PAIRS)
def test_trajectory_does_not_depend_on_processes(folder: Path, single, pair: str) -> None:
    name, _, kind = pair.partition("@")
    ours, one = folder / f"{name}-{kind}", single[name]
    loss, weight = TOLERANCES.get(name, (2e-4, 1e-5))
    assert losses(ours) == pytest.approx(losses(one), rel=loss, abs=1e-7)
    a, b = weights(ours), weights(one)
    assert a.keys() == b.keys()
    assert max(float((a[k] - b[k]).abs().max()) for k in a) < weight
    for key in ("ce", "supervised", "candidates", "examples_no_target"):
        assert _values(ours, key) == pytest.approx(_values(one, key), rel=1e-4, abs=1e-6)
    assert _values(ours, "eval_loss") == pytest.approx(_values(one, "eval_loss"), rel=1e-5)


def test_fsdp2_was_really_used(folder: Path) -> None:
    """Sharded checkpoints, which DDP does not write."""
    names = {p.name for p in (folder / "plain-fsdp2" / "checkpoint-6").iterdir()}
    assert "pytorch_model_fsdp_0" in names and "optimizer.pt" not in names


def test_some_process_had_nothing_to_supervise(single) -> None:
    """Otherwise the scenario above shows nothing."""
    assert sum(_values(single["empty"], "examples_no_target")) > 8


def _values(run: Path, key: str) -> list[float]:
    lines = [json.loads(x) for x in (run / "metrics.jsonl").read_text().splitlines()]
    return [x[key] for x in lines if key in x]


def test_a_failing_process_ends_the_job_with_its_message(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And --resume then gives the run that never failed, from a sharded checkpoint."""
    monkeypatch.syspath_prepend(HERE)
    options = {**SGD, "max_steps": 6, "save_steps": 3, "eval_steps": 3}
    weigh = {"preset": "goldimask-d", "weigh": {"kind": "failing:weigh"}}
    made = recipe(small_model, tmp_path / "x", method=weigh, trainer=options)
    file = tmp_path / "r.yaml"
    file.write_text(recipe_yaml(made))
    words = ["train", str(file), "--nproc", "2", "--launch", "fsdp2", "--json", "--allow-plugins"]

    def goldimask(*extra: str, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "goldimask", *words, *extra],
            capture_output=True,
            text=True,
            env={**ENV, "PYTHONPATH": str(HERE), "GOLDIMASK_GRACE": "5", **env},
            timeout=1500,
        )

    failed = goldimask(FAIL="1")
    assert failed.returncode == 3, failed.stderr
    assert failed.stderr.splitlines()[-1] == "error: process 1: the weigher gave up"
    assert "Traceback" not in failed.stderr and failed.stdout == ""
    names = {p.name for p in (tmp_path / "x.partial").iterdir()}
    assert "checkpoint-3" in names and "checkpoint-6" not in names
    done = goldimask("--resume")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 6
    with allow_plugins():
        single = run(recipe(small_model, tmp_path / "y", method=weigh, trainer=options))
    a, b = weights(tmp_path / "x"), weights(single)
    assert max(float((a[k] - b[k]).abs().max()) for k in a) < 1e-5
    assert losses(tmp_path / "x") == pytest.approx(losses(single), rel=1e-5)
