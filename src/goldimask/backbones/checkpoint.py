"""What a checkpoint folder holds, read without loading it.

Only safetensors headers and JSON are read. Every tensor that the architecture has must be there
with its shape, and nothing else: a tensor that is missing would otherwise be left at random
values.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from transformers import PreTrainedConfig, PreTrainedModel

from goldimask.backbones.base import Family
from goldimask.backbones.dream import DREAM
from goldimask.backbones.llada import LLADA
from goldimask.errors import GoldimaskError

PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
Shapes = dict[str, tuple[int, ...]]
FAMILIES = {family.name: family for family in (LLADA, DREAM)}


def read_config(folder: Path) -> tuple[PreTrainedConfig, Family]:
    """config.json as our config object; unsupported models and unreadable files are errors."""
    path = folder / "config.json"
    if not path.is_file():
        raise GoldimaskError(f"{folder}: no config.json; is this a model folder?")
    try:
        fields = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise GoldimaskError(f"{path}: not readable as JSON ({error})") from error
    found = fields.pop("model_type", None)
    family = FAMILIES.get(str(found).lower())
    if family is None:
        supported = ", ".join(sorted(f.config.model_type for f in FAMILIES.values()))
        raise GoldimaskError(f"{path}: model_type '{found}' is not supported (valid: {supported})")
    for key in ("auto_map", "architectures", "transformers_version"):
        fields.pop(key, None)
    try:
        return family.config(**fields), family
    except GoldimaskError as error:
        raise GoldimaskError(str(error).replace("config.json", str(path), 1)) from error
    except (TypeError, ValueError) as error:
        raise GoldimaskError(f"{path}: {error}") from error


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that the index names, or the single file."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise GoldimaskError(f"{index}: not a safetensors index ({error})") from error
        absent = [name for name in names if not (folder / name).is_file()]
        if absent:
            raise GoldimaskError(
                f"{folder}: {index.name} names files that are not there: {', '.join(absent)}; "
                "download the folder again"
            )
        return [folder / name for name in names]
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    pickles = sorted(p.name for pattern in PICKLES for p in folder.glob(pattern))
    if pickles:
        raise GoldimaskError(
            f"{folder}: only pickle weights ({', '.join(pickles[:3])}); loading a pickle can run "
            "any code it contains, so convert them to safetensors first"
        )
    raise GoldimaskError(f"{folder}: no model.safetensors and no index; nothing to load")


def read_shapes(folder: Path) -> tuple[Shapes, dict[str, int]]:
    """Name -> shape of every stored tensor, and how many there are of each dtype."""
    shapes: Shapes = {}
    dtypes: dict[str, int] = {}
    for path in weight_files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 (not a dict)
                    piece = file.get_slice(name)
                    shapes[name] = tuple(piece.get_shape())
                    dtypes[piece.get_dtype()] = dtypes.get(piece.get_dtype(), 0) + 1
        except (SafetensorError, OSError) as error:
            raise GoldimaskError(f"{path}: not a readable safetensors file ({error})") from error
    return shapes, dtypes


def empty_model(config: PreTrainedConfig, family: Family) -> PreTrainedModel:
    """The architecture without memory behind it."""
    with torch.device("meta"):
        return family.model(config)


def check_tensors(folder: Path, config: PreTrainedConfig, family: Family) -> Shapes:
    """Compare the stored tensors with the architecture; an error lists the difference."""
    stored, _ = read_shapes(folder)
    stored = {family.to_native(k): v for k, v in stored.items()}
    expected = {k: tuple(v.shape) for k, v in empty_model(config, family).state_dict().items()}
    if config.tie_word_embeddings and "lm_head.weight" not in stored:
        expected.pop("lm_head.weight")
    wrong = [
        f"{name} is {list(stored[name])}, expected {list(shape)}"
        for name, shape in expected.items()
        if name in stored and stored[name] != shape
    ]
    complain(
        str(folder),
        missing=sorted(expected.keys() - stored.keys()),
        unexpected=sorted(stored.keys() - expected.keys()),
        wrong=wrong,
    )
    return stored


def complain(
    where: str,
    against: str = "config.json",
    *,
    missing: Sequence[str] = (),
    unexpected: Sequence[str] = (),
    wrong: Sequence[str] = (),
) -> None:
    """One error for all problems, each list cut at eight names; silent when there are none."""
    parts = []
    for kind, names in (
        ("missing", missing),
        ("unexpected", unexpected),
        ("wrongly shaped", wrong),
    ):
        if names:
            more = f" and {len(names) - 8} more" if len(names) > 8 else ""
            parts.append(f"{len(names)} {kind} ({', '.join(names[:8])}{more})")
    if parts:
        raise GoldimaskError(f"{where}: tensors do not fit {against}: {'; '.join(parts)}")
