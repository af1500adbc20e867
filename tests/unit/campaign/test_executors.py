"""Jobs in processes of their own: order, failures, kills, the end of the campaign."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from goldimask.campaign.executors import (
    Ended,
    Halted,
    Job,
    execute,
    failure,
    halting,
    slots_of,
    visible,
)
from goldimask.errors import GoldimaskError

PYTHON = (sys.executable, "-c")


def job(name: str, code: str, *needs: str) -> Job:
    return Job(name, (code,), Path(), needs)


def run(jobs: list[Job], logs: Path, slots: int = 2) -> dict[str, Ended]:
    return {ended.job.name: ended for ended in execute(jobs, slots, logs, PYTHON)}


def test_a_killed_process_fails_only_its_own_job_and_what_needs_it(tmp_path: Path) -> None:
    """A pool of workers would be broken by this and lose every other cell."""
    kill = "import os; print('last words', flush=True); os.kill(os.getpid(), 9)"
    jobs = [job("dies", kill), job("needs-it", "pass", "dies")]
    jobs += [job(f"cell-{i}", "import time; time.sleep(0.2)") for i in range(8)]
    found = run(jobs, tmp_path)
    assert len(found) == 10
    assert "SIGKILL" in found["dies"].error and "last words" in found["dies"].error
    assert found["needs-it"].error == "not run: dies failed"
    assert not any(found[f"cell-{i}"].error for i in range(8))


def test_needs_come_first_and_slots_are_kept(tmp_path: Path) -> None:
    code = "import pathlib, time; pathlib.Path({!r}).write_text(str(time.time())); time.sleep(0.1)"
    jobs = [
        job("late", code.format(str(tmp_path / "late")), "early"),
        job("early", code.format(str(tmp_path / "early"))),
    ]
    found = run(jobs, tmp_path / "logs")
    assert not any(e.error for e in found.values())
    early, late = (float((tmp_path / x).read_text()) for x in ("early", "late"))
    assert late >= early + 0.1


def test_a_failure_shows_the_end_of_its_log(tmp_path: Path) -> None:
    found = run([job("bad", "print('first'); raise SystemExit('the disk is full')")], tmp_path)
    assert found["bad"].error == "exit 1 | first | the disk is full"
    assert "first" in (tmp_path / "bad.log").read_text()


def test_processes_end_with_the_campaign(tmp_path: Path) -> None:
    """However the campaign ends: a generator closed early, or its process killed."""
    mark = tmp_path / "pid"
    sleeper = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    running = execute([job("quick", "pass"), job("slow", sleeper)], 2, tmp_path, PYTHON)
    next(running)
    pid = int(wait_for(mark))
    running.close()
    assert gone(pid)
    mark.unlink()
    code = (
        "import sys; from pathlib import Path\n"
        "from goldimask.campaign.executors import Job, execute\n"
        f"jobs = [Job('slow', ({sleeper!r},), Path())]\n"
        f"list(execute(jobs, 1, Path({str(tmp_path)!r}), (sys.executable, '-c')))\n"
    )
    master = subprocess.Popen([sys.executable, "-c", code])
    pid = int(wait_for(mark))
    master.send_signal(signal.SIGKILL)
    master.wait()
    assert gone(pid)


def wait_for(file: Path, seconds: float = 60.0) -> str:
    until = time.monotonic() + seconds
    while not (file.exists() and file.read_text()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return file.read_text()


def gone(pid: int, seconds: float = 30.0) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
            with open(f"/proc/{pid}/stat") as file:
                if file.read().rsplit(")", 1)[1].split()[0] == "Z":  # dead, not yet waited for
                    return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False


def test_a_slot_is_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert slots_of(None, 0, "cpu") == [{}] and slots_of(3, 0, "cpu") == [{}, {}, {}]
    eight = slots_of(None, 8, "cuda")
    assert [s["CUDA_VISIBLE_DEVICES"] for s in eight] == [str(i) for i in range(8)]
    pairs = slots_of(None, 8, "xpu", each=3)
    assert [s["ZE_AFFINITY_MASK"] for s in pairs] == ["0,1,2", "3,4,5"]
    assert len(slots_of(2, 8, "cuda")) == 2
    with pytest.raises(GoldimaskError, match="--gpus: 4"):
        slots_of(None, 2, "cuda", each=4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")  # of a scheduler
    assert visible({"CUDA_VISIBLE_DEVICES": "1"}) == {"CUDA_VISIBLE_DEVICES": "7"}


def test_fifty_jobs_never_exceed_their_slots_and_see_their_device(tmp_path: Path) -> None:
    code = (
        "import os, time; f = os.environ['SLOT'] + '-' + str(os.getpid())\n"
        f"p = os.path.join({str(tmp_path)!r}, f); os.mkdir(p)\n"
        f"n = len([x for x in os.listdir({str(tmp_path)!r}) if '-' in x])\n"
        "time.sleep(0.02); os.rmdir(p); assert n <= 2, n"
    )
    slots = [{"SLOT": "0"}, {"SLOT": "1"}]
    jobs = [job(f"j{i}", code) for i in range(50)]
    found = list(execute(jobs, slots, tmp_path / "logs", PYTHON))
    assert len(found) == 50 and not any(e.error for e in found)


def test_two_masters_share_the_work(tmp_path: Path) -> None:
    """Nothing runs twice: what one has claimed the other waits for, and finds done."""
    count = tmp_path / "count"
    code = f"import time; time.sleep(0.3); open({str(count)!r}, 'a').write('x')"
    jobs = [Job(f"j{i}", (code,), tmp_path / "cells" / f"c{i}", claim="train") for i in range(4)]
    done: set[str] = set()
    seen: list[Ended] = []

    def master() -> None:
        for ended in execute(jobs, 2, tmp_path / "logs", PYTHON, is_done=lambda j: j.name in done):
            done.add(ended.job.name)
            seen.append(ended)

    threads = [threading.Thread(target=master) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 8 and not any(e.error for e in seen)
    assert count.read_text() == "xxxx" and sum(e.ran for e in seen) == 4


def test_a_stopped_job_goes_back_into_the_queue(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    code = (
        f"import os, sys; m = {str(mark)!r}; there = os.path.exists(m); open(m, 'a')\n"
        "sys.exit(0 if there else 4)"
    )
    found = run([job("preempted", code), job("forever", "raise SystemExit(4)")], tmp_path)
    assert not found["preempted"].error
    assert found["forever"].error.startswith("exit 4")


def test_only_failures_are_remembered(tmp_path: Path) -> None:
    kill = "import os; os.kill(os.getpid(), 9)"
    run([job("bad", "raise SystemExit('no')"), job("killed", kill)], tmp_path)
    assert failure(tmp_path, "bad") == "exit 1 | no" and failure(tmp_path, "killed") is None
    run([job("bad", "pass")], tmp_path)
    assert failure(tmp_path, "bad") is None


def test_a_signal_halts_the_campaign_and_its_processes(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    sleeper = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def tell() -> None:
        wait_for(mark)
        os.kill(os.getpid(), signal.SIGUSR2)

    thread = threading.Thread(target=tell)
    thread.start()
    with pytest.raises(Halted, match="SIGUSR2") as error, halting():
        list(execute([job("slow", sleeper)], 1, tmp_path, PYTHON))
    thread.join()
    assert error.value.exit_code == 4 and gone(int(mark.read_text()))
