"""The process inside the sandbox: lock itself in, run a program, run its tests, report.

Started by `sandbox` as `python -I -c <this file>`; it imports nothing of the project. The payload
comes on stdin as JSON, the report goes to a pipe of its own. Order: resource limits, no new
privileges, Landlock (which files), seccomp (which system calls), then the program, then the tests.

A pass needs the tests to run to their end in this process: the report carries a token that is sent
only then, so that leaving early with status 0 is no pass. Before the tests, what a program may have
bent is put back: built-in functions, modules the tests import, trace functions; and a value that
equals everything is an error. This stops programs that cheat, not one written against this very
file.
"""

import ast
import builtins
import ctypes
import json
import os
import resource
import signal
import struct
import sys
import types

libc = ctypes.CDLL(None, use_errno=True)
syscall = libc.syscall
syscall.restype = ctypes.c_long


# ---------------------------------------------------------------- limits


def limit(limits):
    """Resource limits, for this process and all that it could start."""
    cpu = max(1, int(limits["cpu"]))
    for what, soft, hard in (
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_AS, limits["memory"], limits["memory"]),
        (resource.RLIMIT_FSIZE, limits["file"], limits["file"]),
        (resource.RLIMIT_NPROC, limits["processes"], limits["processes"]),
        (resource.RLIMIT_NOFILE, 64, 64),
        (resource.RLIMIT_CORE, 0, 0),
    ):
        most = resource.getrlimit(what)[1]
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(what, (soft, hard))
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG: die with the parent
    libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody may look into this process
    return libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS


def drop(user, keep_search):
    """Become `user` for good. `keep_search` keeps the right to read what Landlock then allows.

    The latter is for a Python that only root can reach: capability 2, CAP_DAC_READ_SEARCH.
    """
    libc.prctl(8, 1 if keep_search else 0, 0, 0, 0)  # PR_SET_KEEPCAPS
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    if keep_search:
        header = struct.pack("Ii", 0x20080522, 0)
        if libc.capset(header, struct.pack("6I", 4, 4, 0, 0, 0, 0)):
            raise OSError(ctypes.get_errno(), "capset")


# ---------------------------------------------------------------- Landlock


def landlock(readable, writable):
    """Only these trees may be read, only `writable` written. False where the kernel cannot."""
    abi = syscall(444, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return False
    every = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    net, scoped = (3 if abi >= 4 else 0), (3 if abi >= 6 else 0)
    attribute = struct.pack("QQQ", every, net, scoped)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = syscall(444, attribute, ctypes.c_size_t(len(attribute)), 0)
    if ruleset < 0:
        return False
    read = 1 | 4 | 8  # execute (libraries), read a file, list a folder
    devices = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
    rules = [(path, read) for path in readable] + [(path, 2 | 4) for path in devices]
    for path, access in [*rules, *((path, every) for path in writable)]:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        if not os.path.isdir(path):
            access &= 1 | 2 | 4 | (1 << 14) & every
        rule = struct.pack("=Qi", access, handle)
        added = syscall(445, ctypes.c_int(ruleset), 1, rule, 0)
        os.close(handle)
        if added:
            return False
    done = syscall(446, ctypes.c_int(ruleset), 0) == 0
    os.close(ruleset)
    return done


# ---------------------------------------------------------------- seccomp

# name: (x86_64, aarch64); None where an architecture has no such call
NEVER = {
    "socket": (41, 198), "fork": (57, None), "vfork": (58, None), "execve": (59, 221),
    "execveat": (322, 281), "ptrace": (101, 117), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424), "pidfd_getfd": (438, 438),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "mount": (165, 40),
    "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "bpf": (321, 280), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "shmget": (29, 194), "semget": (64, 190), "msgget": (68, 186),
    "mq_open": (240, 180), "open_by_handle_at": (304, 265), "swapon": (167, 224),
    "reboot": (169, 142), "kexec_load": (246, 104), "init_module": (175, 105),
    "finit_module": (313, 273),
}  # fmt: skip
# without Landlock nothing may be written at all
WRITES = {
    "creat": (85, None), "mkdir": (83, None), "rmdir": (84, None), "unlink": (87, None),
    "rename": (82, None), "link": (86, None), "symlink": (88, None), "chmod": (90, None),
    "chown": (92, None), "lchown": (94, None), "mknod": (133, None), "utime": (132, None),
    "utimes": (235, None), "futimesat": (261, None), "truncate": (76, 45),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "mkdirat": (258, 34),
    "mknodat": (259, 33), "fchownat": (260, 54), "unlinkat": (263, 35), "renameat": (264, 38),
    "linkat": (265, 37), "symlinkat": (266, 36), "fchmodat": (268, 53),
    "utimensat": (280, 88), "renameat2": (316, 276), "fchmodat2": (452, 452),
}  # fmt: skip
OPENS = {"open": ((2, None), 1), "openat": ((257, 56), 2)}  # call and argument holding the flags
MISSING = {"clone3": (435, 435), "openat2": (437, 437)}  # ENOSYS: the C library falls back
CLONE, KILL, TGKILL, PRLIMIT = (56, 220), (62, 129), (234, 131), (302, 261)
CLONE_THREAD = 0x10000
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06


