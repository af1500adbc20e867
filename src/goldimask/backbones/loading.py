"""A name, a Hub id, a model folder or a run folder -> a `Backbone`, in one straight way.

    folder -> config -> family -> empty model -> weights -> tokenizer -> Backbone (-> adapter)

No remote code, no pickle, no guessing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
from torch import nn
from transformers import (
    BitsAndBytesConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Tokenizer,
)
from transformers.utils import logging as transformers_logging

from goldimask.backbones.attention import IMPLEMENTATIONS
from goldimask.backbones.base import Backbone, Family
from goldimask.backbones.checkpoint import (
    check_finite,
    check_tensors,
    complain,
    empty_model,
    read_config,
)
from goldimask.backbones.compiled import Compile, compile_blocks
from goldimask.backbones.liger import verify_liger
from goldimask.backbones.lookup import find_model
from goldimask.backbones.scoring import AttentionRows, Kernel, TokenScorer
from goldimask.errors import GoldimaskError, nearest, short
from goldimask.files import read_object
from goldimask.known import first
from goldimask.processes import WITHOUT_FLOAT64, own_device

Attention = Literal["sdpa", "eager", "flash_attention_2"]
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
# by the names that every version of transformers knows; newer ones have another for the first
TOKENIZERS: dict[str, type[PreTrainedTokenizerFast]] = {
    "PreTrainedTokenizerFast": PreTrainedTokenizerFast,
    "Qwen2Tokenizer": Qwen2Tokenizer,
}


def load_backbone(
    name_or_folder: str | Path,
    dtype: str | torch.dtype | None = None,
    device: str | torch.device | None = None,
    attn: Attention | None = None,
    quant: Literal["nf4"] | None = None,
    kernel: Kernel | None = None,
    attention_rows: AttentionRows | None = None,
    layout: str | None = None,
    shift: bool | None = None,
    mask_id: int | None = None,
    compile: Compile | None = None,
) -> Backbone:
    """Load `tiny`, another registered name, a model folder, a run folder or a Hub id.

    What is left out is as the run's recipe says, and for other models: `dtype` bfloat16 on an
    accelerator and float32 on the CPU, `device` the accelerator if there is one, `attn` sdpa (or
    eager, flash_attention_2), no `quant` ("nf4" needs bitsandbytes), `kernel` torch ("liger", fused
    scoring, needs liger-kernel), `attention_rows` token ("predictor" takes a candidate's attention
    from the row that predicts it; the same unless the alignment is shifted). `layout`, `shift` and
    `mask_id` say what a checkpoint that is not known by name does not (`known.py`). `compile` is
    never taken from a run: it pays over a training alone. A run's adapter stays unmerged.
    """
    source = find_model(name_or_folder)
    recipe = source.options
    attn = cast(Attention, one_of("attn", attn or recipe.get("attn", "sdpa"), IMPLEMENTATIONS))
    kernel = cast(Kernel, one_of("kernel", kernel or recipe.get("kernel", "torch"), Kernel))
    rows = attention_rows or recipe.get("attention_rows", "token")
    rows = cast(AttentionRows, one_of("attention_rows", rows, AttentionRows))
    if compile is not None:
        one_of("compile", compile, Compile)
    place = torch.device(device or own_device())
    if place.type in WITHOUT_FLOAT64:
        raise GoldimaskError(f"device: '{place}' has no float64, which goldimask needs; use cpu")
    precision = resolve_dtype(dtype or recipe.get("dtype"), place)

    folder = source.folder()
    asked = {"layout": layout, "shift": shift, "mask_id": mask_id}
    config, family = read_config(folder, source.base, source.settings(asked))
    check_tensors(folder, config, family)
    model = load_model(folder, config, family, precision, place, attn, quant or recipe.get("quant"))
    backbone = assemble(model, load_tokenizer(folder, family), family, source.name, str(folder))
    if kernel == "liger":
        verify_liger(place)
    if compile is not None:
        compile_blocks(model)
    scorer = replace(backbone.scorer, kernel=kernel, attention_rows=rows)
    backbone = replace(backbone, scorer=scorer)
    if source.adapter is None:
        return backbone
    from goldimask.backbones.lora import load_adapter  # PEFT takes a second to import

    return load_adapter(backbone, source.adapter)


def empty_backbone(name_or_folder: str | Path, **given: Any) -> Backbone:
    """The base of a model with its tokenizer but without weights, for what needs only shapes."""
    source = find_model(name_or_folder)
    folder = source.folder(weights=False)
    config, family = read_config(folder, source.base, source.settings(given))
    tokenizer = load_tokenizer(folder, family)
    return assemble(empty_model(config, family), tokenizer, family, source.name, str(folder))


def load_model(
    folder: Path,
    config: PreTrainedConfig,
    family: Family,
    dtype: torch.dtype,
    device: torch.device,
    attn: Attention,
    quant: str | None,
) -> PreTrainedModel:
    """The weights through transformers' loader, which also places and quantises."""
    options: dict[str, Any] = {} if quant is None else {"quantization_config": quantisation(quant)}
    if quant is not None or device.type != "cpu":  # straight to the device, never twice in memory
        options["device_map"] = {"": device}
    load: Any = family.model.from_pretrained  # returns a pair with `output_loading_info`
    try:
        with quiet():
            model, info = load(
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
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError, OSError) as error:
        reason = short(" ".join(str(error).split()))
        raise GoldimaskError(f"{folder}: does not load: {reason}") from error
    complain(
        str(folder),
        missing=sorted(info["missing_keys"]),
        unexpected=sorted(info["unexpected_keys"]),
        wrong=[str(x) for x in info["mismatched_keys"]],
    )
    if config.tie_word_embeddings and model.lm_head.weight is not model.model.embed_tokens.weight:
        raise GoldimaskError(
            f"{folder / 'config.json'}: tie_word_embeddings is true, but the stored lm_head.weight "
            "is not the embedding; set it to false, or delete the tensor"
        )
    check_finite(model.named_parameters(), str(folder))
    return model.eval()


