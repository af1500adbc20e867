"""Whatever ends a run, resuming it gives the run that was never interrupted, bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from goldimask.errors import GoldimaskError
from goldimask.jobs import seal
from invariant.runs import LONG, logged, recipe, run, same, weights

KILLS = ("half-a-file", "before-the-seal", "before-the-name", "random")
SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP", "SIGUSR1", "SIGUSR2")


@pytest.fixture(scope="module")
def whole(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "x"
    return run(recipe(small_model, folder, **LONG))


@pytest.fixture(scope="module")
def ended(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict]:
    """Folder and exit codes of all interrupted runs."""
    folder = tmp_path_factory.mktemp("ended")
    points = [*KILLS, "full-disk", *SIGNALS, "spare", "SIGUSR1-twice", "before-a-checkpoint"]
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
    return run(recipe(small_model, folder / point, **LONG), resume=True)


@pytest.mark.real
@pytest.mark.parametrize("point", KILLS)
def test_kill_during_a_save(small_model: Path, whole: Path, ended, point: str) -> None:
    folder, codes = ended
    assert codes[point] == -9
    names = {p.name for p in (folder / f"{point}.partial").iterdir()}
    assert "checkpoint-4" in names and (point == "random" or "checkpoint-8" not in names)
    again = resumed(small_model, folder, point)
    assert logged(again) == logged(whole)
    assert same(weights(again), weights(whole))
    assert not (again / ".writing").exists()


@pytest.mark.real
def test_full_disk_keeps_the_previous_checkpoint(small_model: Path, whole: Path, ended) -> None:
    folder, codes = ended
    assert codes["full-disk"] == 3
    message = (folder / "full-disk.txt").read_text()
    assert "checkpoint-8' could not be saved" in message and "--resume" in message
    names = {p.name for p in (folder / "full-disk.partial").iterdir()}
    assert "checkpoint-4" in names and not names & {"checkpoint-8", ".writing"}
    assert same(weights(resumed(small_model, folder, "full-disk")), weights(whole))


@pytest.mark.real
@pytest.mark.parametrize("name", SIGNALS)
def test_signals_save_and_leave(small_model: Path, whole: Path, ended, name: str) -> None:
    folder, codes = ended
    assert codes[name] == 4
    message = (folder / f"{name}.txt").read_text()
    assert f"stopped by {name} after step 6 of 12" in message and "--resume" in message
    assert (folder / f"{name}.partial" / "checkpoint-6").is_dir()
    if name not in ("SIGINT", "SIGUSR1"):  # the others take the same way
        return
    again = resumed(small_model, folder, name)
    assert logged(again) == logged(whole)
    assert same(weights(again), weights(whole))


@pytest.mark.real
def test_a_second_signal_ends_at_once(ended) -> None:
    folder, codes = ended
    assert codes["SIGUSR1-twice"] == -signal.SIGUSR1
    assert not (folder / "SIGUSR1-twice.partial" / "checkpoint-6").exists()


@pytest.mark.real
def test_a_resumed_run_counts_the_seconds_of_all_its_starts(
    small_model: Path, whole: Path, ended, tmp_path: Path
) -> None:
    """Of the first start, until the checkpoint; loading, validation and saves are kept apart."""
    from goldimask.train.run import train

    folder, _ = ended
    shutil.copytree(folder / "spare.partial", tmp_path / "spare.partial")
    file = tmp_path / "spare.partial" / "checkpoint-4" / "meters.json"
    state = json.loads(file.read_text())
    assert state["clock"]["training"] > 0 and state["clock"]["hardware"]
    state["clock"]["training"] += 1000.0
    file.write_text(json.dumps(state))
    seal(file.parent)
    made = recipe(small_model, tmp_path / "spare", **LONG)  # moved: another output
    train(made, resume=True, allow_changes=True)
    facts = json.loads((tmp_path / "spare" / "manifest.json").read_text())["facts"]["seconds"]
    straight = json.loads((whole / "manifest.json").read_text())["facts"]["seconds"]
    assert 1000 < facts["training"] < 1100 and 0 < straight["training"] < 100
    assert all(straight[k] > 0 for k in ("loading", "validation", "checkpoints"))
    assert len(facts["hardware"]) == 1


@pytest.mark.real
@pytest.mark.parametrize("resume", [True, False])
def test_a_kill_before_the_first_checkpoint_leaves_nothing_in_the_way(
    small_model: Path, whole: Path, ended, tmp_path: Path, resume: bool
) -> None:
    from goldimask.train.run import train

    folder, codes = ended
    assert codes["before-a-checkpoint"] == -9
    shutil.copytree(folder / "before-a-checkpoint.partial", tmp_path / "x.partial")
    said: list[str] = []
    train(recipe(small_model, tmp_path / "x", **LONG), resume=resume, say=said.append)
    assert logged(tmp_path / "x") == logged(whole)
    assert any("no sound checkpoint: removed, starting afresh" in line for line in said)


def test_damaged_checkpoints_are_set_aside(tmp_path: Path) -> None:
    from goldimask.train.folders import find_checkpoint

    for made in (tmp_path / "x.damaged-1", tmp_path / "x.partial" / "checkpoint-4"):
        made.mkdir(parents=True)
    (tmp_path / "x.partial" / "checkpoint-4" / "complete.json").write_text('{"files": {}}')
    said: list[str] = []
    plain = recipe(tmp_path, tmp_path / "x")
    assert find_checkpoint(plain, tmp_path / "x", True, False, said.append) is None
    assert said[0] == "skipping checkpoint-4: its complete.json names no files"
    assert "x.damaged-2', starting afresh" in said[1]
    assert (tmp_path / "x.damaged-2" / "checkpoint-4").is_dir()


@pytest.mark.real
def test_changes_are_named_and_refused_unless_told(small_model: Path, ended) -> None:
    from goldimask.train.run import train

    folder, codes = ended
    assert codes["spare"] == -9
    changes = {**LONG, "trainer": {**LONG["trainer"], "learning_rate": 2e-3}}
    made = recipe(small_model, folder / "spare", **changes, seed=6)
    with pytest.raises(GoldimaskError) as error:
        train(made, resume=True)
    text = str(error.value)
    assert "seed (5 then, 6 now)" in text and "trainer.learning_rate" in text
    assert "--allow-changes" in text


def test_changed_data_is_refused(small_model: Path, tmp_path: Path) -> None:
    """The recipe names the same file, but its rows are others."""
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


@pytest.mark.parametrize("limit", [60, 44])  # in the middle of an epoch, and at the end of one
def test_a_kill_after_the_last_checkpoint_adds_no_step(
    small_model: Path, tmp_path: Path, limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from goldimask.train import run as module

    data = {"corpus": "tiny-sft", "limit": limit, "validation": 12, "supervise_turn_end": True}
    made = recipe(small_model, tmp_path / "x", "vanilla", data=data, trainer={"max_steps": 4})

    def dies(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "finish", dies)
        with pytest.raises(KeyboardInterrupt):
            run(made)
    partial = tmp_path / "x.partial"
    for name in (".adapter.x1", ".writing/checkpoint-4"):  # a kill while it was finishing
        (partial / name).mkdir(parents=True)
        (partial / name / "half").touch()
    (partial / ".manifest.json.x2").touch()
    (partial / "checkpoint-1").mkdir()  # a kill while it was being removed for a newer one
    again = run(made, resume=True)
    names = [p.name for p in again.iterdir()]
    assert not [n for n in names if n.startswith(".")] and "checkpoint-1" not in names
    whole = recipe(small_model, tmp_path / "y", "vanilla", data=data, trainer={"max_steps": 4})
    assert logged(again) == logged(run(whole)) and same(weights(again), weights(tmp_path / "y"))
    shares = [json.loads((f / "manifest.json").read_text())["facts"]["classes"]
              for f in (again, tmp_path / "y")]  # fmt: skip
    assert shares[0] == shares[1]


def test_a_kill_after_the_last_write_is_a_finished_run(small_model: Path, tmp_path: Path) -> None:
    """A scheduler that starts it again is told so; another recipe is still refused."""
    from goldimask.train.run import train

    made = recipe(small_model, tmp_path / "x", "vanilla", trainer={"max_steps": 2})
    first = train(made)
    files = {f: f.stat().st_mtime_ns for f in (tmp_path / "x").rglob("*") if f.is_file()}
    said: list[str] = []
    assert train(made, resume=True, say=said.append) == first
    assert "nothing is left to do" in said[-1]
    assert files == {f: f.stat().st_mtime_ns for f in (tmp_path / "x").rglob("*") if f.is_file()}
    with pytest.raises(GoldimaskError, match="exists; choose another"):
        train(made)
    other = recipe(small_model, tmp_path / "x", "vanilla", trainer={"max_steps": 3})
    with pytest.raises(GoldimaskError, match="exists; choose another"):
        train(other, resume=True)
