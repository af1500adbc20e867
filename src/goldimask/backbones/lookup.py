"""Where a model is: a registered name, a model folder, a run folder or a Hub id.

A run folder is written by `goldimask train`: `recipe.yaml` beside `adapter/` (LoRA) or `model/`
(all weights). Its adapter is used unmerged (D21, docs/decisions.md), on the base and with the
options of the recipe's `backbone` section. A registered name comes first: `./tiny` is a folder,
`tiny` is not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
)

from goldimask.errors import GoldimaskError, nearest
from goldimask.files import parse_yaml
from goldimask.known import PUBLISHED, SETTINGS, first
from goldimask.registry import Registry

CONFIG = "config.json"
RECIPE = "recipe.yaml"
OPTIONS = ("dtype", "attn", "quant", "kernel", "attention_rows", *SETTINGS)
# no *.py and no *.bin: neither remote code nor pickles are ever used
SMALL = ["*.json", "*.txt", "*.jinja"]
WEIGHTS = ["*.safetensors"]


@dataclass(frozen=True)
class Source:
    """Where a registered name leads: the Hub, the package, or a clone of its code."""

    hub: str = ""
    asset: str = ""  # a folder inside the package
    clone: str = ""  # a folder of the repository that the wheel leaves out

    def folder(self) -> Path | None:
        """The folder on this machine, if that is where it is."""
        package = Path(str(files("goldimask")))
        if self.clone:
            return package.parents[1] / self.clone  # the package is in the clone's src/
        return package / self.asset if self.asset else None


BACKBONES: Registry[Source] = Registry("backbone")
BACKBONES.add(
    "tiny", Source(asset="assets/tiny/model"), summary="Embedded model for CPU, LLaDA family"
)
BACKBONES.add(
    "tiny-b", Source(clone="models/tiny-b/model"), summary="The same from another seed; in a clone"
)
BACKBONES.add(
    "tiny-dream",
    Source(clone="models/tiny-dream/model"),
    summary="The same in Dream's layout; in a clone",
)
for _row in PUBLISHED:
    BACKBONES.add(_row.name, Source(hub=_row.hub), summary=_row.summary)


@dataclass(frozen=True)
class ModelSource:
    """A model that has been found but not read."""

    name: str  # what to call it
    base: str  # a registered name, a Hub id or a model folder
    adapter: Path | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # of the recipe, see OPTIONS

    def settings(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Layout, alignment and mask token: as given, or as the recipe says."""
        return {key: first(given.get(key), self.options.get(key)) for key in SETTINGS}

    def folder(self, weights: bool = True) -> Path:
        """The folder of the base; fetched from the Hub if need be, `weights` or only the rest."""
        return base_folder(self.base, weights)


def find_model(name_or_folder: str | Path) -> ModelSource:
    """What `name_or_folder` stands for; reads at most a recipe."""
    text = str(name_or_folder)
    folder = Path(text).expanduser()
    if text not in BACKBONES and not folder.exists():
        refuse_unfinished(folder)
    if text in BACKBONES or not folder.is_dir():
        return ModelSource(text, text)
    name = folder.resolve().name
    if not (folder / RECIPE).is_file():
        return ModelSource(name, str(folder))
    section = read_backbone_section(folder / RECIPE)
    options = {key: section[key] for key in OPTIONS if section.get(key) is not None}
    if options.get("dtype") == "auto":
        del options["dtype"]
    if (folder / "model").is_dir():
        return ModelSource(name, str(folder / "model"), None, options)
    if not (folder / "adapter").is_dir():
        raise GoldimaskError(
            f"{folder}: has a {RECIPE} but neither adapter/ nor model/; the run has not finished"
        )
    base = section.get("path") or section.get("name")
    if not base:
        raise GoldimaskError(f"{folder / RECIPE}: backbone: needs a name or a path")
    return ModelSource(name, str(base), folder / "adapter", options)


