"""What a checkpoint folder holds, read without loading it.

Only safetensors headers and JSON are read. Every tensor that the architecture has must be there
with its shape, and nothing else: a tensor that is missing would otherwise be left at random
values.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from goldimask.backbones.base import Family
from goldimask.backbones.llada import LLADA
from goldimask.backbones.stock import STOCK
from goldimask.errors import GoldimaskError, short
from goldimask.files import read_object
from goldimask.known import settle

LAYERS, LARGEST = 1_000, 1 << 28  # nobody has more
SIZES = (
    *("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads"),
    *("num_key_value_heads", "vocab_size", "max_position_embeddings"),
)
FLOATS = {"F64", "F32", "F16", "BF16"}
INSIDE = re.compile(r"[^/\\\0]{1,200}\.safetensors")
BLOCK = re.compile(r"model\.layers\.(\d+)\.")
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
Shapes = dict[str, tuple[int, ...]]
FAMILIES = {family.name: family for family in (LLADA, *STOCK)}


def read_config(
    folder: Path, source: str = "", given: Mapping[str, Any] | None = None
) -> tuple[PreTrainedConfig, Family]:
    """config.json as our config object; unsupported models and unreadable files are errors.

    `source` is the name that led to the folder, `given` are settings of a recipe (`known.py`).
    """
    path = folder / "config.json"
    if not path.is_file():
        raise GoldimaskError(f"{folder}: no config.json; is this a model folder?")
    fields = read_object(path)
    for key in ("num_hidden_layers", "n_layers"):  # some configs make a list of that length
        if not isinstance(fields.get(key, 1), int) or not 0 < fields.get(key, 1) <= LAYERS:
            raise GoldimaskError(f"{path}: {key}: {short(fields[key])} is not 1 to {LAYERS}")
    settings = settle(fields, folder, source, given)
    family = FAMILIES[settings.layout]
    named = {k: fields.pop(k) for k in ("model_type", "architectures") if k in fields}
    for key in ("auto_map", "layout", "transformers_version", "_name_or_path"):
        fields.pop(key, None)
    fields = {"published": named, **fields, "logit_shift": settings.shift}
    fields |= {"mask_token_id": settings.mask_id, "usable_length": settings.usable_length}
    try:
        config = family.config(**family.read(fields))
    except GoldimaskError as error:
        raise GoldimaskError(str(error).replace("config.json", str(path), 1)) from error
    except Exception as error:  # the library raises many kinds
        raise GoldimaskError(f"{path}: {short(' '.join(str(error).split()))}") from error
    for key in SIZES:
        size = getattr(config, key, 1)
        if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= LARGEST:
            raise GoldimaskError(f"{path}: {key}: {short(size)} is not a size")
    return config, family


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that the index names, or the single file."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        table = read_object(index).get("weight_map")
        named: list[Any] = list(table.values()) if isinstance(table, dict) else [table]
        outside = [n for n in named if not isinstance(n, str) or not INSIDE.fullmatch(n)]
        if outside:
            raise GoldimaskError(
                f"{index}: not a safetensors index: its weight_map names {short(outside[0])}, not "
                "a .safetensors file of this folder"
            )
        names = sorted(set(named))
        absent = [name for name in names if not (folder / name).is_file()]
        if absent:
            raise GoldimaskError(
                f"{folder}: {index.name} names files that are not there: "
                f"{short(', '.join(absent))}; download the folder again"
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
            with safe_open(path, framework="pt") as file:  # checks lengths, offsets and overlaps
                for name in file.keys():  # noqa: SIM118 (not a dict)
                    piece = file.get_slice(name)
                    if name in shapes:
                        raise GoldimaskError(f"{path}: '{short(name)}' is in another file as well")
                    shapes[name] = tuple(piece.get_shape())
                    dtypes[piece.get_dtype()] = dtypes.get(piece.get_dtype(), 0) + 1
        except (SafetensorError, OSError) as error:
            raise GoldimaskError(f"{path}: not a readable safetensors file ({error})") from error
    return shapes, dtypes


def empty_model(config: PreTrainedConfig, family: Family) -> PreTrainedModel:
    """The architecture without memory behind it."""
    try:
        with torch.device("meta"):
            return family.model(config)
    except Exception as error:  # sizes that do not go together
        raise GoldimaskError(
            f"config.json does not describe a model: {type(error).__name__}: {short(str(error))}"
        ) from error


def check_finite(named: Iterable[tuple[str, Tensor]], where: str) -> None:
    """Refuse weights with NaN or infinities. A sum shows them, unless it is too large itself."""
    for name, tensor in named:
        if not tensor.is_floating_point() or tensor.is_meta:
            continue
        total = tensor.detach().sum(dtype=torch.float32)
        if not torch.isfinite(total) and not torch.isfinite(tensor).all():
            raise GoldimaskError(f"{where}: '{name}' holds NaN or infinite weights; get it again")


def check_tensors(folder: Path, config: PreTrainedConfig, family: Family) -> Shapes:
    """Compare the stored tensors with the architecture; an error lists the difference."""
    stored, dtypes = read_shapes(folder)
    strange = sorted(dtypes.keys() - FLOATS)
    if strange:
        raise GoldimaskError(f"{folder}: weights of type {', '.join(strange)} are not supported")
    stored = {family.to_native(k): v for k, v in stored.items()}
    blocks = {m[1] for m in map(BLOCK.match, stored) if m}
    if len(blocks) != config.num_hidden_layers:  # before a model of so many is made
        raise GoldimaskError(
            f"{folder}: tensors do not fit config.json: it has {config.num_hidden_layers} layers, "
            f"the stored tensors are of {len(blocks)}"
        )
    state = empty_model(config, family).state_dict()
    if not state.keys() & {k for k in stored if ".experts." in k}:  # as published, one by one
        state = family.split(state)
    expected = {k: tuple(v.shape) for k, v in state.items()}
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
