"""The sandbox: right programs pass, wrong ones fail; what is in force and what is described.

Hostile programs have a file of their own.
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
from goldimask.eval.sandbox_folder import overgrown, remove
from goldimask.eval.sandboxed import wire
from goldimask.eval.sandboxed.syscalls import filter_program
from needs import need

LIMITS = Limits(memory=512 << 20, file=1 << 20, folder=4 << 20)


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
    "objects": (
        program(
            "class Node:\n    def __init__(self, x): self.x, self.next = x, None\n"
            "def f(n): return n.x + (f(n.next) if n.next else 0)",
            "a = Node(1)\na.next = Node(2)\nassert f(a) == 3 and a.next.x == 2 and a == a\n"
            "assert a != Node(1) and f.__class__ is not int",
        ),
        "pass",
    ),
    "plain values": (
        program(
            "def f(x): return x",
            "for x in (None, True, 0, -1, 2**200, 1.5, float('inf'), 1j, 'é\\ud800', b'\\0', [], "
            "(1,), {1}, frozenset({(2,)}), {'a': [{}]}, int, [[[()]]]):\n"
            "    assert f(x) == x and type(f(x)) is type(x)\n"
            "assert f(float('nan')) != f(float('nan'))",
        ),
        "pass",
    ),
    "kin of plain values": (
        program(
            "from collections import Counter, OrderedDict, defaultdict, namedtuple\n"
            "from decimal import Decimal\nfrom enum import IntEnum\n"
            "from fractions import Fraction\n"
            "def f(): return [Counter('aa'), OrderedDict(a=2), defaultdict(int, a=2)]\n"
            "def g(): return namedtuple('P', 'x')(1), IntEnum('E', 'A').A\n"
            "def h(): return Decimal('0.5'), Fraction(1, 2)\n"
            "def i():\n    yield 1\n    yield 2\n"
            "import re\ndef m(x): return re.match('a', x)",
            "assert f() == [{'a': 2}] * 3 and g() == ((1,), 1) and h() == (0.5, 0.5)\n"
            "assert list(i()) == [1, 2] and m('a') and not m('b') and m('ab').group(0) == 'a'\n"
            "assert len(m('a').regs) == 1",
        ),
        "pass",
    ),
    "its exceptions": (
        program(
            "class Mine(Exception): pass\ndef f(e): raise {1: ValueError, 2: Mine}[e]('no')",
            "for kind, e in ((ValueError, 1), (Exception, 2), (KeyError, 3)):\n"
            "    try: f(e)\n    except kind: continue\n    assert False",
        ),
        "pass",
    ),
    "module that only the program imports": (
        program("import math\ndef f(): return math.pi", "assert f() == math.pi"),
        "pass",
    ),
    "arguments are copies": (
        program("def f(x):\n    x.clear()\n    return 0", "x = [1]\nassert f(x) == 0 and x == [1]"),
        "pass",
    ),
    "helper of the prelude": (
        program(
            "def h(x): return 4\ndef f(x): return 0",
            "assert h(f(1)) == 4",
            prelude="def h(x): return x",
            names=("f",),
        ),
        "fail",
    ),
    "same draws": (
        program(
            "def f(x): return x", "import random\nassert random.random() == 0.8444218515250481"
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
        program("if __name__ == '__main__':\n    x = 1", "assert x == 1", module="__main__"),
        "pass",
    ),
}


def test_ordinary_programs(box):
    if not (box.landlock or box.bubblewrap):
        pytest.skip("nothing can be written here, not even the private folder")
    expected = {name: status for name, (_, status) in ORDINARY.items()}
    assert statuses(box, {name: p for name, (p, _) in ORDINARY.items()}) == expected


def test_environment_is_empty_and_user_is_not_root(box):
    source = (
        "import os\nnames = {n for n in os.environ if n[-12:] != '_NUM_THREADS'} - {'PWD', "
        "'LC_CTYPE'}\nuser = os.geteuid()"
    )
    assert box.run(program(source, "assert names == set() and user != 0")).passed


def test_timeout_kills_the_tree():
    box = open_sandbox(True, "limits", Limits(cpu=1, wall=2))
    outcome = box.run(
        program("import os, time\ntry:\n    os.fork()\nexcept OSError:\n    pass\ntime.sleep(50)")
    )
    assert outcome.status == "timeout" and outcome.seconds < 40


def test_an_older_bubblewrap_shares_a_folder_that_is_counted(box):
    """Before 0.7 it makes no file system of a given size."""
    if not box.sized:
        pytest.skip("for a bubblewrap that can")
    found = statuses(
        replace(box, sized=False),
        {
            "right": program("open('mine', 'w').write('x')\nx = 1", "assert x == 1"),
            "hides": program("import os\nos.unlink(os.open('g', 66) and 'g')"),
            "grows": program(
                "import time\nfor i in range(9): open(f'{i}', 'wb').write(b'x' * 900000)\n"
                "time.sleep(9)"
            ),
        },
    )
    assert found == {"right": "pass", "hides": "fail", "grows": "killed"}


def test_without_permission_nothing_runs():
    with pytest.raises(GoldimaskError, match="allow-code-execution"):
        open_sandbox(False)


def test_description_names_the_gaps():
    text = Sandbox(None, LIMITS, landlock=False, seccomp=False).describe()
    assert "NOT prevented" in text and "network" in text
    assert "NOT prevented" not in Sandbox("bwrap", LIMITS).describe()


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
@pytest.mark.parametrize(("writes", "private"), [(True, True), (True, False), (False, False)])
def test_filter_verdicts(machine, writes, private):
    """The filter, run by an interpreter of its five instructions."""
    rows = filter_program(machine, 777, writes, private)
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
    fcntl, ioctl, fchmodat, fallocate = (25, 29, 53, 47) if arm else (72, 16, 268, 285)
    assert [verdict(fcntl, 0, x) for x in (3, 4, 1030)] == [allow] * 3
    assert [verdict(fcntl, 0, x) for x in (8, 10, 15, 1024, 1026, 1031)] == [eperm] * 6
    assert verdict(ioctl, 0, 0x5401) == allow and verdict(ioctl, 0, 0x40305828) == 0x00050019
    assert verdict(fchmodat) == (allow if private else eperm) and verdict(fallocate) == eperm
    assert verdict(openat, 0, 0, 0x410000) == (allow if private else eperm)


def test_values_survive_the_wire():
    value = [None, {"a": (1, -(2**70), b"x", {frozenset({1.5})})}, "\ud800", 2j, [], {}]
    assert wire.decode(wire.encode(value, repr), repr) == value
    for data in (b"", b"l", b"l\2\0\0\0N", b"NN", b"?\0\0\0\0", b"e\1\0\0\0l\0\0\0\0", b"f123"):
        with pytest.raises(Exception):  # noqa: B017
            wire.decode(data, repr)
    deep = b"l\1\0\0\0" * 100_000 + b"N"
    with pytest.raises(wire.Unsendable, match="deep"):
        wire.decode(deep, repr)
    cycle: list[Any] = []
    cycle.append(cycle)
    for bad in (cycle, b"x" * (wire.MOST + 1)):
        with pytest.raises(wire.Unsendable):
            wire.encode(bad, repr)


def test_any_folder_is_counted_and_removed(tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    assert not overgrown(str(folder), 1 << 20, 10)
    (folder / "small").write_bytes(b"x")
    (folder / "link").symlink_to("/")
    assert not overgrown(str(folder), 1 << 20, 2) and overgrown(str(folder), 1 << 20, 1)
    (folder / "large").write_bytes(b"x" * (1 << 20))
    assert overgrown(str(folder), 1 << 20, 10)
    here = os.open(".", os.O_RDONLY)
    try:
        os.chdir(folder)
        for _ in range(60):
            os.mkdir("a" * 200)
            os.chdir("a" * 200)
        os.mkdir("0", 0)
        os.chmod(".", 0)
    finally:
        os.chdir(here)
        os.close(here)
    assert overgrown(str(folder), 1 << 30, 1 << 30)  # deeper than a path can be long
    (folder / "0").mkdir()
    os.mkdir(os.fsencode(folder) + b"/\xff\n")
    remove(str(folder))
    assert not folder.exists()


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
    return [int(x) for x in found if b"sandboxed" in Path(f"/proc/{x}/cmdline").read_bytes()]


def wait_for(condition: Callable[[], Any]) -> Any:
    for _ in range(600):
        if value := condition():
            return value
        time.sleep(0.05)
    pytest.fail("waited half a minute in vain")
