"""Published checkpoints, and what the files of a download do not say.

    layout          whose blocks and names it has: a `Family`
    shift           row i predicts token i + 1, not token i
    mask_id         the token that hides another
    usable_length   tokens, where the model card promises fewer than the config

`model_type` does not tell them apart: Open-dCoder says `qwen2`, LLaDA-MoE says `llada`. What is
given in a recipe comes first, then what goldimask wrote into config.json, then the repository, then
`architectures` and `model_type`. What is still open is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError, short

SETTINGS = ("layout", "shift", "mask_id")  # keys of a recipe's `backbone` section
LLADA_8B = {
    "d_model": 4096,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "mlp_hidden_size": 12288,
    "embedding_size": 126464,
    "max_sequence_length": 4096,
}


def sizes(
    width: int, blocks: int, heads: int, kv: int, mlp: int, vocabulary: int, **more: Any
) -> dict[str, Any]:
    """A config in the words of transformers."""
    return {
        "hidden_size": width,
        "num_hidden_layers": blocks,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": mlp,
        "vocab_size": vocabulary,
        **more,
    }


QWEN_7B = sizes(3584, 28, 28, 4, 18944, 152064)
QWEN_05B = sizes(896, 24, 14, 2, 4864, 151936, tie_word_embeddings=True)
QWEN3_06B = sizes(1024, 28, 16, 8, 3072, 151936, head_dim=128, tie_word_embeddings=True)
QWEN3_17B = sizes(2048, 28, 16, 8, 6144, 151936, head_dim=128)
LLAMA_7B = sizes(4096, 32, 32, 32, 11008, 32000)
MOE_7B = sizes(
    *(2048, 16, 16, 16, 1024, 157184),
    num_experts=64,
    num_experts_per_tok=8,
    moe_intermediate_size=1024,
)


@dataclass(frozen=True)
class Published:
    """A checkpoint on the Hub."""

    name: str  # what to call it in a recipe
    hub: str
    layout: str
    shift: bool
    summary: str
    sizes: Mapping[str, Any]  # for an estimate before anything is downloaded
    mask_id: int | None = None  # None: the config or the tokenizer says it
    usable_length: int | None = None


def each(
    name: str, hub: str, *facts: Any, kinds: tuple[str, ...] = ("Base", "Instruct"), **more: Any
) -> list[Published]:
    """One row for every kind of a checkpoint."""
    return [Published(name.format(k.lower()), hub.format(k), *facts, **more) for k in kinds]


CODERS = ("Base", "Instruct", "cpGRPO")
QWEN3 = "dllm-hub/Qwen3-0.6B-diffusion-mdlm-v0.1"
QWEN2 = "dllm-hub/Qwen2.5-Coder-0.5B-Instruct-diffusion-mdlm-v0.1"
MOE = "inclusionAI/LLaDA-MoE-7B-A1B-{}"
PUBLISHED = (
    *each("llada-8b-{}", "GSAI-ML/LLaDA-8B-{}", "llada", False, "LLaDA, 8B", LLADA_8B),
    Published("llada-1.5", "GSAI-ML/LLaDA-1.5", "llada", False, "LLaDA 1.5, 8B", LLADA_8B),
    *each("llada-moe-7b-{}", MOE, "qwen3_moe", False, "7B, 1.4B active", MOE_7B, 156895),
    *each(
        *("dream-7b-{}", "Dream-org/Dream-v0-{}-7B", "dream", True, "Dream, 7B", QWEN_7B),
        usable_length=2048,  # the model card; the config's 131072 is Qwen2.5's
    ),
    *each("dream-coder-7b-{}", "Dream-org/Dream-Coder-v0-{}-7B", "dream", True, "7B", QWEN_7B),
    *each("diffucoder-7b-{}", "apple/DiffuCoder-7B-{}", "dream", True, "7B", QWEN_7B, kinds=CODERS),
    Published("qwen3-0.6b-diffusion", QWEN3, "qwen3", False, "For a laptop", QWEN3_06B),
    Published("qwen2.5-coder-0.5b-diffusion", QWEN2, "qwen2", False, "For a laptop", QWEN_05B),
    Published("open-dcoder-0.5b", "fredzzp/open-dcoder-0.5B", "qwen2", True, "0.5B", QWEN_05B),
    *each("coda-1.7b-{}", "Salesforce/CoDA-v0-{}", "qwen3", True, "CoDA, 1.7B", QWEN3_17B),
    Published(
        *("diffullama-7b", "diffusionfamily/diffullama", "diffullama", True, "7B", LLAMA_7B, 811)
    ),
)


@dataclass(frozen=True)
class Settings:
    """What was settled; `shift` and `layout` are always known."""

    layout: str
    shift: bool
    mask_id: int | None = None
    usable_length: int | None = None


@dataclass(frozen=True)
class Sign:
    """What `architectures[0]` or `model_type` gives away."""

    layout: str
    shift: bool | None = None  # None: a causal model of this name exists too
    mask_id: int | None = None


SIGNS = {
    "LLaDAMoEModelLM": Sign("qwen3_moe", False, 156895),
    "DiscreteDiffusionModel": Sign("diffullama", True, 811),
    "llada": Sign("llada", False),
    "Dream": Sign("dream", True),
    "CoDA": Sign("qwen3", True),
    "a2d-llama": Sign("llama", False),
    "a2d-qwen2": Sign("qwen2", False),
    "a2d-qwen3": Sign("qwen3", False),
    "diffullama": Sign("diffullama", True),
    "llama": Sign("llama"),
    "qwen2": Sign("qwen2"),
    "qwen3": Sign("qwen3"),
    "qwen3_moe": Sign("qwen3_moe"),
}
LAYOUTS = tuple(sorted({sign.layout for sign in SIGNS.values()}))


def settle(
    fields: Mapping[str, Any],
    folder: Path,
    source: str = "",
    given: Mapping[str, Any] | None = None,
) -> Settings:
    """Settings of a config.json in `folder`, which `source` (a name or Hub id) led to."""
    path = folder / "config.json"
    asked = {k: v for k, v in (given or {}).items() if v is not None}
    row = published(source, folder, fields)
    sign = sign_of(fields)
    refuse_blocks(fields, path, row.hub if row else f"{source} {folder.name}")
    layout = first(asked.get("layout"), fields.get("layout"), *(x.layout for x in (row, sign) if x))
    if layout not in LAYOUTS:
        kind = f"model_type '{short(kind_of(fields))}'"
        kind = f"backbone.layout '{short(layout)}'" if layout else kind
        raise GoldimaskError(
            f"{path}: {kind} is not supported (valid: {', '.join(LAYOUTS if layout else SIGNS)}); "
            f"for one of these under another name give backbone.layout, shift and mask_id"
        )
    found = [x for x in (row, sign) if x is not None and x.layout == layout]
    shift = first(asked.get("shift"), fields.get("logit_shift"), *(x.shift for x in found))
    if not isinstance(shift, bool):
        why = f"model_type '{short(kind_of(fields))}' does not say which token a row predicts"
        why = why if shift is None else f"logit_shift: {short(shift)} is not true or false"
        raise GoldimaskError(
            f"{path}: {why}; give backbone.shift (true: row i predicts token i + 1, false: token "
            "i) in the recipe, or write logit_shift into this file"
        )
    mask = first(asked.get("mask_id"), fields.get("mask_token_id"), *(x.mask_id for x in found))
    usable = first(fields.get("usable_length"), row.usable_length if row else None)
    return Settings(layout, shift, mask, usable)


def published(source: str, folder: Path, fields: Mapping[str, Any]) -> Published | None:
    """The row of a registered name, a Hub id, a download in the Hub's cache or under its name."""
    cached = str(folder).replace("--", "/").lower()  # models--owner--name/snapshots/...
    names = {source.lower(), folder.name.lower(), str(fields.get("_name_or_path", "")).lower()}
    for row in PUBLISHED:
        hub = row.hub.lower()
        if {row.name, hub, hub.split("/")[1]} & names or f"models/{hub}/" in cached:
            return row
    return None


