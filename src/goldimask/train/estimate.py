"""`goldimask train --dry-run`: what a recipe takes, without loading a weight.

Memory is the peak of `backbones/footprint.py` for the options of the recipe, on one device. Time is
the arithmetic of `cards.py` on a card of its table: the one that is here, the one that `--card`
names, or an A100. `hours_here` takes the rate of a matrix product that is timed on this machine, an
upper bound of what a model reaches. Token counts come from the data when it and the tokenizer are
at hand, and from `data.max_length` (an upper bound) otherwise; `tokens_from` says which.
"""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import torch

from goldimask.backbones.checkpoint import FAMILIES, empty_model
from goldimask.backbones.footprint import Use, footprint
from goldimask.backbones.loading import empty_backbone, resolve_dtype
from goldimask.backbones.summary import adapter_use
from goldimask.config import MethodSection, Recipe
from goldimask.data.shapes import to_pairs
from goldimask.errors import GoldimaskError
from goldimask.known import PUBLISHED
from goldimask.processes import own_device
from goldimask.registry import allow_plugins, is_plugin
from goldimask.train.arguments import (
    DEFAULTS,
    check_trainer,
    epochs_warning,
    micro_batches,
    planned_steps,
)
from goldimask.train.cards import DEFAULT, SHARE, card_named, own_card, step_seconds, work
from goldimask.train.prepare import LONGEST, data_rows, few_held_out, make_data, make_method

CONTEXT = 1.0  # GiB that a CUDA context takes
CANDIDATES = 0.68  # of a response: what over-masking hides on average at long lengths


@allow_plugins(False)
def estimate(
    recipe: Recipe, processes: int = 1, launch: str = "ddp", card: str | None = None
) -> dict[str, Any]:
    """Steps, tokens, memory and time; every mistake that needs no weights surfaces."""
    passes = passes_of(recipe.method)
    trainer = {**DEFAULTS, **check_trainer(recipe.trainer)}
    each, accumulation = micro_batches(recipe.trainer, recipe.global_batch_size, processes)
    skeleton, tokens = shape(recipe)
    found = token_counts(recipe, skeleton)
    examples = found["examples"]
    if examples is None and ("num_train_epochs" in recipe.trainer or trainer["max_steps"] < 0):
        examples = counted(recipe)
    steps = planned_steps(recipe.trainer, recipe.global_batch_size, examples or 0)
    often = examples and epochs_warning(steps, recipe.global_batch_size, examples)
    warnings = (found["warning"], often, found["few"])
    model, length, lora = skeleton.model, found["longest"], recipe.lora
    device = own_device()
    named = None if recipe.backbone.dtype == "auto" else recipe.backbone.dtype
    dtype = resolve_dtype(named, device)
    adapter = adapter_use(model, skeleton.family, lora.r, lora.targets) if lora else {}
    use = Use(
        length,
        each,
        **adapter,
        checkpointed=bool(trainer.get("gradient_checkpointing")),
        quant=recipe.backbone.quant,
        shards=processes if launch == "fsdp2" else 1,
        accumulated=accumulation > 1,
        probe=passes > 1,
        eval_batch=recipe.evaluation.batch_size if recipe.data.validation else 0,
        weight_bytes=dtype.itemsize,
        eager=recipe.backbone.attn == "eager",
    )
    needed = footprint(model, use)
    on = card_named(card) if card else own_card() or card_named(DEFAULT)
    mean = found["mean_length"]
    flop = work(model, mean, passes, lora is not None, use.checkpointed).total
    step_tokens = mean * recipe.global_batch_size
    trained = adapter.get("adapter") or sum(p.numel() for p in model.parameters())
    spent = step_seconds(
        flop * step_tokens,
        on,
        processes,
        trained / use.shards,
        CANDIDATES * mean * each**0.5,
        alone=passes > 1 and accumulation == 1,
    )
    here = measured_rate(device, dtype)
    flops = flop * step_tokens * steps
    return {
        "backbone": skeleton.name,
        "parameters": sum(p.numel() for p in model.parameters()),
        "trainable": adapter.get("adapter", "all"),
        "processes": processes,
        "launch": launch if processes > 1 else None,
        "steps": steps,
        "global_batch_size": recipe.global_batch_size,
        "micro_batch": each,
        "accumulation": accumulation,
        "examples": examples,
        "epochs": examples and steps * recipe.global_batch_size / examples,
        "passes": passes,
        "tokens_per_step": round(step_tokens),
        "tokens": round(step_tokens * steps),
        "tokens_from": found["source"],
        "max_length": found["limit"],
        "warning": "; ".join(x for x in warnings if x) or None,
        "memory_gib": needed["peak"],
        "memory_of": memory_words(use, needed),
        "exaflop": flops / 1e18,
        "hours": sum(spent.values()) * steps / 3600,
        "hours_at": f"estimated for {processes} x {on.name} at {SHARE:.0%} of "
        f"{on.tflops:g} TFLOP/s; selection {spent['selection'] * steps / 3600:.2g} h of it",
        "fits": f"{on.name}: {on.memory_gb * 1e9 / 2**30:.0f} GiB, "
        f"{'yes' if needed['peak'] + CONTEXT < on.memory_gb * 1e9 / 2**30 else 'NO'}",
        "hours_here": flops / (processes * here) / 3600,
        "hours_here_at": f"{here / 1e12:.2g} TFLOP/s, a product timed on this {device.type}",
        "backbone_from": tokens,
    }


