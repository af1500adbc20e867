"""The modelling files of a user's own download, copied beside a merged model and never run.

    auto_map {"AutoModel": "modeling_llada.LLaDAModelLM"}  ->  modeling_llada.py and every file
    that it imports relatively (`from .configuration_llada import ...`), found by parsing the text

Programs that run the code of a model folder need both. Only plain files of the folder
itself are taken: links, subfolders and code of other repositories are refused.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError, short
from goldimask.files import read_object, write_bytes, write_json

LARGEST = 2_000_000  # bytes of a file; modelling files have a hundred thousand
_CLASS = re.compile(r"([A-Za-z_]\w{0,200})\.[A-Za-z_]\w{0,200}", re.ASCII)


@dataclass(frozen=True)
class Modelling:
    """What `auto_map` says and the files it needs."""

    folder: Path
    named: Mapping[str, Any]  # `model_type` and `architectures` of the download
    auto_map: Mapping[str, str]
    files: Mapping[str, bytes]

    def fits(self, config: Mapping[str, Any]) -> None:
        """Refuse code of another architecture than that of `config`."""
        for key, theirs in self.named.items():
            if key in config and config[key] != theirs:
                raise GoldimaskError(
                    f"--with-code: {self.folder / 'config.json'}: {key} is {short(theirs)}, that "
                    f"of the model is {short(config[key])}; give the download of its own base"
                )

    def write(self, folder: Path) -> None:
        """Add the files, and `auto_map` to the config."""
        for name, data in self.files.items():
            write_bytes(folder / name, data)
        config = read_object(folder / "config.json")
        write_json(folder / "config.json", {**config, "auto_map": dict(self.auto_map)})


def read_modelling(folder: Path) -> Modelling:
    """Everything that is to be copied, checked before any work."""
    path = folder / "config.json"
    config = read_object(path)
    auto_map = config.get("auto_map")
    if not isinstance(auto_map, dict) or not auto_map:
        raise GoldimaskError(
            f"--with-code: {path} has no auto_map; give a download of the published repository"
        )
    waiting = []
    for key, value in auto_map.items():
        match = _CLASS.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise GoldimaskError(
                f"--with-code: {path}: auto_map.{short(key)}: {short(value)} is not a class of a "
                "file in this folder (module.Class)"
            )
        waiting.append(match[1])
    files: dict[str, bytes] = {}
    while waiting:
        name = f"{waiting.pop()}.py"
        if name not in files:
            files[name] = read_plain(folder / name)
            waiting += relative_imports(files[name], folder / name)
    named = {k: config[k] for k in ("model_type", "architectures") if k in config}
    return Modelling(folder, named, auto_map, dict(sorted(files.items())))


def read_plain(path: Path) -> bytes:
    """The bytes of a file that lies in the folder itself."""
    if path.is_symlink():
        raise GoldimaskError(
            f"--with-code: {path} is a link, as in the Hub's cache; download the repository into a "
            "folder of its own (`hf download REPOSITORY --local-dir FOLDER`)"
        )
    if not path.is_file():
        raise GoldimaskError(f"--with-code: {path} is missing; the download is not complete")
    if path.stat().st_size > LARGEST:
        raise GoldimaskError(f"--with-code: {path} has more than {LARGEST:,} bytes")
    return path.read_bytes()


def relative_imports(source: bytes, path: Path) -> list[str]:
    """Modules beside the file that it imports; the text is parsed, not run."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise GoldimaskError(f"--with-code: {path}: not Python ({short(str(error))})") from error
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            modules = [node.module] if node.module else [alias.name for alias in node.names]
            if node.level > 1 or any("." in m or m == "*" for m in modules):
                raise GoldimaskError(
                    f"--with-code: {path}:{node.lineno}: imports from outside of its folder"
                )
            found += modules
    return found
