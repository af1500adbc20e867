"""What a command line calls RUN: a run folder, a model folder, a backbone's name or a Hub id.

A run folder is written by `goldimask train`: `recipe.yaml` (resolved) beside `adapter/` (LoRA) or
`model/` (all weights). Adapters are used unmerged (D21).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from goldimask.errors import GoldimaskError

if TYPE_CHECKING:
    from goldimask.backbones import Backbone

RECIPE = "recipe.yaml"


@dataclass(frozen=True)
class Run:
    """Where the weights of a RUN are."""

    name: str
    base: str  # what `load_backbone` is given
    adapter: Path | None = None
    options: tuple[tuple[str, Any], ...] = ()  # dtype, attn, quant of the recipe


def find_run(path: str | Path) -> Run:
    """Resolve a RUN without loading anything heavy."""
    folder = Path(path).expanduser()
    if not (folder / RECIPE).is_file():
        if folder.is_dir() and not (folder / "config.json").is_file():
            raise GoldimaskError(
                f"{path}: neither a run folder ({RECIPE}) nor a model folder (config.json)"
            )
        return Run(name=folder.name if folder.is_dir() else str(path), base=str(path))
    section = read_section(folder / RECIPE)
    options = {k: section[k] for k in ("dtype", "attn", "quant") if section.get(k)}
    if options.get("dtype") == "auto":
        del options["dtype"]
    name = folder.resolve().name
    if (folder / "model").is_dir():
        return Run(name, str(folder / "model"), None, tuple(options.items()))
    if (folder / "adapter").is_dir():
        base = section.get("path") or section.get("name")
        if not base:
            raise GoldimaskError(f"{folder / RECIPE}: backbone: needs a name or a path")
        return Run(name, str(base), folder / "adapter", tuple(options.items()))
    raise GoldimaskError(
        f"{path}: has a {RECIPE} but neither adapter/ nor model/; the run has not finished"
    )


def read_section(file: Path) -> dict[str, Any]:
    """The `backbone` section of a resolved recipe."""
    import yaml

    try:
        recipe = yaml.safe_load(file.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise GoldimaskError(f"{file}: not valid YAML ({error})") from error
    section = recipe.get("backbone") if isinstance(recipe, dict) else None
    if isinstance(section, str):
        return {"name": section}
    if not isinstance(section, dict):
        raise GoldimaskError(f"{file}: backbone: missing; is this a run of `goldimask train`?")
    return section


def load_run(path: str | Path, device: str | None = None, dtype: str | None = None) -> Backbone:
    """The model of a RUN, ready to decode; `dtype` replaces the recipe's."""
    from goldimask.backbones import load_backbone

    run = find_run(path)
    options = {**dict(run.options), **({"dtype": dtype} if dtype else {})}
    backbone = load_backbone(run.base, device=device, **options)
    if run.adapter is not None:
        from goldimask.backbones.lora import load_adapter

        backbone = load_adapter(backbone, run.adapter)
    return replace(backbone, name=run.name)