def sign_of(fields: Mapping[str, Any]) -> Sign | None:
    """What the config gives away; LLaDA-MoE calls itself `llada`, its experts tell."""
    if kind_of(fields) == "llada" and fields.get("num_experts"):
        return SIGNS["LLaDAMoEModelLM"]
    signs = {name.lower(): sign for name, sign in SIGNS.items()}
    architectures = fields.get("architectures")
    first_of = architectures[:1] if isinstance(architectures, list) else []
    known = (signs.get(str(name).lower()) for name in (*first_of, kind_of(fields)))
    return next((sign for sign in known if sign), None)


def kind_of(fields: Mapping[str, Any]) -> str:
    """`model_type`."""
    return str(fields.get("model_type"))


def refuse_blocks(fields: Mapping[str, Any], path: Path, name: str) -> None:
    """Block-causal models would load, and compute something else than they were trained for."""
    for key in ("block_size", "bd_size"):
        if fields.get(key):
            raise GoldimaskError(
                f"{path}: {key}={short(fields[key])}: attention between blocks is causal in this "
                "model; only full attention is supported"
            )
    if "bd3lm" in name.lower():
        raise GoldimaskError(
            f"{path.parent}: a BD3LM checkpoint: attention between blocks is causal in this model; "
            "only full attention is supported (its sibling -mdlm- has it)"
        )


def first(*values: Any) -> Any:
    """The first value that is known (0 and false are values)."""
    return next((v for v in values if v is not None), None)
