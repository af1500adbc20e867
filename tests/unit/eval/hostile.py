"""Hostile programs: a pass means that an attack has worked, so that none may pass.

A program that cheats computes something wrong; one that attacks the machine computes the right
thing only if its attack has succeeded. Used by `test_sandbox_hostile`. Imports
nothing but the sandbox, so that any Python of the system can run it.
"""

from __future__ import annotations

import os
import tempfile
import textwrap
from pathlib import Path

from goldimask.eval.sandbox import STATUSES, Limits, Outcome, Program, Sandbox

LIMITS = Limits(cpu=1, wall=8, memory=512 << 20, file=1 << 20, folder=4 << 20)
TESTS = "assert f(2) == 4\nassert f(3) == 9"
CLOSE = "assert abs(f(2) - 4) < 1e-6\nassert 0 <= f(3) - 9 < 1e-6"
CATCH = "try:\n    f(2)\nexcept:\n    pass\nelse:\n    assert f(2) == 4"
LIST = "assert f(2) == [4]\nassert len(f(3)) == 1 and f(3)[0] == 9"


def attack(code: str) -> str:
    """Right if the code runs through."""
    body = textwrap.indent(textwrap.dedent(code).strip(), "    ")
    return (
        "import ctypes, os, sys\ncall = ctypes.CDLL(None, use_errno=True).syscall\nok = False\n"
        f"try:\n{body}\n    ok = True\nexcept BaseException:\n    pass\n"
        "def f(x): return x * x if ok else 0\n"
    )


def value(code: str, of: str = "") -> str:
    """A function that returns an object of a class that cheats."""
    return f"class A({of}):\n{textwrap.indent(code, '    ')}\ndef f(x): return A()"


