"""How the sandbox's process is started: the command, and what of the machine it may see."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

NOBODY = 65534
SYSTEM = ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/etc/localtime")


def readable_paths() -> list[str]:
    """The system and this Python, nothing else."""
    prefixes = {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}
    real = str(Path(sys.executable).resolve().parent.parent)
    return [*SYSTEM, *sorted(p for p in {*prefixes, real} if p not in ("/", *SYSTEM))]


def command(bubblewrap: str | None, folder: str, size: int) -> list[str]:
    """Start `sandboxed`; a `size` above zero makes the folder a file system of that many bytes."""
    inside = Path(__file__).parent / "sandboxed"
    source = (
        f"import sys; sys.path.insert(0, {str(inside.parent)!r}); "
        "from sandboxed.start import main; del sys.path[0]; main()"
    )
    python = [sys.executable, "-I", "-B", "-c", source]
    if bubblewrap is None:
        return python
    private = ["--perms", "0777", "--size", str(size), "--tmpfs", folder]
    binds = ["--perms", "0755", "--tmpfs", "/tmp"]
    for path in [*readable_paths(), str(inside), folder]:
        if os.path.exists(path):
            for parent in reversed(Path(path).parents[:-1]):  # bubblewrap makes them private
                if not parent.is_relative_to("/usr") and str(parent) != "/tmp":
                    binds += ["--perms", "0755", "--dir", str(parent)]
            if path != folder:
                binds += ["--ro-bind", path, path]
            else:
                binds += private if size else ["--bind", folder, folder]
    return [
        *(bubblewrap, *namespaces(), "--die-with-parent", "--new-session", "--clearenv"),
        *(*binds, "--dev", "/dev"),
        *(x for path in ("/dev", "/tmp", "/") for x in ("--remount-ro", path)),
        *("--chdir", "/", "--", *python),
    ]


def sizes(bubblewrap: str | None) -> bool:
    """Can this bubblewrap make a file system of a given size? (It can since 0.7.)"""
    if bubblewrap is None:
        return False
    told = subprocess.run([bubblewrap, "--help"], capture_output=True, text=True, timeout=10)
    return "--size" in told.stdout + told.stderr


def namespaces() -> list[str]:
    """Root needs no user namespace: the runner gives up root itself, which takes two rights."""
    if os.geteuid() != 0:
        return ["--unshare-all", "--uid", str(NOBODY), "--gid", str(NOBODY), "--cap-drop", "ALL"]
    kinds = [f"--unshare-{kind}" for kind in ("net", "pid", "ipc", "uts", "cgroup-try")]
    rights = [x for right in ("CAP_SETUID", "CAP_SETGID") for x in ("--cap-add", right)]
    return [*kinds, "--cap-drop", "ALL", *rights]


def only_root(path: str) -> bool:
    """Can nobody else reach this path?"""
    real = Path(path).resolve()
    return any(not p.stat().st_mode & 0o001 for p in (real, *real.parents) if p.is_dir())


def tasks() -> int:
    """Tasks the sandbox's user has already: RLIMIT_NPROC counts per user, not per process."""
    me = os.geteuid()
    if me == 0:
        return 0
    total = 0
    for entry in os.scandir("/proc"):
        try:
            if entry.name.isdigit() and entry.stat().st_uid == me:
                total += len(os.listdir(f"{entry.path}/task"))
        except OSError:
            continue  # it ended in between
    return total
