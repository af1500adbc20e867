"""A name, a Hub id or a folder -> a `Backbone`: no remote code, no pickle, no guessing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer
from transformers.utils import logging as transformers_logging

from goldimask.backbones.assemble import FAMILIES, assemble
from goldimask.backbones.attention import IMPLEMENTATIONS
from goldimask.backbones.base import BACKBONES, Backbone, Family
from goldimask.backbones.checkpoint import check_tensors, complain, read_config
from goldimask.backbones.hub import download
from goldimask.backbones.liger import verify_liger
from goldimask.backbones.scoring import AttentionRows, Kernel
from goldimask.errors import GoldimaskError, nearest

KERNELS = ("torch", "liger")
ROWS = ("token", "predictor")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def load_backbone(
    name_or_path: str | Path,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    attn: str = "sdpa",
    quant: Literal["nf4"] | None = None,
    kernel: Kernel = "torch",
    attention_rows: AttentionRows = "token",
) -> Backbone:
    """Load `tiny`, another registered name, a local folder or a Hub id.

    `dtype` defaults to bfloat16 on an accelerator and float32 on the CPU; `device` to the
    accelerator if there is one. `attn` is sdpa, eager or flash_attention_2. `quant="nf4"` needs
    bitsandbytes, `kernel="liger"` (fused scoring) liger-kernel. `attention_rows="predictor"` takes
    a candidate's attention from the row that predicts it; only Dream's differs.
    """
    if attn not in IMPLEMENTATIONS:
        raise GoldimaskError(f"backbone.attn: unknown '{attn}'; {nearest(attn, IMPLEMENTATIONS)}")
    if kernel not in KERNELS:
        raise GoldimaskError(f"backbone.kernel: unknown '{kernel}'; {nearest(kernel, KERNELS)}")
    if attention_rows not in ROWS:
        hint = nearest(attention_rows, ROWS)
        raise GoldimaskError(f"backbone.attention_rows: unknown '{attention_rows}'; {hint}")
    place = torch.device(device or default_device())
    folder, name = find_folder(name_or_path)
    config, family = read_config(folder)
    check_tensors(folder, config, family)
    model = load_model(folder, config, family, resolve_dtype(dtype, place), place, attn, quant)
    backbone = assemble(model, load_tokenizer(folder, family), name, str(folder))
    if kernel == "liger":
        verify_liger(place)
    scorer = replace(backbone.scorer, kernel=kernel, attention_rows=attention_rows)
    return replace(backbone, scorer=scorer)


def find_folder(name_or_path: str | Path, weights: bool = True) -> tuple[Path, str]:
    """Where the files are, and what to call the model; downloads from the Hub if need be."""
    text = str(name_or_path)
    if text in BACKBONES:
        source = BACKBONES.get(text)
        asset = source.folder()
        if asset is None:
            return download(source.hub, weights), text
        if source.clone and not asset.is_dir():
            raise GoldimaskError(
                f"backbone '{text}' ships with the repository, not with the installed package; "
                f"clone it and give the folder {source.clone}, or use 'tiny'"
            )
        if not asset.is_dir():
            raise GoldimaskError(f"backbone '{text}': {source.asset} is not in this installation")
        return asset, text
    path = Path(text).expanduser()
    if path.is_dir():
        return path, path.resolve().name
    if text.count("/") == 1 and not text.startswith((".", "/", "~")) and not path.is_file():
        return download(text, weights), text
    raise GoldimaskError(
        f"backbone '{text}' is neither a folder, a Hub id (owner/name) nor a known name; "
        f"{nearest(text, BACKBONES.names())}"
    )


def load_model(
    folder: Path,
    config: Any,
    family: Family,
    dtype: torch.dtype,
    device: torch.device,
    attn: str,
    quant: str | None,
) -> Any:
    """The weights through transformers' loader, which also places and quantises."""
    options: dict[str, Any] = {} if quant is None else {"quantization_config": quantisation(quant)}
    if quant is not None or device.type != "cpu":  # straight to the device, never twice in memory
        options["device_map"] = {"": device}
    try:
        with quiet():
            model, info = FAMILIES[family][1].from_pretrained(  # type: ignore[attr-defined]
                str(folder),
                config=config,
                dtype=dtype,  # never .to(bfloat16) afterwards: that also casts RoPE's frequencies
                attn_implementation=attn,
                use_safetensors=True,
                local_files_only=True,
                output_loading_info=True,
                **options,
            )
    except ImportError as error:  # a kernel or a quantiser that is not installed
        raise GoldimaskError(f"backbone.attn / backbone.quant: {error}") from error
    complain(
        str(folder),
        missing=sorted(info["missing_keys"]),
        unexpected=sorted(info["unexpected_keys"]),
        wrong=[str(x) for x in info["mismatched_keys"]],
    )
    return model.eval()


def load_tokenizer(folder: Path, family: Family) -> Any:
    """Stock tokenizer classes only; the mask token is declared where the checkpoint does not."""
    path = folder / "tokenizer_config.json"
    try:
        declared = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        plain = family == "llada" or declared.get("tokenizer_class") == "PreTrainedTokenizerFast"
        kind = PreTrainedTokenizerFast if plain else Qwen2Tokenizer
        with quiet():
            return kind.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:  # the library raises many kinds here
        raise GoldimaskError(f"{folder}: the tokenizer does not load ({error})") from error


def quantisation(quant: str) -> Any:
    """The 4-bit settings of `quant`, from the `quant` extra."""
    if quant != "nf4":
        raise GoldimaskError(f"backbone.quant: unknown '{quant}'; valid: nf4")
    from importlib.util import find_spec

    if find_spec("bitsandbytes") is None:
        raise GoldimaskError(
            "backbone.quant: nf4 needs bitsandbytes; pip install 'goldimask[quant]'"
        )
    from transformers import BitsAndBytesConfig

    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def resolve_dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    if dtype not in DTYPES:
        raise GoldimaskError(f"backbone.dtype: unknown '{dtype}'; {nearest(dtype, DTYPES)}")
    return DTYPES[dtype]


def default_device() -> str:
    accelerator = (
        torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    )
    return "cpu" if accelerator is None else accelerator.type


@contextmanager
def quiet() -> Iterator[None]:
    """No bars and no advice from transformers while loading; errors still raise."""
    level = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()