def filter_program(writes_allowed, machine, pid):
    """The seccomp filter as (code, jump if true, jump if false, constant) rows."""
    column, architecture = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}[machine]

    def deny(numbers, errno=1):
        number = numbers[column]
        return [] if number is None else [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | errno)]

    def unless(numbers, argument, test, good):
        """Refuse unless the test on the low half of an argument comes out as `good`."""
        number = numbers[column]
        if number is None:
            return []
        body = [(LOAD, 0, 0, 16 + 8 * argument)]
        for code, constant in test:
            body.append((code, len(test) - len(body) + 1, 0, constant))
        refuse, leave = (RETURN, 0, 0, ERRNO | 1), (LOAD, 0, 0, 0)
        # after the tests: first row when none holds, second when one holds
        tail = [refuse, leave] if good else [(0x05, 0, 0, 1), refuse, leave]
        return [(EQUAL, 0, len(body) + len(tail), number), *body, *tail]

    rows = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, ERRNO | 1)]
    rows += [(LOAD, 0, 0, 0), (0x35, 0, 1, 0x40000000), (RETURN, 0, 0, ERRNO | 1)]  # no x32 calls
    for numbers in NEVER.values():
        rows += deny(numbers)
    for numbers in MISSING.values():
        rows += deny(numbers, 38)
    rows += unless(CLONE, 0, [(ANY_BIT, CLONE_THREAD)], True)
    rows += unless(KILL, 0, [(EQUAL, pid)], True)
    rows += unless(TGKILL, 0, [(EQUAL, pid)], True)
    rows += unless(PRLIMIT, 0, [(EQUAL, 0), (EQUAL, pid)], True)
    if not writes_allowed:
        for numbers in WRITES.values():
            rows += deny(numbers, 13)
        for numbers, argument in OPENS.values():
            rows += unless(numbers, argument, [(ANY_BIT, WRITE_FLAGS)], False)
    return [*rows, (RETURN, 0, 0, ALLOW)]


def seccomp(writes_allowed):
    """No sockets, no new processes, no signals to others. False where it cannot be had."""
    try:
        rows = filter_program(writes_allowed, os.uname().machine, os.getpid())
    except KeyError:
        return False
    code = b"".join(struct.pack("HBBI", *row) for row in rows)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxQ", len(rows), ctypes.addressof(buffer))
    return libc.prctl(22, 2, ctypes.create_string_buffer(program, len(program)), 0, 0) == 0


# ---------------------------------------------------------------- program and tests


def honest(value, depth=0):
    """Refuse values that equal whatever they are compared with."""
    if value == Sentinel():
        raise AssertionError("a value that equals everything")
    if depth < 3 and type(value) in (list, tuple, set, frozenset):
        for part in list(value)[:1000]:
            honest(part, depth + 1)
    elif depth < 3 and type(value) is dict:
        for part in list(value.values())[:1000]:
            honest(part, depth + 1)


