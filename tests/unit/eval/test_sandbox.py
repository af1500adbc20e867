"""The sandbox: right programs pass, wrong ones fail, hostile ones never pass and do no harm.

All hostile programs are bounded: few forks, short deadlines, small limits.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from goldimask.errors import GoldimaskError
from goldimask.eval.sandbox import Limits, Program, Sandbox, open_sandbox
from goldimask.eval.sandbox_runner import filter_program
from needs import need

LIMITS = Limits(memory=512 << 20, file=1 << 20, folder=4 << 20)
SHORT = replace(LIMITS, cpu=2, wall=6)  # for programs that are to be stopped


@pytest.fixture(params=["bubblewrap", "limits"], scope="module")
def box(request) -> Sandbox:
    if request.param == "bubblewrap":
        need("bubblewrap", shutil.which("bwrap") is not None, "apt-get install bubblewrap")
    try:
        return open_sandbox(True, request.param, LIMITS)
    except GoldimaskError as error:
        need(f"a sandbox in the mode '{request.param}'", False, str(error))
        raise


def statuses(box: Sandbox, programs: dict[str, Program]) -> dict[str, str]:
    outcomes = box.run_all(list(programs.values()), workers=4)
    return dict(zip(programs, (o.status for o in outcomes), strict=True))


def program(source: str, tests: str = "assert True", **options) -> Program:
    return Program(source, tests, **options)


ORDINARY = {
    "right": (program("def f(x): return x + 1", "assert f(1) == 2"), "pass"),
    "wrong": (program("def f(x): return x + 2", "assert f(1) == 2"), "fail"),
    "raises": (program("def f(x): return 1 / 0", "assert f(1) == 2"), "fail"),
    "missing name": (program("x = 1", "assert f(1) == 2"), "fail"),
    "syntax": (program("def f(x: return", "assert True"), "syntax error"),
    "null byte": (program("x = '\0'", "assert True"), "syntax error"),
    "nested": (program("(" * 5000, "assert True"), "syntax error"),
    "surrogate": (program("x = '\ud800'", "assert True"), "syntax error"),
    "tests broken": (program("x = 1", "assert ("), "fail"),
    "prelude": (
        program("def f(): return math.pi", "assert f() > 3", prelude="import math"),
        "pass",
    ),
    "dataclass": (
        program(
            "from dataclasses import dataclass\n@dataclass\nclass P:\n x: int",
            "assert P(1) == P(1)",
        ),
        "pass",
    ),
    "shadowed target": (
        program("def sum(a, b): return a * b", "assert sum(2, 3) == 6", names=("sum",)),
        "pass",
    ),
    "thread": (
        program(
            "import threading\nt = threading.Thread(target=print)\nt.start()\nt.join()\nx = 1",
            "assert x == 1",
        ),
        "pass",
    ),
    "own file": (
        program("open('mine', 'w').write('x')", "assert open('mine').read() == 'x'"),
        "pass",
    ),
    "released script": (
        program("if __name__ == '__main__':\n    x = 1", "assert x == 1", strict=False),
        "pass",
    ),
}


def test_ordinary_programs(box):
    if not (box.landlock or box.bubblewrap):
        pytest.skip("nothing can be written here, not even the private folder")
    expected = {name: status for name, (_, status) in ORDINARY.items()}
    assert statuses(box, {name: p for name, (p, _) in ORDINARY.items()}) == expected


HOSTILE = {
    "endless loop": "while True: pass",
    "sleep": "import time\ntime.sleep(60)",
    "fork bomb": "import os\nfor _ in range(8):\n    os.fork()",
    "many threads": "import threading, time\n"
    "for _ in range(300):\n    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()",
    "10 GB": "x = bytearray(10 * 10**9)",
    "list grows": "x = [0] * 10**6\nwhile True:\n    x += x",
    "write outside": "open('/var/tmp/goldimask-evil', 'w').write('x')",
    "write to tmp": "open('/tmp/goldimask-evil', 'w').write('x')",
    "write to shared memory": "open('/dev/shm/goldimask-evil', 'w').write('x')",
    "socket": "import socket\nsocket.socket().connect(('127.0.0.1', 9))",
    "unix socket": "import socket\nsocket.socket(socket.AF_UNIX).connect('\\0x')",
    "environment": "import os\nassert os.environ['GOLDIMASK_SECRET']",
    "parent's environment": "import os\nopen(f'/proc/{os.getppid()}/environ', 'rb').read()",
    "kill the parent": "import os\nos.kill(os.getppid(), 9)",
    "kill everything": "import os\nos.kill(-1, 9)",
    "kill the group": "import os\nos.killpg(0, 9)",
    "print 1 GB": "for _ in range(10**6):\n    print('x' * 1000)",
    "print, caught": "try:\n    for _ in range(10**6):\n        print('x' * 1000)\n"
    "except OSError:\n    pass",
    "fill the disk": "i = 0\nwhile True:\n    i += 1\n    open(f'f{i}', 'wb').write(b'x' * 900000)",
    "subprocess": "import subprocess\nsubprocess.run(['true'], check=True)",
    "exec": "import os\nos.execv('/bin/true', ['true'])",
    "ptrace": "import ctypes, os\nassert ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0",
    "raise limits": "import resource\nresource.setrlimit(resource.RLIMIT_CPU, (-1, -1))",
    "crash": "import ctypes\nctypes.string_at(0)",
}
CHEATS = {
    "exit": "import sys\nsys.exit(0)",
    "hard exit": "import os\nos._exit(0)",
    "exit at the call": "import os\ndef f(x): os._exit(0)",
    "quit at the call": "def f(x): raise SystemExit(0)",
    "exit handler": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return 1 / 0",
    "assertion class": "import builtins\nbuiltins.AssertionError = Exception\nf = len",
    "patched functions": "import builtins\nbuiltins.abs = builtins.len = lambda x: 0\n"
    "abs = lambda x: 0\ndef f(x): return -5",
    "patched module": "import math\nmath.fabs = lambda x: 0\ndef f(x): return -5",
    "equals everything": "class A:\n    def __eq__(self, o): return True\ndef f(x): return A()",
    "equals inside": "class A:\n    def __eq__(self, o): return True\ndef f(x): return [A()]",
    "trace": "import sys\ndef skip(frame, event, arg):\n"
    "    if frame.f_code.co_filename == '<tests>':\n        frame.f_lineno = 99\n    return skip\n"
    "sys.settrace(skip)\ndef f(x): return 0",
    "own check": "def check(f): pass\ndef f(x): return 0",
    "forged report": "import os\nfor n in range(3, 64):\n    try:\n"
    '        os.write(n, b\'{"status": "pass", "detail": "", "token": ""}\\n\')\n'
    "    except OSError:\n        pass\nos._exit(0)",
    "closed report": "import os\nos.closerange(3, 64)\ndef f(x): return 2",
}
TESTS = """
import math
def check(g):
    assert type(g(1)) not in (int, float) or abs(g(1) - 2) < 1e-6
    assert math.fabs(-5) == 5
    assert g(1) == 2 or g(1) == [2]