def refuse_unfinished(folder: Path) -> None:
    """A run that was interrupted is where its checkpoints are, not under its name."""
    partial = folder.with_name(f"{folder.name}.partial")
    if partial.is_dir():
        raise GoldimaskError(
            f"'{folder}' has not finished: its checkpoints are in '{partial}'. Continue with the "
            "same `goldimask train` command and --resume"
        )


def near(folder: Path) -> str:
    """What is there in place of a folder that is not."""
    found = sorted(f.name for f in folder.parent.iterdir() if f.is_dir())
    return nearest(folder.name, found) if found else f"'{folder.parent}' is empty"


def read_backbone_section(file: Path) -> dict[str, object]:
    """The `backbone` section of a run's resolved recipe."""
    try:
        recipe = parse_yaml(file.read_text("utf-8"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise GoldimaskError(f"{file}: cannot be read as text ({error})") from error
    section = recipe.get("backbone") if isinstance(recipe, dict) else None
    if isinstance(section, str):
        return {"name": section}
    if not isinstance(section, dict):
        raise GoldimaskError(f"{file}: backbone: missing; is this a run of `goldimask train`?")
    return section


def base_folder(base: str, weights: bool = True) -> Path:
    """The model folder of a base."""
    if base in BACKBONES:
        source = BACKBONES.get(base)
        asset = source.folder()
        if asset is None:
            return download(source.hub, weights)
        if source.clone and not asset.is_dir():
            raise GoldimaskError(
                f"backbone '{base}' ships with the repository, not with the installed package; "
                f"clone it and give the folder {source.clone}, or use 'tiny'"
            )
        if not asset.is_dir():
            raise GoldimaskError(f"backbone '{base}': {source.asset} is not in this installation")
        return asset
    path = Path(base).expanduser()
    if path.is_dir():
        # a run that trained all weights can be the base of another
        found = [f for f in (path, path / "model") if (f / CONFIG).is_file()]
        if not found and (path / "adapter").is_dir():
            raise GoldimaskError(
                f"{path}: a run with an adapter cannot be a base; merge it first (goldimask merge)"
            )
        if not found:
            raise GoldimaskError(
                f"{path}: no {CONFIG} and no {RECIPE}; neither a model folder nor a run folder"
            )
        return found[0]
    if base.count("/") == 1 and not base.startswith((".", "/", "~")) and not path.is_file():
        try:
            return download(base, weights)
        except GoldimaskError as error:
            there = f" ({near(path)})" if path.parent.is_dir() else ""
            raise GoldimaskError(f"no folder '{base}'{there}; as a Hub id: {error}") from error
    if path.parent.is_dir() and "/" in base and not path.exists():
        raise GoldimaskError(f"no folder '{base}'; {near(path)}")
    raise GoldimaskError(
        f"backbone '{base}' is neither a folder, a Hub id (owner/name) nor a known name; "
        f"{nearest(base, BACKBONES.names())}"
    )


def download(repo: str, weights: bool = True) -> Path:
    """The local snapshot of a Hub repository; cached files are used without a network."""
    patterns = SMALL + WEIGHTS * weights
    offline = "or download it elsewhere and pass the folder instead of the name"
    try:
        return Path(snapshot_download(repo, allow_patterns=patterns))
    except GatedRepoError as error:
        reason = f"is gated; accept its terms on the Hub and log in, {offline}"
        raise GoldimaskError(f"backbone '{repo}' {reason}") from error
    except (RepositoryNotFoundError, HFValidationError) as error:
        reason = f"does not exist on the Hub (or is private); check the name, {offline}"
        raise GoldimaskError(f"backbone '{repo}' {reason}") from error
    except (LocalEntryNotFoundError, OfflineModeIsEnabled) as error:
        reason = "is not in the local cache and the Hub cannot be reached; connect"
        raise GoldimaskError(f"backbone '{repo}' {reason}, {offline}") from error
    except (OSError, RuntimeError) as error:
        kind = type(error).__name__
        raise GoldimaskError(
            f"backbone '{repo}' could not be fetched ({kind}); connect, {offline}"
        ) from error
