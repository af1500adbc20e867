"""A hash of what determines a model's outputs: results are kept under it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from goldimask.backbones.loading import find_folder
from goldimask.runs import find_run


def weights_hash(name_or_folder: str | Path, remember: Path | None = None) -> str:
    """The hash of a name, a model folder, a run folder or a Hub id: every file's name and bytes."""
    run = find_run(name_or_folder)
    folders = [find_folder(run.base)[0], *([run.adapter] if run.adapter else [])]
    found = hashlib.blake2b(digest_size=16)
    for part, folder in zip(("base", "adapter"), folders, strict=False):
        for file in sorted(f for f in Path(folder).iterdir() if f.is_file()):
            with file.open("rb") as data:
                content = hashlib.file_digest(data, "blake2b").hexdigest()
            found.update(f"{part}/{file.name}\0{content}\0".encode())
    return found.hexdigest()
