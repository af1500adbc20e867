"""A job's folder: one lock, one unfinished folder, one seal, one key.

    key         hash of everything the result depends on: settings, weights, data, task versions
    x.partial   where a job works; it takes the name `x` when it is complete
    lock        one writer at a time; the operating system drops it with its process
    complete.json   sizes and hashes of the files of a finished checkpoint or folder

Training, evaluations, studies and the cells of a campaign all use these and nothing else. A folder
whose manifest has another key is refused by name; it is never mixed or overwritten.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from goldimask.errors import GoldimaskError
from goldimask.files import write_json
from goldimask.records import Kind, Manifest, digest, read_json, read_manifest

SEAL = "complete.json"
SECRET_NAME = r"(?:[\w.-]*[._-])?(?:token|api[_-]?key|access[_-]?key|secret|password|passwd)"
SECRET_FLAG = re.compile(rf"--?{SECRET_NAME}", re.I)
SECRET_VALUE = re.compile(rf"((?:^|[\s,{{?&\"'-]){SECRET_NAME}\s*[=:]\s*)[^\s,}}&]+", re.I)
SECRET_LOOK = re.compile(
    r"\b(?:hf_|sk-|ghp_|github_pat_|glpat-|xox[abprs]-|AKIA)[\w-]{8,}|(?<=://)[^/\s@]+(?=@)"
)
Say = Callable[[str], None]
PACKAGES = ("goldimask", "torch", "transformers", "peft", "accelerate", "numpy", "tokenizers")


# --- key and manifest ----------------------------------------------------------------------------


def job_key(kind: Kind, *, weights: str, settings: Any, data: Any = None, version: int = 1) -> str:
    """What a result depends on. `version` is raised when the code changes the result."""
    return digest([kind, version, weights, settings, data])


def make_manifest(kind: Kind, key: str, model: str, weights: str, **facts: Any) -> Manifest:
    """A manifest with the versions, the git state and the command of now."""
    facts = {"platform": f"{platform.system()} {platform.machine()}", **facts}
    return Manifest(kind=kind, key=key, model=model, weights=weights, facts=facts, **provenance())


def provenance() -> dict[str, Any]:
    """Command, versions and git state of now."""
    return {
        "command": own_command(),
        "versions": {"python": platform.python_version(), **{p: _version(p) for p in PACKAGES}},
        "git": git_state(),
    }


def own_command() -> list[str]:
    """The words of this process, without what must stay secret."""
    return redacted([Path(sys.argv[0]).name, *sys.argv[1:]])


def redacted(words: Sequence[str]) -> list[str]:
    """Words with tokens, keys and passwords replaced: by their look, or by the name before them."""
    found: list[str] = []
    for word in words:
        named = bool(found) and SECRET_FLAG.fullmatch(found[-1]) is not None
        shown = "***" if named and not word.startswith("-") else word
        found.append(SECRET_LOOK.sub("***", SECRET_VALUE.sub(r"\1***", shown)))
    return found


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def git_state() -> dict[str, Any] | None:
    """Commit and cleanliness of the working directory's repository, if there is one."""

    def git(*words: str) -> str:
        done = subprocess.run(
            ("git", *words), capture_output=True, text=True, timeout=10, check=True
        )
        return done.stdout.strip()

    try:
        return {"commit": git("rev-parse", "HEAD"), "dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None


def same_job(folder: Path, manifest: Manifest) -> bool:
    """Whether a folder holds this very job; another one is refused with both names."""
    found = read_manifest(folder)
    if found is None:
        return False
    if found.key == manifest.key:
        return True
    raise GoldimaskError(
        f"'{folder}' holds the results of {_named(found)}, not of {_named(manifest)}; choose "
        "another folder, or remove this one"
    )


def _named(manifest: Manifest) -> str:
    source = manifest.facts.get("source")
    where = f" at '{source}'" if source and source != manifest.model else ""
    name = f"{manifest.model}{where}"
    return f"{name} ({manifest.kind}, weights {manifest.weights}, key {manifest.key})"


# --- lock ----------------------------------------------------------------------------------------


def take_lock(folder: Path, part: str = "", wait: float = 0.0) -> FileLock:
    """The right to write into a folder (or a part of it), until released or the process ends.

    Refused after `wait` seconds if somebody else has it.
    """
    file = lock_file(folder, part)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise GoldimaskError(f"'{folder}' cannot be written: {error.strerror}") from error
    lock = FileLock(file, timeout=wait, thread_local=False)
    holder = file.with_name(f"{file.name}.json")
    try:
        lock.acquire()
    except Timeout as error:
        who = _holder(holder)
        raise GoldimaskError(
            f"'{folder}' is being written by {who}; wait for it, stop it, or choose another folder"
        ) from error
    facts = {
        "process": os.getpid(),
        "host": platform.node(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "command": " ".join(own_command()),
    }
    holder.write_text(json.dumps(facts), "utf-8")  # a kill leaves no temporary name beside it
    return lock


def lock_file(folder: Path, part: str = "") -> Path:
    """Beside the folder itself, by whatever link it was named."""
    real = Path(os.path.realpath(folder))
    return real.with_name(f".{real.name}{f'.{part}' if part else ''}.lock")


def drop_lock(lock: FileLock) -> None:
    """Give the right back and take the traces away."""
    path = Path(lock.lock_file)
    path.with_name(f"{path.name}.json").unlink(missing_ok=True)
    path.unlink(missing_ok=True)
    lock.release()


@contextmanager
def locked(folder: Path, part: str = "", wait: float = 0.0) -> Iterator[None]:
    """Hold the lock of a folder."""
    lock = take_lock(folder, part, wait)
    try:
        yield
    finally:
        drop_lock(lock)


def _holder(file: Path) -> str:
    try:
        found = read_json(file)
    except GoldimaskError:
        found = {}
    if not found:
        return "another process"
    return (
        f"process {found.get('process')} on {found.get('host')} since {found.get('since')} "
        f"({found.get('command')})"
    )


# --- unfinished folder ---------------------------------------------------------------------------


def partial_of(folder: Path) -> Path:
    """Where a job works before its folder has its name."""
    return folder.with_name(folder.name + ".partial")


@contextmanager
def unfinished_folder(
    folder: Path, keep: Callable[[Path], bool] = lambda partial: False
) -> Iterator[Path]:
    """Yield `folder.partial`; it takes its name when the block succeeds.

    After a failure it stays if `keep` says that it holds something to resume from.
    """
    partial = partial_of(folder)
    partial.mkdir(parents=True, exist_ok=True)
    try:
        yield partial
    except BaseException:
        if not keep(partial):
            shutil.rmtree(partial, ignore_errors=True)
        raise
    seal(partial)
    os.replace(partial, folder)


# --- seal ----------------------------------------------------------------------------------------


def seal(folder: Path) -> None:
    """Declare a folder complete: size and hash of every file in it, and of this list."""
    files = _files(folder)
    write_json(folder / SEAL, {"files": files, "hash": digest(files)})


def publish(written: Path, target: Path) -> None:
    """Seal what was written under a temporary name and give it its own."""
    seal(written)
    if target.exists():  # a damaged one that a resumed run writes again
        shutil.rmtree(target)
    os.replace(written, target)


def damage(folder: Path) -> str | None:
    """What is wrong with a sealed folder, or None; files added later do not count."""
    try:
        found = json.loads((folder / SEAL).read_text(encoding="utf-8"))
        expected = found["files"]
    except FileNotFoundError:
        return "it was not completely written"
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return f"its {SEAL} cannot be read"
    if not isinstance(expected, dict) or not expected or any("\0" in name for name in expected):
        return f"its {SEAL} names no files"
    if found != {"files": expected, "hash": digest(expected)}:  # an entry less would hide a file
        return f"its {SEAL} is damaged"
    for name, facts in expected.items():
        file = folder / name
        if not file.is_file():
            return f"'{name}' is missing"
        if _facts(file) != facts:
            return f"'{name}' is damaged"
    return None


def missing(folder: Path) -> bool:
    """Whether a folder lacks its seal or a file that it names; nothing is hashed."""
    try:
        names = json.loads((folder / SEAL).read_text(encoding="utf-8"))["files"]
        return not all((folder / name).is_file() for name in names)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return True


def _files(folder: Path) -> dict[str, dict[str, object]]:
    """Size and hash of every file by relative name; of a sealed part, its seal alone."""
    found: dict[str, dict[str, object]] = {}
    for file in sorted(folder.iterdir()):
        if file.is_dir():
            inner = {SEAL: _facts(file / SEAL)} if (file / SEAL).is_file() else _files(file)
            found |= {f"{file.name}/{name}": facts for name, facts in inner.items()}
        elif file.name not in (SEAL, "README.md"):  # a card is written again with new scores
            found[file.name] = _facts(file)
    return found


def _facts(file: Path) -> dict[str, object]:
    with file.open("rb") as data:
        value = hashlib.file_digest(data, "blake2b").hexdigest()[:32]
    return {"bytes": file.stat().st_size, "hash": value}
