"""The private folder of a program: has it grown past its limits, and away with it.

Both never follow a link, never recurse, and take a folder of any depth, mode or number of entries.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress

_FOLDER = os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def overgrown(folder: str, most_bytes: int, most_entries: int) -> bool:
    """Too many bytes (or blocks) or entries, or parts that cannot be looked at."""
    size = entries = 0
    todo = [folder]
    while todo:
        try:
            with os.scandir(todo.pop()) as found:
                for entry in found:
                    status = entry.stat(follow_symlinks=False)
                    size += max(status.st_size, status.st_blocks * 512)
                    entries += 1
                    if size > most_bytes or entries > most_entries:
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:  # closed to us, or deeper than a path can be long
            return True
    return False


def remove(folder: str) -> None:
    """Remove it; a killed program may still write for a moment, so try until it is gone."""
    for _ in range(100):
        with suppress(OSError):
            _empty(folder)
            os.rmdir(folder)
        if not os.path.lexists(folder):
            return
        time.sleep(0.02)


def _empty(folder: str) -> None:
    """Lift what is in a subfolder to the top, then drop it: no path is longer than two names."""
    top, count = _open(folder, None), 0
    try:
        while names := os.listdir(top):
            for name in names:
                if _unlinked(name, top):
                    continue
                inner = _open(name, top)
                try:
                    for part in os.listdir(inner):
                        if not _unlinked(part, inner):
                            os.close(_open(part, inner))  # to be moved it must be writable
                            while os.access(f"{count}", os.F_OK, dir_fd=top, follow_symlinks=False):
                                count += 1
                            os.rename(part, f"{count}", src_dir_fd=inner, dst_dir_fd=top)
                finally:
                    os.close(inner)
                os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)


def _unlinked(name: str, parent: int) -> bool:
    """Unlink what is no folder."""
    try:
        os.unlink(name, dir_fd=parent)
    except IsADirectoryError:
        return False
    return True


def _open(name: str, parent: int | None) -> int:
    """Open a folder after making it ours; through its handle, so that no link is followed."""
    handle = os.open(name, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)
