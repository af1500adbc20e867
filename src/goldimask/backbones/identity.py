"""A hash of what determines a model's outputs: results are kept under it.

    files      weights, config.json, tokenizer and chat template of the base; the adapter of a run
    options    precision and quantisation that a run's recipe asks for

Files count by name and content, so that a copy of a folder has the hash of the original, and a
changed template another one. Content is not read twice when `remember` names a file to keep digests
in: a file whose size, times (of its content and of its entry, which nobody can set back) and, for
safetensors, header are as before is taken as known. One that changed a moment ago is not remembered
yet: the next change might fall into the same tick of the clock.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from goldimask.backbones.checkpoint import weight_files
from goldimask.backbones.lookup import CONFIG, find_model
from goldimask.errors import GoldimaskError
from goldimask.files import write_json
from goldimask.known import SETTINGS

TOKENIZER = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
MOMENT = 2_000_000_000  # ns
LONGEST = 100_000_000  # bytes of a header, as safetensors has it
# of a recipe's options; the others change speed, or training alone
MATTERS = ("dtype", "quant", *SETTINGS)
Known = dict[str, dict[str, str]]  # path -> what it looked like, and its digest


def weights_hash(name_or_folder: str | Path, remember: Path | None = None) -> str:
    """The hash of a name, a model folder, a run folder or a Hub id, as 32 hexadecimal digits."""
    source = find_model(name_or_folder)
    folder = source.folder()
    files = [folder / CONFIG, *weight_files(folder)]
    files += [folder / name for name in TOKENIZER if (folder / name).is_file()]
    parts = [*((f"base/{f.name}", f) for f in files)]
    if source.adapter is not None:
        parts += [(f"adapter/{name}", source.adapter / name) for name in ADAPTER]
    known, began = read_known(remember), time.time_ns()
    with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:  # hashing lets go of the GIL
        entries = list(pool.map(lambda part: entry_of(part[1], known), parts))
    digests = {label: entry["sha256"] for (label, _), entry in zip(parts, entries, strict=True)}
    found = {e["path"]: e for e in entries if began - int(e["changed"]) > MOMENT}
    if remember is not None and not found.items() <= known.items():
        with suppress(OSError):  # a help, not a need: the folder may be read-only
            write_json(remember, known | found)
    options = {key: source.options[key] for key in MATTERS if key in source.options}
    facts = json.dumps({"files": digests, "options": options}, sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()[:32]


def entry_of(file: Path, known: Known) -> dict[str, str]:
    """What a file looks like and the digest of its content; from `known` if it looks the same."""
    try:
        stat = file.stat()
        seen = {
            "path": str(file.resolve()),
            "size": str(stat.st_size),
            "modified": str(stat.st_mtime_ns),
            "changed": str(stat.st_ctime_ns),
            "header": header_digest(file),
        }
        entry = known.get(seen["path"], {})
        if "sha256" in entry and seen.items() <= entry.items():
            return entry
        with file.open("rb") as content:
            return {**seen, "sha256": hashlib.file_digest(content, "sha256").hexdigest()}
    except OSError as error:
        raise GoldimaskError(f"{file}: cannot be read ({error})") from error


def header_digest(file: Path) -> str:
    """The digest of a safetensors header (its length in eight bytes, then JSON), else nothing."""
    if file.suffix != ".safetensors":
        return ""
    with file.open("rb") as content:
        start = content.read(8)
        length = min(int.from_bytes(start, "little"), LONGEST)
        return hashlib.sha256(start + content.read(length)).hexdigest()


def read_known(remember: Path | None) -> Known:
    """Digests of an earlier call; a file that is not readable counts as empty."""
    if remember is None or not remember.is_file():
        return {}
    try:
        known = json.loads(remember.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    entries = known.items() if isinstance(known, dict) else ()
    return {path: entry for path, entry in entries if isinstance(entry, dict)}
