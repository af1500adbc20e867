"""Which system calls a locked process may still make: a seccomp filter, for x86_64 and aarch64.

never           sockets, new processes, other processes, more rights, memory and disk that no
                limit counts (`memfd_create`, `fallocate`)
by argument     threads but no processes; signals to oneself; harmless `fcntl` and `ioctl`
attributes      modes, owners, times of files: refused unless the file system is private
writes          refused where no Landlock and no mount keeps them in one folder
"""

from __future__ import annotations

import ctypes
import os
import struct

from .lock import libc

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
    "finit_module": (313, 273), "fallocate": (285, 47), "memfd_create": (319, 279),
    "memfd_secret": (447, 447), "setpriority": (141, 140), "ioprio_set": (251, 30),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118), "sched_setattr": (314, 274), "setsid": (112, 157),
    "setpgid": (109, 154), "kcmp": (312, 272), "migrate_pages": (256, 238),
    "move_pages": (279, 239), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "inotify_init": (253, None), "inotify_init1": (294, 26), "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264), "acct": (163, 89), "quotactl": (179, 60),
    "syslog": (103, 116), "personality": (135, 92), "modify_ldt": (154, None),
    "io_setup": (206, 0), "sync": (162, 81), "syncfs": (306, 267), "open_tree": (428, 428),
    "fsopen": (430, 430), "statmount": (457, 457), "listmount": (458, 458),
}  # fmt: skip
ATTRIBUTES = {
    "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None),
    "utimensat": (280, 88), "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "setxattrat": (463, 463), "removexattrat": (466, 466), "getxattr": (191, 8),
    "lgetxattr": (192, 9), "listxattr": (194, 11), "llistxattr": (195, 12),
    "getxattrat": (464, 464), "listxattrat": (465, 465), "file_setattr": (469, 469),
}  # fmt: skip
WRITES = {
    "creat": (85, None), "mkdir": (83, None), "rmdir": (84, None), "unlink": (87, None),
    "rename": (82, None), "link": (86, None), "symlink": (88, None), "mknod": (133, None),
    "truncate": (76, 45), "mkdirat": (258, 34), "mknodat": (259, 33), "unlinkat": (263, 35),
    "renameat": (264, 38), "renameat2": (316, 276), "linkat": (265, 37), "symlinkat": (266, 36),
}  # fmt: skip
MISSING = {"clone3": (435, 435), "openat2": (437, 437)}  # ENOSYS: the C library falls back
OPENS = {"open": ((2, None), 1), "openat": ((257, 56), 2)}  # call and argument holding the flags
CLONE, KILL, TGKILL, PRLIMIT = (56, 220), (62, 129), (234, 131), (302, 261)
FCNTL, IOCTL, PRCTL = (72, 25), (16, 29), (157, 167)
CLONE_THREAD = 0x10000
# duplicate, flags, locks, sizes and seals; not F_SETOWN, F_SETSIG, leases, notifications
FCNTL_GOOD = (0, 1, 2, 3, 4, 5, 6, 7, 9, 36, 37, 38, 1030, 1032, 1034)
# terminal questions, close-on-exec, blocking, bytes waiting; not FIOASYNC, not FS_IOC_RESVSP
IOCTL_GOOD = (0x5401, 0x5413, 0x5450, 0x5451, 0x5421, 0x541B)
# PDEATHSIG, DUMPABLE, MM, CHILD_SUBREAPER, PTRACER
PRCTL_BAD = (1, 4, 35, 36, 0x59616D61)
WRITE_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
TEMPORARY = 0x400000  # O_TMPFILE's own bit: a file without a name is not counted
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LOAD, EQUAL, ANY_BIT, JUMP, RETURN = 0x20, 0x15, 0x45, 0x05, 0x06
EPERM, EACCES, ENOTTY, ENOSYS, ENOTSUP = 1, 13, 25, 38, 95


Row = tuple[int, int, int, int]
Numbers = tuple[int | None, int | None]


def filter_program(machine: str, pid: int, writes: bool, private: bool) -> list[Row]:
    """The filter as (code, jump if true, jump if false, constant) rows.

    `writes`: something may be written; `private`: what can be reached is the sandbox's own.
    """
    column, architecture = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}[machine]

    def deny(numbers: Numbers, errno: int = EPERM) -> list[Row]:
        number = numbers[column]
        return [] if number is None else [(EQUAL, 0, 1, number), (RETURN, 0, 0, ERRNO | errno)]

    def unless(
        numbers: Numbers,
        argument: int,
        test: list[tuple[int, int]],
        good: bool,
        errno: int = EPERM,
    ) -> list[Row]:
        """Refuse unless the test on the low half of an argument comes out as `good`."""
        number = numbers[column]
        if number is None:
            return []
        body = [(LOAD, 0, 0, 16 + 8 * argument)]
        for code, constant in test:
            body.append((code, len(test) - len(body) + 1, 0, constant))
        refuse, leave = (RETURN, 0, 0, ERRNO | errno), (LOAD, 0, 0, 0)
        # after the tests: first row when none holds, second when one holds
        tail = [refuse, leave] if good else [(JUMP, 0, 0, 1), refuse, leave]
        return [(EQUAL, 0, len(body) + len(tail), number), *body, *tail]

    rows = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, architecture), (RETURN, 0, 0, ERRNO | EPERM)]
    rows += [(LOAD, 0, 0, 0), (0x35, 0, 1, 0x40000000), (RETURN, 0, 0, ERRNO | EPERM)]  # no x32
    for numbers in NEVER.values():
        rows += deny(numbers)
    for numbers in MISSING.values():
        rows += deny(numbers, ENOSYS)
    rows += unless(CLONE, 0, [(ANY_BIT, CLONE_THREAD)], True)
    rows += unless(KILL, 0, [(EQUAL, pid)], True)
    rows += unless(TGKILL, 0, [(EQUAL, pid)], True)
    rows += unless(PRLIMIT, 0, [(EQUAL, 0), (EQUAL, pid)], True)
    rows += unless(FCNTL, 1, [(EQUAL, x) for x in FCNTL_GOOD], True)
    rows += unless(IOCTL, 1, [(EQUAL, x) for x in IOCTL_GOOD], True, ENOTTY)
    rows += unless(PRCTL, 0, [(EQUAL, x) for x in PRCTL_BAD], False)
    if not private:
        for name, numbers in ATTRIBUTES.items():
            rows += deny(numbers, ENOTSUP if "xattr" in name else EPERM)
        for numbers, argument in OPENS.values():
            rows += unless(numbers, argument, [(ANY_BIT, TEMPORARY)], False)
    if not writes:
        for numbers in WRITES.values():
            rows += deny(numbers, EACCES)
        for numbers, argument in OPENS.values():
            rows += unless(numbers, argument, [(ANY_BIT, WRITE_FLAGS)], False)
    return [*rows, (RETURN, 0, 0, ALLOW)]


def seccomp(writes: bool, private: bool) -> bool:
    """Put the filter in force. False where it cannot be had."""
    try:
        rows = filter_program(os.uname().machine, os.getpid(), writes, private)
    except KeyError:
        return False
    code = b"".join(struct.pack("HBBI", *row) for row in rows)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxQ", len(rows), ctypes.addressof(buffer))
    return libc.prctl(22, 2, ctypes.create_string_buffer(program, len(program)), 0, 0) == 0