def memory_words(use: Use, needed: dict[str, float]) -> str:
    """What the number is for, and in which phase it is reached."""
    phases = {k: v for k, v in needed.items() if k not in ("peak", "weights")}
    kind = "LoRA" if use.adapter else "full tuning"
    words = [kind, *["recomputed blocks"] * use.checkpointed, *[use.quant] * bool(use.quant)]
    words += [f"{use.batch} x {use.length} tokens", f"{8 * use.weight_bytes}-bit"]
    words += [f"each of {use.shards} shards" if use.shards > 1 else "each device"]
    return f"estimated: {', '.join(map(str, words))}; at the {max(phases, key=phases.__getitem__)}"


def passes_of(section: MethodSection) -> int:
    """Forward passes of a step; two where a plug-in decides, which a dry run does not import."""
    parts = (section.noise, section.select, section.weigh)
    names = (section.preset, *(part.get("kind") for part in parts))
    return 2 if any(map(is_plugin, names)) else make_method(section).passes


def shape(recipe: Recipe) -> tuple[Any, str]:
    """The architecture without memory behind it, with its tokenizer when that is at hand."""
    section = recipe.backbone
    name = section.path or section.name
    given = {"layout": section.layout, "shift": section.shift, "mask_id": section.mask_id}
    known = next((row for row in PUBLISHED if row.name == name), None)
    try:
        return empty_backbone(name, **given), "config.json"
    except GoldimaskError:
        if known is None:
            raise
    family = FAMILIES[known.layout]
    model = empty_model(family.config(**known.sizes), family)
    usable = known.usable_length
    found = SimpleNamespace(model=model, name=name, family=family, usable_length=usable)
    return found, "known sizes, not downloaded"


def token_counts(recipe: Recipe, skeleton: Any) -> dict[str, Any]:
    """Number of training examples and their lengths, or the bound that the recipe gives."""
    bound = min(recipe.data.max_length or LONGEST, skeleton.model.config.max_position_embeddings)
    unknown = {"examples": None, "mean_length": float(bound), "longest": bound}
    usable = getattr(skeleton, "usable_length", None) or bound
    beyond = (
        f"rows may have up to {bound:,} tokens, the checkpoint was trained for {usable:,}; those "
        "that are longer are counted where tokenizer and corpus are at hand"
    )
    unknown |= {"limit": bound, "warning": beyond if bound > usable else None, "few": None}
    if not hasattr(skeleton, "tokenizer"):
        return {**unknown, "source": "data.max_length; the tokenizer is not downloaded"}
    if any(is_plugin(x.corpus) for x in (recipe.data, *recipe.data.mixture)):
        return {**unknown, "source": "data.max_length; a plug-in's corpus is not made"}
    try:
        data = make_data(recipe.data, skeleton, recipe.seed)
    except GoldimaskError as error:
        if "could not be fetched" not in str(error):
            raise
        return {**unknown, "source": "data.max_length; the corpus is not downloaded"}
    lengths = [len(e) for e in data.train]
    mean = sum(lengths) / len(lengths)
    return {
        "examples": len(data.train),
        "mean_length": mean,
        "longest": max(lengths),
        "limit": data.report.limit,
        "warning": data.report.warning(),
        "few": few_held_out(recipe.data, len(data.validation)),
        "source": "data",
    }


def counted(recipe: Recipe) -> int | None:
    """Training examples of a recipe whose tokenizer is not at hand: none is dropped as too long."""
    section, found = recipe.data, []
    if any(is_plugin(x.corpus) for x in (section, *section.mixture)):
        return None
    for row in data_rows(section, recipe.seed):
        try:
            found.append(len(to_pairs(row, section.turns)))
        except GoldimaskError:
            if not section.skip_bad_rows:
                raise
    share = section.validation if section.validation < 1 else section.validation / len(found)
    return round(sum(found) * (1 - share))


def measured_rate(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of a square matrix product: the best of two, after one that does not count."""
    size = 8192 if device.type in ("cuda", "xpu") else 512  # a small one would time the launch
    a = torch.ones(size, size, device=device, dtype=dtype)
    times = []
    for _ in range(3):
        start = time.perf_counter()
        (a @ a)[0, 0].item()  # waits for the device
        times.append(time.perf_counter() - start)
    return 2 * size**3 / min(times[1:])