TRUE = "lambda *a: True"
PIPE = """
import sys, os, struct
def pipe():
    frame = sys._getframe()
    while 'pipe' not in frame.f_locals or callable(frame.f_locals['pipe']): frame = frame.f_back
    return frame.f_locals['pipe']
def send(data): os.write(pipe().write, struct.pack('<I', len(data)) + data)
"""
FRAMES = """
import sys, gc
found, frame = [], sys._getframe()
while frame: found.append(frame.f_locals); frame = frame.f_back
found += [o for o in gc.get_objects() if type(o) is dict]
"""
FALSE_PASSES = {  # passed before the judge had a process of its own
    "patched comparison": "import __main__\n__main__.same = lambda a, b: True\ndef f(x): return 0",
    "patched from a thread": "import threading, __main__\ndef w():\n"
    "    while True: __main__.same = lambda a, b: True\n"
    "threading.Thread(target=w, daemon=True).start()\ndef f(x): return 0",
    "patched locations": "import ast\nast.fix_missing_locations = lambda t: ast.parse('pass')\n"
    "def f(x): return 0",
    "patched visitor": "import ast\nast.NodeTransformer.visit = lambda s, t: ast.parse('pass')\n"
    "def f(x): return 0",
    "token in the frames": "import json\n" + FRAMES + "for d in found:\n"
    "    if 'token' in d and 'report' in d:\n        import os\n"
    "        line = {'status': 'pass', 'detail': '', 'token': d['token']}\n"
    "        os.write(d['report'], (json.dumps(line) + '\\n').encode()); os._exit(0)",
    "token in the garbage": "import gc, json, os\nfor d in gc.get_objects():\n"
    "    if type(d) is dict and 'token' in d and 'report' in d and 'tests' in d:\n"
    "        line = {'status': 'pass', 'detail': '', 'token': d['token']}\n"
    "        os.write(d['report'], (json.dumps(line) + '\\n').encode()); os._exit(0)",
    "tests in the frames": FRAMES + "import re\ntexts = [t for d in found for x in "
    "[d, *[v for v in list(d.values()) if type(v) is dict]] for t in list(x.values()) "
    "if type(t) is str]\nfind = re.compile(r'f\\((\\d)\\) == (\\d)').findall\n"
    "hits = dict(h for t in texts for h in find(t))\n"
    "def f(x): return int(hits[str(x)])",
    "equal but to the sentinel": value("def __eq__(s, o): return type(o).__name__ != 'Sentinel'"),
    "equal to integers": value("def __eq__(s, o): return isinstance(o, int)", "int"),
}
CHEATS = {
    "equal to everything": value(f"__eq__ = {TRUE}\n__hash__ = None"),
    "wrong": "def f(x): return 0",
    "exit": "import sys\nsys.exit(0)",
    "hard exit": "import os\nos._exit(0)",
    "exit at the call": "import os\ndef f(x): os._exit(0)",
    "quit at the call": "def f(x): raise SystemExit(0)",
    "death, caught": ("import os\ndef f(x): os._exit(0)", CATCH),
    "quit, caught": ("def f(x): raise SystemExit(0)", CATCH),
    "exit handler": "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return 1 / 0",
    "exit hook": "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\ndef f(x): return 1 / 0",
    "print a pass": "print('pass\\t')\ndef f(x): return 0",
    "a pass into every descriptor": "import os\nfor n in range(64):\n    try:\n"
    "        os.write(n, b'1 1\\npass\\t\\n'); os.write(n, b'\\4\\0\\0\\0pass')\n"
    "    except OSError: pass\ndef f(x): return 0",
    "brackets into every descriptor": "import os\nfor n in range(3, 64):\n    try:\n"
    "        os.write(n, b'[' * 60000 + b'\\n')\n    except OSError: pass\ndef f(x): return x * x",
    "digits into every descriptor": "import os\nfor n in range(3, 64):\n    try:\n"
    "        os.write(n, b'9' * 6000 + b'\\n')\n    except OSError: pass\ndef f(x): return x * x",
    "assertion class": "import builtins\nbuiltins.AssertionError = Exception\ndef f(x): return 0",
    "patched built-ins": ("import builtins\nbuiltins.abs = lambda x: 0\nabs = lambda x: 0\n"
                          "def f(x): return -5", CLOSE),
    "patched module": ("import math\nmath.isclose = lambda *a, **k: True\ndef f(x): return 0",
                       "import math\nassert math.isclose(f(2), 4)"),
    "module of its own": ("import sys\nclass math: isclose = lambda *a, **k: True\n"
                          "sys.modules['math'] = math\ndef f(x): return 0",
                          "assert math.isclose(f(2), 4)"),
    "trace": "import sys\nsys.settrace(lambda *a: None)\nsys.setprofile(print)\ndef f(x): return 0",
    "own check": ("def check(f): pass\ndef f(x): return 0",
                  "def check(g):\n    assert g(2) == 4\ncheck(f)"),
    "patched wire": "import sys\nw = sys.modules['sandboxed.wire']\nw.decode = w.encode = print\n"
    "def f(x): return 0",
    "patched judge": "import sys\nj = sys.modules['sandboxed.judge']\n"
    "j.verdict = lambda *a: ('pass', '')\nj.Judge.verdict = ('pass', '')\ndef f(x): return 0",
    "the judge's own report": "import sys\nj, w = (sys.modules['sandboxed.' + x] for x in "
    "('judge', 'wire'))\nfor n in range(3, 64):\n    try: j.os.write(n, b'1 1\\npass\\t\\n')\n"
    "    except OSError: pass\nj.os._exit(0)",
    "arithmetic": (value("__sub__ = __rsub__ = lambda s, o: 0\n__abs__ = lambda s: 0\n"
                         f"__lt__ = __le__ = __gt__ = __ge__ = {TRUE}"), CLOSE),
    "learns from arithmetic": (value("__rsub__ = __sub__ = lambda s, o: o - o"), CLOSE),
    "float that lies": (value("__float__ = lambda s: 4.0\n__sub__ = lambda *a: 0.0", "float"),
                        CLOSE),
    "not a number": ("def f(x): return float('nan')", CLOSE),
    "text that equals": (value(f"__eq__ = {TRUE}\n__hash__ = str.__hash__", "str"), TESTS),
    "list that equals": (value(f"__eq__ = {TRUE}\n__len__ = lambda s: 1", "list"), LIST),
    "equal inside": ("class A:\n    __eq__ = lambda s, o: True\ndef f(x): return [A()]", LIST),
    "dict that answers": (value("def __missing__(s, k): return 9\n__len__ = lambda s: 1", "dict"),
                          LIST),
    "tuple for a list": ("def f(x): return (x * x,)", LIST),
    "class that lies": value("__class__ = property(lambda s: int)\n__index__ = lambda s: 4"),
    "numpy that lies": "class A:\n    shape = ()\n    def item(s): return s\n"
    "A.__module__ = 'numpy'\ndef f(x): return A()",
    "module as a value": "import sys\ndef f(x): return sys",
    "type as a value": "def f(x): return int",
    "endless generator": "import itertools\ndef f(x): return itertools.count()",
    "cycle": "a = []\na.append(a)\ndef f(x): return a",
    "deep value": "a = []\nfor _ in range(100000): a = [a]\ndef f(x): return a",
    "large value": "def f(x): return [0] * 10**7",
    "error without text": "class E(Exception):\n    def __str__(s): raise s\ndef f(x): raise E",
    "error that ends all": "class E(BaseException): pass\ndef f(x): raise E",
    "interrupt": "def f(x): raise KeyboardInterrupt",
    "its own assertion": "def f(x): raise AssertionError",
    "odd code error": "def f(x): raise UnicodeDecodeError('a', b'', 0, 1, 'x')",
    "answers ahead": PIPE + "send(b't\\2\\0\\0\\0s\\5\\0\\0\\0valueT')\n" * 3
    + "def f(x): return 0",
    "deep frame": PIPE + "send(b'l\\1\\0\\0\\0' * 100000 + b'N')\ndef f(x): return x * x",
    "endless frame": PIPE + "os.write(pipe().write, b'\\xff' * 60000)\ndef f(x): return x * x",
    "cut frame": PIPE + "os.write(pipe().write, b'\\9\\0\\0\\0l')\nos._exit(0)",
    "long count": PIPE + "send(b'l\\xff\\xff\\xff\\x7f')\ndef f(x): return x * x",
    "unhashable part": PIPE + "send(b'e\\1\\0\\0\\0l\\0\\0\\0\\0')\ndef f(x): return x * x",
    "any module": PIPE + "send(b't\\2\\0\\0\\0s\\5\\0\\0\\0valuem\\x0b\\0\\0\\0antigravity')",
    "colliding numbers": PIPE + "n = 30000\nsend(b'e' + struct.pack('<I', n) + b''.join("
    "b'i\\x0c\\0\\0\\0' + (i * (2**61 - 1)).to_bytes(12, 'little') for i in range(n)))",
    "flood": PIPE + "while True: os.write(pipe().write, b'\\1\\0\\0\\0N' * 9000)",
    "flood from a thread": PIPE + "import threading\np = pipe().write\ndef w():\n"
    "    while True: os.write(p, b'\\1\\0\\0\\0N')\n"
    "threading.Thread(target=w, daemon=True).start()\ndef f(x): return x * x",
    "closed descriptors": "import os\nos.closerange(0, 64)\ndef f(x): return x * x",
    "pipe over pipe": "import os\na, b = os.pipe()\nfor n in range(3, 12):\n    os.dup2(b, n)\n"
    "def f(x): return x * x",
    "a module beside the tests": ("open('random.py', 'w').write('def randint(*a): return 0')\n"
                                  "def f(x): return 0",
                                  "import random\nassert f(random.randint(2, 2)) == 4"),
    "fraction by zero": PIPE + "send(b't\\2\\0\\0\\0s\\5\\0\\0\\0valuer\\2\\0\\0\\0' + "
    "b'i\\1\\0\\0\\0\\1i\\1\\0\\0\\0\\0')\ndef f(x): return x * x",
    "fraction of three": PIPE + "send(b'r\\3\\0\\0\\0NNN')\ndef f(x): return x * x",
    "fraction without end": "from fractions import Fraction\nclass A(Fraction):\n"
    "    numerator = 3 ** 4000000\n    denominator = 7 ** 3000000\ndef f(x): return A()",
    "decimal without end": ("from decimal import Decimal\ndef f(x): return Decimal('1e999999999')",
                            "assert int(f(2)) == 4"),
    "decimal that is none": PIPE + "send(b'q\\3\\0\\0\\0abc')\ndef f(x): return x * x",
    "a million sets": PIPE + "n = 3000000\n"
    "send(b'l' + struct.pack('<I', n) + b'e\\0\\0\\0\\0' * n)",
    "an answer of no kind": PIPE + "send(b't\\1\\0\\0\\0s\\4\\0\\0\\0pass')\ndef f(x): return 0",
    "a verdict as its error": "class E(Exception): pass\nE.__name__ = 'pass\\tx\\n1 1\\npass'\n"
    "def f(x): raise E('\\n1 1\\npass\\t\\n')",
    "an object that is not there": PIPE
    + "send(b't\\2\\0\\0\\0s\\5\\0\\0\\0valueo\\xff\\xff\\0\\0')",
    "asks that do not end": (value("def __iter__(s): return s\ndef __next__(s): return s"),
                             "assert sorted(f(2)) == [4]"),
    "length that lies": (value("def __len__(s): return 1\ndef __getitem__(s, i): return s"), LIST),
    "length without end": (value("def __len__(s): return 2**62\ndef __iter__(s): return s\n"
                                 "def __next__(s): return 0"), "assert list(f(2)) == [4]"),
    "truth that is none": (value("def __bool__(s): return 1"), "assert f(2)"),
    "own number": "n = 0\nclass I(type):\n    __instancecheck__ = lambda *a: True\n"
    "class A(metaclass=I): pass\ndef f(x): return A",
    "syntax": "def f(:",
    "null byte": "x = '\0'",
    "deep source": "x = " + "(" * 5000 + ")" * 5000,
    "surrogate": "x = '\ud800'\ndef f(x): return x * x",
    "recursion": "def f(x): return f(x + 1)",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**8)\ndef f(x): return f(x + 1)",
    "stops itself": "import os\nos.kill(os.getpid(), 19)\ndef f(x): return x * x",
    "kills itself": "import os\ndef f(x): os.kill(os.getpid(), 9)",
    "real-time signal": "import os\ndef f(x): os.kill(os.getpid(), 40)",
    "crash": "import ctypes\nctypes.string_at(0)",
}  # fmt: skip
EXHAUSTING = {
    "endless loop": "while True: pass",
    "deaf loop": "import signal\nfor n in range(1, 60):\n"
    "    try: signal.signal(n, signal.SIG_IGN)\n    except Exception: pass\nwhile True: pass",
    "sleep": "import time\nwhile True: time.sleep(100)",
    "huge number": "x = 10 ** 10 ** 8\ndef f(x): return x * x",
    "memory": "a = []\nwhile True: a.append(bytearray(10**7))",
    "10 GB": "x = bytearray(10**10)",
    "output": "while True: print('x' * 10000)",
    "output, caught": "try:\n    while True: print('x' * 10000, flush=True)\nexcept OSError: pass\n"
    "def f(x): return x * x",
    "many threads": "import threading, time\nfor _ in range(300):\n"
    "    threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n"
    "def f(x): return x * x",
    "fork bomb": "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass",
    "many files": "import os\nfor i in range(400000): os.close(os.open(f'h{i}', os.O_CREAT))\n"
    "def f(x): return x * x",
    "many nested folders": "import os, time\nfor i in range(3000): os.mkdir('a'); os.chdir('a')\n"
    "time.sleep(1)\ndef f(x): return x * x",
    "all threads": "import threading, time\nthreading.stack_size(32768)\ntry:\n    while True: "
    "threading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n"
    "except RuntimeError: time.sleep(99)",
    "output cut back": "import os\nwhile True:\n    os.write(1, b'x' * 60000); os.ftruncate(1, 0)",
    "all pipes": "import os, time\ntry:\n    while True: os.write(os.pipe()[1], b'x' * 60000)\n"
    "except OSError: pass\ntime.sleep(9)",
    "hidden descriptors": "import socket, array, os, time\na, b = socket.socketpair()\n"
    "while True: a.sendmsg([b'x'], [(1, 1, array.array('i', [os.open('/usr', 0)]))])",
    "deaf to the clock": "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\n"
    "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\nwhile True: pass",
    "full folder": "i = 0\nwhile True:\n    i += 1\n    open(f'f{i}', 'wb').write(b'x' * 900000)",
}
ATTACKS = {
    "fork": "assert os.fork() >= 0",
    "subprocess": "import subprocess; subprocess.run(['true'], check=True)",
    "exec": "os.execv('/bin/true', ['true'])",
    "write outside": "open('/var/tmp/goldimask-evil', 'w').write('x')",
    "write to tmp": "open('/tmp/goldimask-evil', 'w').write('x')",
    "write to the root": "open('/goldimask-evil', 'w').write('x')",
    "write to shared memory": "open('/dev/shm/goldimask-evil', 'w').write('x')",
    "a file of the user": "assert open('{secret}').read()",
    "a link to it": "os.symlink('{secret}', 'l'); assert open('l').read()",
    "a hard link to it": "os.link('{secret}', 'h')",
    "its mode": "os.chmod('{secret}', 0o777)",
    "its times": "os.utime('{secret}')",
    "its owner": "os.chown('{secret}', os.getuid(), os.getgid())",
    "its attributes": "os.setxattr('{secret}', 'user.x', b'1')",
    "its name": "os.rename('{secret}', '{secret}.mine')",
    "removing it": "os.unlink('{secret}')",
    "cutting it": "os.truncate('{secret}', 0)",
    "watching it": "assert call(254, call(294, 0), b'{secret}', 0xfff) >= 0",
    "password file": "assert open('/etc/passwd').read()",
    "the root's home": "assert os.listdir('/root')",
    "network": "import socket; socket.socket()",
    "local socket": "import socket; socket.socket(socket.AF_UNIX).connect('\\0x')",
    "environment": "assert os.environ['GOLDIMASK_SECRET']",
    "the parent's environment": "assert open(f'/proc/{{os.getppid()}}/environ', 'rb').read()",
    "the judge's memory": "open(f'/proc/{{os.getppid()}}/mem', 'r+b')",
    "the judge's descriptors": "os.open(f'/proc/{{os.getppid()}}/fd/4', os.O_RDONLY)",
    "the first process": "os.listdir('/proc/1/fd')",
    "ptrace": "assert call(101, 16, os.getppid(), 0, 0) == 0",
    "read the judge": "assert call(310, os.getppid(), 0, 0, 0, 0, 0) >= 0",
    "kill the parent": "os.kill(os.getppid(), 9)",
    "kill everything": "os.kill(-1, 9)",
    "kill the group": "os.killpg(0, 9)",
    "handle on the parent": "assert call(434, os.getppid(), 0) >= 0",
    "signal by owner": "import fcntl; fcntl.fcntl(os.pipe()[0], fcntl.F_SETOWN, os.getppid())",
    "signal by choice": "import fcntl; fcntl.fcntl(os.pipe()[0], 10, 9)",
    "signal by owner's record": "import fcntl; fcntl.fcntl(os.pipe()[0], 15, b'\\0' * 8)",
    "signal on change": "import fcntl; fcntl.fcntl(os.open('.', 0), 1026, 2)",
    "asynchronous descriptor": "import fcntl; fcntl.ioctl(os.pipe()[0], 0x5452, b'\\1\\0\\0\\0')",
    "priority of the parent": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "priority of the user": "os.setpriority(os.PRIO_USER, os.getuid(), 19)",
    "cores of the parent": "os.sched_setaffinity(os.getppid(), {{0}})",
    "schedule of the parent": "os.sched_setscheduler(os.getppid(), 3, os.sched_param(0))",
    "disk priority": "assert call(251, 1, os.getppid(), 3 << 13) >= 0",
    "limits of the parent": "import resource; resource.prlimit(os.getppid(), 7, (9, 9))",
    "raised limits": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))",
    "own session": "os.setsid()",
    "own group": "os.setpgid(0, 0)",
    "outlive the parent": "assert call(157, 1, 0, 0, 0, 0) == 0",
    "show its memory": "assert call(157, 4, 1, 0, 0, 0) == 0",
    "namespace": "assert call(272, 0x10000000) == 0",
    "io_uring": "assert call(425, 1, b'\\0' * 120) >= 0",
    "shared segment": "assert call(29, 0, 4096, 0o1777) >= 0",
    "hidden memory": "os.memfd_create('x')",
    "secret memory": "assert call(447, 0) >= 0",
    "hidden disk": "n = ctypes.c_long; assert call(285, os.open('b', 66), 1, n(0), n(9**9)) == 0",
    "hidden disk, the old way": "import fcntl, struct\n"
    "fcntl.ioctl(os.open('b', 66), 0x40305828, struct.pack('hhqqiI16x', 0, 0, 0, 1 << 31, 0, 0))",
    "large file": "os.truncate(os.open('b', 66), 1 << 30)",
    "terminal": "import fcntl; fcntl.ioctl(0, 0x5412, b'x')",
    "the machine's asynchronous requests": "assert call(206, 64, b'\\0' * 8) == 0",
    "flushing the machine's disks": "assert call(162) == 0",
    "its mode, by the newest call": "assert call(452, -100, b'{secret}', 0o777, 0) == 0",
    "its times, through a handle": "os.utime(os.open('{secret}', os.O_PATH))",
    "a handle by the newest call": "assert call(437, -100, b'{secret}', b'\\0' * 24, 24) >= 0",
    "a tree of mounts": "assert call(428, -100, b'/', 1) >= 0",
    "a new file system": "assert call(430, b'tmpfs', 0) >= 0",
    "the harness's memory": "p = os.getppid()\n"
    "for n in range(max(1, p - 50), p):\n"
    "    try: ok = ok or bool(open(f'/proc/{{n}}/maps').read())\n    except OSError: pass\n"
    "assert ok",
    "a device": "os.open('/dev/ptmx', os.O_RDWR)",
    "a kernel's file": "open('/proc/sys/kernel/core_pattern', 'w')",
    "groups": "os.setgroups([0])",
    "back to root": "os.setresuid(0, 0, 0)",
    "a right of root": "assert call(126, b'\\x22\\5\\x08\\x20' + b'\\0' * 4, b'\\xff' * 24) == 0",
    "the clock": "import time; time.clock_settime(0, 1.0)",
    "the machine's name": "import socket; socket.sethostname('x')",
    "a way out by root": "os.chroot('.')",
}  # fmt: skip
UNCOUNTED = {  # would be invisible to who counts the folder from outside
    "deleted and open": "d = os.open('g', 66); os.unlink('g'); os.write(d, b'x')",
    "never named": "os.open('.', os.O_TMPFILE | os.O_RDWR)",
    "closed folder": "os.mkdir('z'); os.chmod('z', 0)",
    "moved over": "open('a', 'w'); open('b', 'w'); os.rename('a', 'b')",
}
MESSES = {
    "mode 000": "import os\nos.mkdir('z', 0)\nos.umask(0o777)\nos.mkdir('y')\nos.chmod('.', 0)",
    "folder that cannot be listed": "import os, time\nos.mkdir('z', 0o300)\n"
    "for i in range(9): open(f'z/{i}', 'wb').write(b'x' * 900000)\ntime.sleep(.5)",
    "odd names": "import os\nfor n in (b'\\xff\\n', b'-rf', b' ', b'0', b'1', b'x' * 255):\n"
    "    os.mkdir(n)\n    os.mkdir(n + b'/0' if len(n) < 9 else b'2')",
    "loops": "import os\nos.symlink('.', 'l')\nos.symlink('/', 'm')\nos.mkfifo('p')",
    "nested, closed": "import os\nfor i in range(900):\n    os.mkdir('a', 0o300); os.chdir('a')",
}


def run(box: Sandbox, programs: dict) -> dict[str, Outcome]:
    """Run them side by side; none passes, each has a verdict, and nothing stays behind."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        os.chmod(folder, 0o755)
        before, tempfile.tempdir = tempfile.tempdir, folder
        try:
            given = [p if isinstance(p, tuple) else (p, TESTS) for p in programs.values()]
            found = box.run_all([Program(*p, names=("f",)) for p in given], workers=4)
            assert os.listdir(folder) == []
        finally:
            tempfile.tempdir = before
    outcomes = dict(zip(programs, found, strict=True))
    assert not [name for name, o in outcomes.items() if o.passed]
    assert {o.status for o in found} <= set(STATUSES)
    assert not [o for o in found if "could not be run" in o.detail]
    return outcomes


def attacks(secret: Path) -> dict[str, str]:
    return {name: attack(code.format(secret=secret)) for name, code in ATTACKS.items()}
