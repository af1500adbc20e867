"""No hostile program passes, harms anything or ends an evaluation; the corpus is `hostile`.

It runs in both modes as whoever runs the tests, and in part once more as another user if that is
root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from goldimask.errors import GoldimaskError
from goldimask.eval import sandbox
from goldimask.eval.sandbox import Program, Sandbox, open_sandbox
from needs import need
from unit.eval import hostile
from unit.eval.hostile import (
    ATTACKS,
    CATCH,
    CHEATS,
    CLOSE,
    EXHAUSTING,
    FALSE_PASSES,
    LIMITS,
    LIST,
    MESSES,
    TESTS,
    UNCOUNTED,
    attack,
    attacks,
    run,
)


@pytest.fixture(params=["bubblewrap", "limits"], scope="module")
def box(request) -> Sandbox:
    if request.param == "bubblewrap":
        need("bubblewrap", shutil.which("bwrap") is not None, "apt-get install bubblewrap")
    try:
        found = open_sandbox(True, request.param, LIMITS)
    except GoldimaskError as error:
        need(f"a sandbox in the mode '{request.param}'", False, str(error))
        raise
    if not (found.seccomp and (found.bubblewrap or found.landlock)):
        pytest.skip("this machine has neither bubblewrap nor Landlock, or no seccomp")
    return found


def test_right_programs_pass_the_tests_used_here(box):
    right = ("def f(x): return x * x", "def f(x): return [x * x]")
    programs = [Program(right[t is LIST], t, names=("f",)) for t in (TESTS, CLOSE, CATCH, LIST)]
    programs.append(Program("def f(x): raise ValueError(x)", "try: f(2)\nexcept ValueError: pass"))
    programs.append(Program(attack("pass"), TESTS))
    assert [o.status for o in box.run_all(programs)] == ["pass"] * 6


def test_wrong_programs_never_pass():
    """Judge and program are the same in both modes; `test_another_user` has the other one."""
    run(open_sandbox(True, "limits", LIMITS), FALSE_PASSES | CHEATS)


@pytest.mark.real
def test_wrong_programs_never_pass_in_bubblewrap(box):
    if box.bubblewrap:
        run(box, FALSE_PASSES | CHEATS)


def test_a_program_that_takes_all_threads_takes_no_verdict_of_others(box):
    right = Program("import numpy\ndef f(x): return x * x", TESTS, names=("f",))
    hog = EXHAUSTING["all threads"].replace("99", "4")
    found = box.run_all([Program(hog, TESTS, names=("f",)), *[right] * 5], workers=2)
    assert [o.status for o in found] == ["fail"] + ["pass"] * 5, found


@pytest.mark.real
def test_no_program_ends_the_evaluation_or_takes_more_than_its_share(box):
    started = time.monotonic()
    found = run(box, EXHAUSTING)
    assert time.monotonic() - started < 60
    assert {found[n].status for n in ("endless loop", "sleep", "deaf loop")} == {"timeout"}
    assert found["10 GB"].status == "memory"
    for name in ("output", "output, caught", "many files", "many nested folders"):
        assert found[name].status == "killed", (name, found[name])


def test_attacks_on_machine_and_user_are_refused(box, tmp_path, monkeypatch):
    monkeypatch.setenv("GOLDIMASK_SECRET", "1")
    secret = tmp_path / "secret"
    secret.write_text("x")
    os.utime(secret, (1, 1))
    for folder in (tmp_path, *tmp_path.parents):
        if os.geteuid() == 0 and folder.name.startswith("pytest"):
            folder.chmod(0o755)
    before = (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0))
    run(box, attacks(secret))
    status = secret.stat()
    assert (status.st_mode & 0o777 != 0o777, status.st_mtime, secret.read_text()) == (True, 1, "x")
    assert before == (os.getpriority(os.PRIO_PROCESS, 0), os.sched_getaffinity(0))
    for place in ("/var/tmp", "/tmp", "/dev/shm", "/"):
        assert not (Path(place) / "goldimask-evil").exists()


def test_nothing_escapes_who_counts_the_folder(box):
    """Where the folder is a file system of its own there is nothing to be counted."""
    if not box.sized:
        run(box, {name: attack(code) for name, code in UNCOUNTED.items()})


def test_folders_go_away_whatever_their_modes(box):
    run(box, {name: code + "\ndef f(x): return 0" for name, code in MESSES.items()})


SCRIPT = """
import sys, tempfile
from pathlib import Path
mode, home, whole = sys.argv[1], Path(sys.argv[2]), sys.argv[3] == "whole"
sys.path[:0] = [str(home / "code")]
from goldimask.eval.sandbox import Program, Sandbox, open_sandbox
import hostile
tempfile.tempdir = str(home)
box = open_sandbox(True, mode, hostile.LIMITS)
secret = home / "secret"
secret.write_text("x")
secret.chmod(0o600)
programs = hostile.attacks(secret) | hostile.MESSES
if not box.sized:
    programs |= {name: hostile.attack(code) for name, code in hostile.UNCOUNTED.items()}
if whole:
    programs |= hostile.FALSE_PASSES | hostile.CHEATS | hostile.EXHAUSTING
found = hostile.run(box, programs)
if not box.bubblewrap:  # a kernel without Landlock: files can be read, nothing else
    reading = {"a file of the user", "password file", "the harness's memory"}
    programs = {n: p for n, p in hostile.attacks(secret).items() if n not in reading}
    plain = Sandbox(None, hostile.LIMITS, landlock=False)
    hostile.run(plain, programs)
    assert plain.run(Program("open('mine', 'w')", "assert True")).status == "fail"
    assert plain.run(Program("x = 1", "assert x == 1")).passed
assert secret.stat().st_mode & 0o777 == 0o600 and secret.read_text() == "x"
print(len(found))
"""


@pytest.mark.parametrize("share", ["attacks", pytest.param("whole", marks=pytest.mark.real)])
def test_another_user(box, share):
    """Once more as an ordinary user, whose own files Landlock alone would not protect."""
    if os.geteuid() != 0:
        pytest.skip("the whole corpus has run as an ordinary user")
    user, mode = 54321, "bubblewrap" if box.bubblewrap else "limits"
    done = None
    for python in (sys.executable, "/usr/bin/python3"):  # root's own Python may be closed to others
        with tempfile.TemporaryDirectory(prefix="hostile-user-") as home:
            os.chown(home, user, user)
            package = Path(sandbox.__file__).parents[1]
            hidden = shutil.ignore_patterns("models", "__pycache__")
            shutil.copytree(package, f"{home}/code/goldimask", ignore=hidden)
            shutil.copy(hostile.__file__, f"{home}/code")
            with suppress(OSError):
                done = subprocess.run(
                    [python, "-B", "-c", SCRIPT, mode, home, share],
                    capture_output=True,
                    text=True,
                    user=user,
                    group=user,
                    extra_groups=[],
                    cwd="/",
                    env={"PATH": os.environ["PATH"]},
                )
                break
    need("a Python that another user can reach", done is not None, "apt-get install python3")
    assert done is not None
    if "no way to run programs" in done.stderr:
        need("a sandbox for another user", False, done.stderr[-300:])
    assert done.returncode == 0, done.stderr[-3000:]
    expected = len(ATTACKS) + len(MESSES) + (0 if box.sized else len(UNCOUNTED))
    if share == "whole":
        expected += len(FALSE_PASSES) + len(CHEATS) + len(EXHAUSTING)
    assert int(done.stdout) == expected
