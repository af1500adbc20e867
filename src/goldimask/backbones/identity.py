"""A hash of what determines a model's outputs: results are kept under it.

    files      weights, config.json, tokenizer and chat template of the base; the adapter of a run
    options    precision and quantisation that a run's recipe asks for

Files count by name and content, so that a copy of a folder has the hash of the original, and a
changed template another one. Content is not read twice when `remember` names a file to keep digests
in: a file whose size, modification time and, for safetensors, header are as before is taken as
known. (A changed file with all three as before would go unnoticed.)
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from goldimask.backbones.checkpoint import weight_files
from goldimask.backbones.lookup import CONFIG, find_model
from goldimask.errors import GoldimaskError
from goldimask.files import write_json

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
MATTERS = ("dtype", "quant")  # of a recipe's options; the others change speed, or training alone
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
    known = read_known(remember)
    digests = {label: digest(file, known) for label, file in parts}
    if remember is not None:
        write_json(remember, known)
    options = {key: source.options[key] for key in MATTERS if key in source.options}
    facts = json.dumps({"files": digests, "options": options}, sort_keys=True)
    return hashlib.sha256(facts.encode()).hexdigest()[:32]


def digest(file: Path, known: Known) -> str:
    """The digest of a file's content, from `known` if it looks the same; `known` is updated."""
    try:
        stat = file.stat()
        seen = {
            "size": str(stat.st_size),
            "modified": str(stat.st_mtime_ns),
            "header": header_digest(file),
        }
        path = str(file.resolve())
        entry = known.get(path, {})
        if any(entry.get(key) != value for key, value in seen.items()) or "sha256" not in entry:
            with file.open("rb") as content:
                sha256 = hashlib.file_digest(content, "sha256").hexdigest()
            known[path] = entry = {**seen, "sha256": sha256}
    except OSError as error:
        raise GoldimaskError(f"{file}: cannot be read ({error})") from error
    return entry["sha256"]


def header_digest(file: Path) -> str:
    """The digest of a safetensors header (its length in eight bytes, then JSON), else nothing."""
    if file.suffix != ".safetensors":
        return ""
    with file.open("rb") as content:
        start = content.read(8)
        length = min(int.from_bytes(start, "little"), file.stat().st_size)
        return hashlib.sha256(start + content.read(length)).hexdigest()


def read_known(remember: Path | None) -> Known:
    """Digests of an earlier call; a file that is not readable counts as empty."""
    if remember is None or not remember.is_file():
        return {}
    try:
        known = json.loads(remember.read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}
