"""Jobs in processes of their own: order, failures, kills, the end of the campaign."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from goldimask.campaign.executors import Ended, Job, execute

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
