"""`goldimask train --dry-run`: what a recipe takes, without loading a weight.

P parameters outside the embedding, n tokens of a step, per token:

    forward 2P, backward 4P (2P when the weights are frozen, LoRA), 2P more with gradient
    checkpointing, 2P for a probe pass
    hours = steps x n x FLOP / (processes x TFLOPS x 10^12) / 3600

`TFLOPS` is what one accelerator sustains, not its peak: 150 is about half the peak of an A100, so
take the hours as an order of magnitude. Token counts come from the data when it and the tokenizer
are at hand, and from `data.max_length` (an upper bound) otherwise; `tokens_from` says which. Memory
is the estimate of `goldimask model`, for one process; FSDP2 divides weights, gradients and
optimiser state by the number of processes.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from goldimask.backbones.base import Family
from goldimask.backbones.checkpoint import empty_model
from goldimask.backbones.dream import DREAM
from goldimask.backbones.llada import LLADA
from goldimask.backbones.loading import empty_backbone
from goldimask.backbones.summary import adapter_size, memory
from goldimask.config import Recipe
from goldimask.errors import GoldimaskError
from goldimask.train.arguments import DEFAULTS, check_trainer, micro_batches
from goldimask.train.prepare import make_data, make_method

TFLOPS = 150.0

LLADA_8B = {
    "d_model": 4096,
    "n_heads": 32,
    "n_kv_heads": 32,
    "n_layers": 32,
    "mlp_hidden_size": 12288,
    "embedding_size": 126464,
    "vocab_size": 126464,
    "max_sequence_length": 4096,
    "mask_token_id": 126336,
}
DREAM_7B = {
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "num_hidden_layers": 28,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "mask_token_id": 151666,
}
KNOWN: dict[str, tuple[Family, dict[str, Any]]] = {  # sizes of the named backbones
    "llada-8b-instruct": (LLADA, LLADA_8B),
    "llada-1.5": (LLADA, LLADA_8B),
    "dream-7b-instruct": (DREAM, DREAM_7B),
}


def estimate(recipe: Recipe, processes: int = 1, launch: str = "ddp") -> dict[str, Any]:
    """Steps, tokens, memory and time; every mistake that needs no weights surfaces."""
    method = make_method(recipe.method)
    trainer = {**DEFAULTS, **check_trainer(recipe.trainer)}
    each, accumulation = micro_batches(recipe.trainer, recipe.global_batch_size, processes)
    skeleton, tokens = shape(recipe)
    found = token_counts(recipe, skeleton)
    steps = int(trainer["max_steps"])
    length = min(found["max_length"], recipe.data.max_length)
    kind = ("full" if recipe.lora is None else "lora") + (
        "_checkpointed" if trainer.get("gradient_checkpointing") else ""
    )
    lora = recipe.lora
    adapter = adapter_size(skeleton.model, skeleton.family, lora.r, lora.targets) if lora else 0
    needed = memory(skeleton.model, length, each, adapter)
    per_token = flops_per_token(skeleton, method.passes, recipe.lora is not None, trainer)
    step_tokens = found["mean_length"] * recipe.global_batch_size
    flops = per_token * step_tokens * steps
    return {
        "backbone": skeleton.name,
        "parameters": sum(p.numel() for p in skeleton.model.parameters()),
        "trainable": needed["adapter_parameters"] if lora else "all",
        "processes": processes,
        "launch": launch if processes > 1 else None,
        "steps": steps,
        "global_batch_size": recipe.global_batch_size,
        "micro_batch": each,
        "accumulation": accumulation,
        "examples": found["examples"],
        "epochs": found["examples"] and steps * recipe.global_batch_size / found["examples"],
        "passes": method.passes,
        "tokens_per_step": round(step_tokens),
        "tokens": round(step_tokens * steps),
        "tokens_from": found["source"],
        "memory_gib": needed["gib"][kind],
        "memory_of": f"{kind.replace('_', ', ')}, {each} x {length} tokens, one process",
        "exaflop": flops / 1e18,
        "hours": flops / (processes * TFLOPS * 1e12) / 3600,
        "hours_at": f"{TFLOPS:g} TFLOP/s sustained by each of {processes}",
        "backbone_from": tokens,
    }


def shape(recipe: Recipe) -> tuple[Any, str]:
    """The architecture without memory behind it, with its tokenizer when that is at hand."""
    name = recipe.backbone.path or recipe.backbone.name
    try:
        return empty_backbone(name), "config.json"
    except GoldimaskError:
        if name not in KNOWN:
            raise
    family, fields = KNOWN[name]
    model = empty_model(family.config(**fields), family)
    return SimpleNamespace(model=model, name=name, family=family), "known sizes, not downloaded"


def token_counts(recipe: Recipe, skeleton: Any) -> dict[str, Any]:
    """Number of training examples and their lengths, or the bound that the recipe gives."""
    bound = recipe.data.max_length
    unknown = {"examples": None, "mean_length": float(bound), "max_length": bound}
    if not hasattr(skeleton, "tokenizer"):
        return {**unknown, "source": "data.max_length; the tokenizer is not downloaded"}
    try:
        train = make_data(recipe.data, skeleton, recipe.seed).train
    except GoldimaskError as error:
        if "could not be fetched" not in str(error):
            raise
        return {**unknown, "source": "data.max_length; the corpus is not downloaded"}
    lengths = [len(e) for e in train]
    mean = sum(lengths) / len(lengths)
    return {
        "examples": len(train),
        "mean_length": mean,
        "max_length": max(lengths),
        "source": "data",
    }


def flops_per_token(skeleton: Any, passes: int, frozen: bool, trainer: dict[str, Any]) -> float:
    """By the formula at the top."""
    model = skeleton.model
    embedding = model.get_input_embeddings().weight.numel()
    size = sum(p.numel() for p in model.parameters()) - embedding
    each = 2 + (2 if frozen else 4) + 2 * bool(trainer.get("gradient_checkpointing"))
    return size * (each + 2 * (passes - 1))