class Sentinel:
    """Equal to nothing that was made by honest means."""


def same(left, right):
    """`left == right`, both sides looked at first."""
    honest(left)
    honest(right)
    return left == right


class Watch(ast.NodeTransformer):
    """In assertions, a single `==` goes through `same`."""

    def visit_Compare(self, node):
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq):
            return node
        name = ast.Name("__goldimask_same__", ast.Load())
        call = ast.Call(name, [node.left, node.comparators[0]], [])
        return ast.copy_location(call, node)


def imported(*sources):
    """Snapshots of the modules that the tests import, taken before the program runs."""
    kept = {}
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            for name in names:
                try:
                    __import__(name)
                except Exception:
                    continue
                kept[name] = (sys.modules[name], dict(vars(sys.modules[name])))
    return kept


def restore(kept, pristine, settrace, setprofile):
    """Undo what a program did to the interpreter."""
    settrace(None)
    setprofile(None)
    builtins.__dict__.update(pristine)  # first: everything below may rely on them
    for name in [x for x in builtins.__dict__ if x not in pristine]:
        del builtins.__dict__[name]
    for name, (module, content) in kept.items():
        vars(module).clear()
        vars(module).update(content)
        sys.modules[name] = module


def run(job):
    """Execute program and tests; returns (status, detail)."""
    strict = job["strict"]
    name = "solution" if strict else "__main__"
    pristine, settrace, setprofile = dict(vars(builtins)), sys.settrace, sys.setprofile
    try:
        code = compile(job["program"], "<program>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        return "syntax error", describe(error)
    try:
        tests = ast.parse(job["tests"])
        kept = imported(job["tests"], job["prelude"]) if strict else {}
    except (SyntaxError, ValueError) as error:
        return "fail", "the tests themselves do not parse: " + describe(error)
    module = types.ModuleType(name)
    sys.modules[name] = module
    try:
        exec(compile(job["prelude"], "<prelude>", "exec"), vars(module))
        exec(code, vars(module))
        if strict:
            restore(kept, pristine, settrace, setprofile)
            keep = set(job["names"])
            names = {k: v for k, v in vars(module).items() if k not in pristine or k in keep}
            names["__builtins__"] = dict(pristine)
            tests = ast.fix_missing_locations(Watch().visit(tests))
            names["__goldimask_same__"] = same
        else:
            names = vars(module)
        exec(compile(tests, "<tests>", "exec"), names)
    except MemoryError:
        return "memory", "the memory limit was reached"
    except AssertionError as error:
        return "fail", describe(error)
    except SystemExit as error:
        return "killed", f"left early with status {error.code!r}"
    except BaseException as error:
        return "fail", describe(error)
    return "pass", ""


def describe(error):
    try:
        return (type(error).__name__ + ": " + str(error))[:300]
    except BaseException:
        return "an error that cannot be shown"


def main():
    job = json.loads(sys.stdin.buffer.read())
    empty = os.open("/dev/null", os.O_RDONLY)
    os.dup2(empty, 0)
    os.close(empty)
    report, token, write, leave = job["report"], job["token"], os.write, os._exit
    encode = json.dumps
    if job["drop"]:
        drop(job["drop"], job["keep_search"])
    os.chdir(job["folder"])
    locked = limit(job["limits"])
    guards = {"landlock": False, "seccomp": False}
    if locked and job["landlock"]:
        guards["landlock"] = landlock(job["readable"], [job["folder"]])
    if os.geteuid() == 0 or (job["keep_search"] and not guards["landlock"]):
        leave(3)  # never as root, and never with its right to read everything
    if locked and job["seccomp"]:
        guards["seccomp"] = seccomp(guards["landlock"] or job["contained"])
    write(report, (encode(guards) + "\n").encode())
    status, detail = run(job)
    line = encode({"status": status, "detail": detail, "token": token})
    write(report, (line + "\n").encode())
    leave(0)


if __name__ == "__main__":
    main()
