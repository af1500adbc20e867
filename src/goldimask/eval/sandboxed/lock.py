"""Locking a process in: resource limits, another user, no new privileges, Landlock.

All of it is inherited and cannot be undone. Which system calls are left, `syscalls` says.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct

libc = ctypes.CDLL(None, use_errno=True)
syscall = libc.syscall
syscall.restype = ctypes.c_long

READ = 1 | 4 | 8  # execute (libraries), read a file, list a folder
MAKE = 2 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 14  # write, make folders, files, links; truncate
REMOVE = 1 << 4 | 1 << 5 | 1 << 13  # folders, files; move between folders
DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")


def limit(limits: dict[str, int]) -> bool:
    """Resource limits, each for this process and the one it starts."""
    cpu = max(1, int(limits["cpu"]))
    most(resource.RLIMIT_CPU, cpu, cpu + 1)
    most(resource.RLIMIT_AS, limits["memory"])
    most(resource.RLIMIT_FSIZE, limits["file"])
    most(resource.RLIMIT_NOFILE, 64)
    most(resource.RLIMIT_CORE, 0)
    libc.prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: nobody may look into this process
    return libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS


def most(what: int, soft: int, hard: int | None = None) -> None:
    """Lower a limit for good, never above what is in force."""
    hard = soft if hard is None else hard
    now = resource.getrlimit(what)[1]
    if now != resource.RLIM_INFINITY:
        soft, hard = min(soft, now), min(hard, now)
    resource.setrlimit(what, (soft, hard))


def limit_threads(count: int) -> None:
    """After the last fork: the kernel counts all tasks of the user, other programs' among them."""
    most(resource.RLIMIT_NPROC, count)


def die_with(parent: int) -> None:
    """Do not outlive the process that started this one."""
    libc.prctl(1, 9, 0, 0, 0)  # PR_SET_PDEATHSIG, SIGKILL
    if parent and os.getppid() != parent:
        os._exit(4)


def drop(user: int, keep_search: bool) -> None:
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


def landlock(readable: list[str], folder: str, removal: bool) -> bool:
    """Only these trees may be read, only `folder` written. False where the kernel cannot.

    Without `removal` nothing can be deleted or moved: the folder is then counted from outside, and
    a deleted file that is still open would not be seen.
    """
    abi = syscall(444, None, ctypes.c_size_t(0), 1)
    if abi < 1:
        return False
    every = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1
    net, scoped = (3 if abi >= 4 else 0), (3 if abi >= 6 else 0)
    attribute = struct.pack("QQQ", every, net, scoped)[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = syscall(444, attribute, ctypes.c_size_t(len(attribute)), 0)
    if ruleset < 0:
        return False
    own = READ | MAKE | (REMOVE if removal else 0)
    rules = [*((p, READ) for p in readable), *((p, 2 | 4) for p in DEVICES), (folder, own)]
    for path, access in rules:
        try:
            handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except OSError:
            continue
        access &= every if os.path.isdir(path) else (1 | 2 | 4 | 1 << 14) & every
        added = syscall(445, ctypes.c_int(ruleset), 1, struct.pack("=Qi", access, handle), 0)
        os.close(handle)
        if added:
            return False
    done = syscall(446, ctypes.c_int(ruleset), 0) == 0
    os.close(ruleset)
    return done