check(f)
"""


def needs_walls(box: Sandbox) -> None:
    if not (box.bubblewrap or (box.seccomp and box.landlock)):
        pytest.skip("this machine has neither bubblewrap nor seccomp with Landlock")


def test_hostile_programs_never_pass_and_leave_nothing(box, monkeypatch):
    needs_walls(box)
    monkeypatch.setenv("GOLDIMASK_SECRET", "1")
    before = set(os.listdir(tempfile.gettempdir()))
    short = replace(box, limits=SHORT)
    found = statuses(short, {name: program(source) for name, source in HOSTILE.items()})
    assert "pass" not in found.values(), found
    assert found["endless loop"] == found["sleep"] == "timeout"
    assert found["10 GB"] == "memory" and found["list grows"] in ("memory", "timeout")
    assert found["print 1 GB"] == found["print, caught"] == "killed"
    assert found["fill the disk"] == found["crash"] == "killed"
    for place in ("/var/tmp", "/tmp", "/dev/shm"):
        assert not (Path(place) / "goldimask-evil").exists()
    left = {
        x for x in set(os.listdir(tempfile.gettempdir())) - before if x.startswith("goldimask-")
    }
    assert not {x for x in left if (Path(tempfile.gettempdir()) / x / "f1").exists()}


def test_cheating_programs_never_pass(box):
    found = statuses(box, {name: program(source, TESTS) for name, source in CHEATS.items()})
    assert "pass" not in found.values(), found
    assert found["exit"] == found["hard exit"] == "killed"
    honest = program("def f(x): return 2", TESTS)
    assert box.run(honest).passed


def test_environment_is_empty_and_user_is_not_root(box):
    source = "import os\nnames = set(os.environ) - {'PWD', 'LC_CTYPE'}\nuser = os.geteuid()"
    assert box.run(program(source, "assert names == set() and user != 0")).passed


def test_home_is_not_readable(box, tmp_path):
    needs_walls(box)
    (tmp_path / "secret").write_text("x")
    tmp_path.chmod(0o755)
    assert box.run(program(f"open({str(tmp_path / 'secret')!r}).read()")).status == "fail"


def test_timeout_kills_the_tree():
    box = open_sandbox(True, "limits", Limits(cpu=1, wall=2))
    outcome = box.run(
        program("import os, time\ntry:\n    os.fork()\nexcept OSError:\n    pass\ntime.sleep(50)")
    )
    assert outcome.status == "timeout" and outcome.seconds < 40


def test_without_permission_nothing_runs():
    with pytest.raises(GoldimaskError, match="allow-code-execution"):
        open_sandbox(False)


def test_description_names_the_gaps():
    text = Sandbox(None, LIMITS, landlock=False, seccomp=False).describe()
    assert "NOT prevented" in text and "network" in text
    assert "NOT prevented" not in Sandbox("bwrap", LIMITS).describe()


def test_a_kernel_without_landlock_gets_no_writes(box):
    """The fallback filter: even the private folder cannot be written."""
    if box.bubblewrap or not box.seccomp:
        pytest.skip("for the mode without bubblewrap")
    if os.geteuid() == 0:
        pytest.skip("as root the sandbox may rely on Landlock to read its Python")
    plain = Sandbox(None, LIMITS, landlock=False)
    assert plain.run(program("open('mine', 'w')")).status == "fail"
    assert plain.run(program("x = 1", "assert x == 1")).passed


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize("writes", [True, False])
def test_filter_verdicts(machine, writes):
    """The filter, run by an interpreter of its five instructions."""
    rows = filter_program(writes, machine, 777)
    arm = machine == "aarch64"

    def verdict(number: int, *arguments: int) -> int:
        data = {0: number, 4: 0xC00000B7 if arm else 0xC000003E}
        data |= {16 + 8 * i: a for i, a in enumerate((*arguments, 0, 0, 0, 0, 0, 0))}
        at, value = 0, 0
        while True:
            code, yes, no, constant = rows[at]
            at += 1
            if code == 0x20:
                value = data[constant]
            elif code == 0x06:
                return constant
            elif code == 0x05:
                at += constant
            else:
                hit = {
                    0x15: value == constant,
                    0x35: value >= constant,
                    0x45: bool(value & constant),
                }
                at += yes if hit[code] else no

    allow, eperm, enosys, eacces = 0x7FFF0000, 0x00050001, 0x00050026, 0x0005000D
    socket, clone, kill, openat, unlinkat = (
        (198, 220, 129, 56, 35) if arm else (41, 56, 62, 257, 263)
    )
    assert verdict(socket, 2) == eperm and verdict(socket, 1) == eperm
    assert verdict(clone, 0x10F00) == allow and verdict(clone, 17) == eperm
    assert verdict(kill, 777) == allow and verdict(kill, 1) == eperm
    assert verdict(435) == enosys
    assert verdict(63 if arm else 0) == allow  # read
    assert verdict(openat, 0, 0, os.O_RDONLY) == allow
    assert verdict(openat, 0, 0, os.O_WRONLY | os.O_CREAT) == (allow if writes else eperm)
    assert verdict(unlinkat) == (allow if writes else eacces)


def test_killed_parent_takes_the_program_along():
    """A program must not outlive the process that started it."""
    script = (
        "from goldimask.eval.sandbox import *\n"
        "box = open_sandbox(True, 'limits', Limits(cpu=20, wall=40))\n"
        "print('ready', flush=True)\n"
        "box.run(Program('import time\\ntime.sleep(39.125)', 'assert True'))\n"
    )
    with tempfile.TemporaryDirectory() as folder:  # a killed parent cannot tidy up
        os.chmod(folder, 0o755)
        parent = subprocess.Popen(
            [sys.executable, "-c", script],
            stdout=subprocess.PIPE,
            env={**os.environ, "TMPDIR": folder},
        )
        assert parent.stdout and parent.stdout.readline() == b"ready\n"
        child = wait_for(lambda: children_of(parent.pid))[0]
        wait_for(lambda: "NoNewPrivs:\t1" in Path(f"/proc/{child}/status").read_text())
        parent.kill()
        parent.wait()
        parent.stdout.close()
        wait_for(lambda: not Path(f"/proc/{child}").exists())


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [int(x) for x in found if b"Landlock" in Path(f"/proc/{x}/cmdline").read_bytes()]


def wait_for(condition: Callable[[], Any]) -> Any:
    for _ in range(600):
        if value := condition():
            return value
        time.sleep(0.05)
    pytest.fail("waited half a minute in vain")
