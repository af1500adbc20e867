"""Jobs as forks: the commands themselves, their exit codes, kills, the end of the campaign."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

from goldimask.campaign.executors import Job, execute, failure
from goldimask.campaign.warm import Warm

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="forks are for Linux")


def job(name: str, *words: str) -> Job:
    return Job(name, words, Path())


def wait(warm: Warm, *words: str, log: Path) -> int:
    return warm.start(words, log, {}).wait(60.0)


@pytest.fixture(scope="module")
def warm():
    made = Warm()
    yield made
    made.close()
    assert made.process is not None and made.process.wait(10.0) == 0


def test_jobs_of_a_cpu_are_forks_and_say_what_commands_say(tmp_path: Path) -> None:
    jobs = [job("good", "list", "methods", "--json"), job("bad", "train", "nosuchrecipe")]
    found = {e.job.name: e for e in execute(jobs, 2, tmp_path)}
    assert not found["good"].error
    assert '"goldimask-d"' in (tmp_path / "good.log").read_text()
    assert found["bad"].error.startswith("exit 2 | error: ")
    assert "nosuchrecipe" in found["bad"].error
    assert failure(tmp_path, "bad") == found["bad"].error


def test_a_child_is_a_process_of_its_own(warm: Warm, tmp_path: Path) -> None:
    """Another pid, the slot's environment, no input, the log for all that it says."""
    assert wait(warm, "list", "nothing", log=tmp_path / "a.log") == 2
    assert wait(warm, "--version", log=tmp_path / "a.log") == 0
    text = (tmp_path / "a.log").read_text()
    assert "nothing" in text and text.rstrip().splitlines()[-1].startswith("goldimask ")


def test_a_killed_child_takes_nobody_along(warm: Warm, tmp_path: Path) -> None:
    words = ("train", "tiny", f"output={tmp_path / 'x'}")
    first = warm.start(words, tmp_path / "first.log", {})
    second = warm.start(("list", "methods"), tmp_path / "second.log", {})
    first.kill()
    assert first.wait(30.0) == -signal.SIGKILL
    assert second.wait(30.0) == 0
    first.kill()  # it has ended: nobody else gets the signal


def test_a_stopped_training_saves_its_checkpoint_first(warm: Warm, tmp_path: Path) -> None:
    words = ("train", "tiny", f"output={tmp_path / 'x'}", "data.limit=40", "trainer.max_steps=5000")
    log = tmp_path / "x.log"
    child = warm.start((*words, "trainer.eval_steps=5000", "trainer.save_steps=5000"), log, {})
    until = time.monotonic() + 60
    while "step " not in (log.read_text() if log.exists() else "") and time.monotonic() < until:
        time.sleep(0.1)
    child.terminate()
    assert child.wait(60.0) == 4, log.read_text()


def test_children_end_with_the_process_that_made_them(tmp_path: Path) -> None:
    """However it ends: jobs are told as stopped, and later ones cannot start."""
    warm = Warm()
    child = warm.start(("train", "tiny", f"output={tmp_path / 'x'}"), tmp_path / "x.log", {})
    assert warm.process is not None
    os.kill(warm.process.pid, signal.SIGKILL)
    assert child.wait(30.0) == -signal.SIGTERM
    with pytest.raises(OSError):
        warm.start(("list", "methods"), tmp_path / "y.log", {})
        warm.start(("list", "methods"), tmp_path / "y.log", {})
    warm.close()
    until = time.monotonic() + 60
    while Path(f"/proc/{child.pid}").exists() and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(f"/proc/{child.pid}").exists()
