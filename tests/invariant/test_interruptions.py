"""Whatever ends a run, resuming it gives the run that was never interrupted, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from goldimask.errors import GoldimaskError
from invariant.runs import losses, recipe, run, same, weights

KILLS = ("half-a-file", "before-the-seal", "before-the-name", "random")
SIGNALS = ("SIGTERM", "SIGINT")


@pytest.fixture(scope="module")
def whole(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "x"
    return run(recipe(small_model, folder, trainer={"max_steps": 12}))


@pytest.fixture(scope="module")
def ended(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """Folder and exit codes of all interrupted runs."""
    folder = tmp_path_factory.mktemp("ended")
    points = [*KILLS, "full-disk", *SIGNALS, "spare"]
    command = [sys.executable, str(Path(__file__).with_name("killed.py"))]
    done = subprocess.run(
        [*command, str(small_model), str(folder), *points],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=1500,
    )
    codes = dict(line.split() for line in done.stdout.splitlines() if len(line.split()) == 2)
    assert set(points) <= codes.keys(), done.stderr
    return folder, {k: int(v) for k, v in codes.items()}


def resumed(small_model: Path, folder: Path, point: str) -> Path:
    made = recipe(small_model, folder / point, trainer={"max_steps": 12})
    return run(made, resume=True)


@pytest.mark.parametrize("point", KILLS)
def test_kill_during_a_save(small_model: Path, whole: Path, ended, point: str) -> None:
    folder, codes = ended
    assert codes[point] == -9
    names = {p.name for p in (folder / f"{point}.partial").iterdir()}
    assert "checkpoint-4" in names and (point == "random" or "checkpoint-8" not in names)
    again = resumed(small_model, folder, point)
    assert losses(again) == losses(whole)
    assert same(weights(again), weights(whole))
    assert not (again / ".writing").exists()


def test_full_disk_keeps_the_previous_checkpoint(small_model: Path, whole: Path, ended) -> None:
    folder, codes = ended
    assert codes["full-disk"] == 3
    message = (folder / "full-disk.txt").read_text()
    assert "checkpoint-8' could not be saved" in message and "--resume" in message
    names = {p.name for p in (folder / "full-disk.partial").iterdir()}
    assert "checkpoint-4" in names and not names & {"checkpoint-8", ".writing"}
    assert same(weights(resumed(small_model, folder, "full-disk")), weights(whole))


@pytest.mark.parametrize("name", SIGNALS)
def test_signals_save_and_leave(small_model: Path, whole: Path, ended, name: str) -> None:
    folder, codes = ended
    assert codes[name] == 4
    message = (folder / f"{name}.txt").read_text()
    assert f"stopped by {name} after step 6 of 12" in message and "--resume" in message
    assert (folder / f"{name}.partial" / "checkpoint-6").is_dir()
    again = resumed(small_model, folder, name)
    assert losses(again) == losses(whole)
    assert same(weights(again), weights(whole))


def test_changes_are_named_and_refused_unless_told(small_model: Path, ended) -> None:
    from goldimask.train.run import train

    folder, codes = ended
    assert codes["spare"] == -9
    changes = {"max_steps": 12, "learning_rate": 2e-3}
    made = recipe(small_model, folder / "spare", trainer=changes, seed=6)
    with pytest.raises(GoldimaskError) as error:
        train(made, resume=True)
    text = str(error.value)
    assert "seed (5 then, 6 now)" in text and "trainer.learning_rate" in text
    assert "--allow-changes" in text


def test_changed_data_is_refused(small_model: Path, tmp_path: Path) -> None:
    """The recipe names the same file, but its rows are others."""
    import json

    from goldimask.train.run import train
    from goldimask.train.trainer import GoldiTrainer

    file = tmp_path / "a.jsonl"
    rows = [{"prompt": f"add {i}", "response": f"{i} is it"} for i in range(30)]
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    options = {"data": {"path": str(file), "validation": 4}, "trainer": {"max_steps": 6}}
    made = recipe(small_model, tmp_path / "x", "vanilla", **options)
    original = GoldiTrainer.compute_loss

    def dies(self, *args, **kwargs):
        if self.state.global_step == 5:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GoldiTrainer, "compute_loss", dies)
        with pytest.raises(KeyboardInterrupt):
            train(made)
    rows[3]["response"] = "13 is it"
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))
    with pytest.raises(GoldimaskError, match="data_hash"):
        train(made, resume=True)
    said: list[str] = []
    summary = train(made, resume=True, allow_changes=True, say=said.append)
    assert summary["steps"] == 6 and any("--allow-changes" in line for line in said)