def load_tokenizer(folder: Path, family: Family) -> PreTrainedTokenizerFast:
    """Stock tokenizer classes only: the family's, or the plain one where the files ask for it."""
    path = folder / "tokenizer_config.json"
    plain = "PreTrainedTokenizerFast"
    try:
        declared = read_object(path) if path.is_file() else {}
        kind = plain if declared.get("tokenizer_class") == plain else family.tokenizer
        with quiet():
            found = TOKENIZERS[kind].from_pretrained(str(folder), local_files_only=True)
            found("a")  # settings of the wrong kind show when it is used
            return found
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises many kinds, a panic of Rust among them
        reason = short(" ".join(str(error).split()))
        raise GoldimaskError(f"{folder}: the tokenizer does not load ({reason})") from error


def assemble(
    model: nn.Module,
    tokenizer: PreTrainedTokenizerFast,
    family: Family,
    name: str,
    path: str = "",
) -> Backbone:
    """Collect the special ids and the alignment; refuses ids that the embedding does not have."""
    config: Any = model.config
    mask_id = first(config.mask_token_id, tokenizer.mask_token_id)
    if not isinstance(mask_id, int) or not 0 <= mask_id < config.vocab_size:
        raise GoldimaskError(
            f"{path or name}: mask_token_id is {mask_id}, not a row of the embedding "
            f"({config.vocab_size} rows); set it in config.json, or give backbone.mask_id"
        )
    declared = getattr(config, "padding_token_id", None)
    pad_id = first(declared, config.pad_token_id, tokenizer.pad_token_id)
    turn_end = first(tokenizer.get_vocab().get(family.turn_end), tokenizer.eos_token_id)
    if pad_id is None or turn_end is None:
        missing = "pad token" if pad_id is None else "turn end token"
        raise GoldimaskError(f"{path or name}: the tokenizer has no {missing}")
    largest = max((pad_id, turn_end, *tokenizer.get_vocab().values()))
    if largest >= config.vocab_size or min(pad_id, turn_end) < 0:
        raise GoldimaskError(
            f"{path or name}: the tokenizer knows id {largest}, the embedding has "
            f"{config.vocab_size} rows; these files do not belong together"
        )
    layers, shift, length = (
        *(config.num_hidden_layers, config.logit_shift, config.max_position_embeddings),
    )
    usable = first(getattr(config, "usable_length", None), length)
    return Backbone(
        model=model,
        tokenizer=tokenizer,
        name=name,
        family=family,
        mask_id=mask_id,
        pad_id=pad_id,
        turn_end_id=turn_end,
        special_ids=special_ids(tokenizer) | {mask_id, pad_id, turn_end},
        shift=shift,
        layers=layers,
        max_length=length,
        usable_length=min(usable, length),
        scorer=TokenScorer(mask_id, shift, layers),
        path=path,
    )


def special_ids(tokenizer: PreTrainedTokenizerFast) -> frozenset[int]:
    """Every id that the tokenizer marks as special."""
    added = {i for i, token in tokenizer.added_tokens_decoder.items() if token.special}
    return frozenset(added | set(tokenizer.all_special_ids))


def quantisation(quant: str) -> BitsAndBytesConfig:
    """The 4-bit settings of `quant`, from the `quant` extra."""
    if quant != "nf4":
        raise GoldimaskError(f"backbone.quant: unknown '{quant}'; valid: nf4")
    if find_spec("bitsandbytes") is None:
        raise GoldimaskError(
            "backbone.quant: nf4 needs bitsandbytes; pip install 'goldimask[quant]'"
        )
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )


def one_of(key: str, value: str, valid: Any) -> str:
    """The value, if it is among the valid ones (names, or a `Literal`)."""
    names: Iterable[str] = get_args(valid) or valid
    if value not in names:
        raise GoldimaskError(f"backbone.{key}: unknown '{value}'; {nearest(value, names)}")
    return value


def resolve_dtype(dtype: str | torch.dtype | None, device: torch.device) -> torch.dtype:
    """A precision by name; without one, what the device is good at."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype is None:
        return torch.float32 if device.type == "cpu" else torch.bfloat16
    return DTYPES[one_of("dtype", dtype, DTYPES)]


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
