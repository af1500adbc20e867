"""Pretraining from scratch: plain masked diffusion on an endless stream of generated problems.

    for step in 0 .. steps - 1:
        batch  <- problems step * B ... of the stream (`canvas.py`)
        loss   <- MaskedStep(vanilla)(model, batch, keys)     t ~ U(noise_floor, 1), weight 1/(tL)
        Muon and AdamW with warm-up and decay, gradient clipped by its norm (`optim.py`)

Deviation from the paper's noise (D2): t starts at `noise_floor` = 0.1 instead of 0.001, which
bounds the weight 1/t; the shipped model is not a result, only a starting point.

Everything is a function of the recipe and the step, nothing of wall-clock time: the same recipe
gives the same weights bit by bit on one machine, stopped and resumed or not.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from goldimask.backbones import Backbone, new_llada, save_backbone
from goldimask.errors import GoldimaskError, RunFailed
from goldimask.files import write_text
from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.step import MaskedStep
from goldimask.tiny.canvas import batches
from goldimask.tiny.checkpoint import load_checkpoint, read_facts, save_checkpoint
from goldimask.tiny.init import init_weights
from goldimask.tiny.optim import make_optimisers, rate, update
from goldimask.tiny.recipe import (
    ModelSection,
    Pretraining,
    pretraining_dict,
    pretraining_yaml,
)
from goldimask.tiny.tokenizer import BOS, EOS, MASK, build_tokenizer
from goldimask.tiny.watch import measure

Advance = Callable[..., None]


def new_backbone(section: ModelSection, seed: int) -> Backbone:
    """An untrained model with the tiny tokenizer."""
    tokenizer = build_tokenizer()
    ids = tokenizer.get_vocab()
    config = {
        "d_model": section.width,
        "n_layers": section.layers,
        "n_heads": section.heads,
        "mlp_hidden_size": section.mlp,
        "embedding_size": len(tokenizer),
        "max_sequence_length": section.max_length,
        "rope_theta": section.rope_theta,
        "weight_tying": False,
        "rms_norm_eps": 1e-5,
        "mask_token_id": ids[MASK],
        "eos_token_id": ids[EOS],
        "pad_token_id": ids[EOS],
        "bos_token_id": ids[BOS],
    }
    backbone = new_llada(config, tokenizer, seed, name="tiny")
    init_weights(backbone.model, section.layers, seed)
    return backbone


def pretrain(
    recipe: Pretraining,
    resume: bool = False,
    advance: Advance = lambda n=1, note="": None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Run a recipe to its end; returns the last measurement. Results are in `recipe.output`."""
    threads = torch.get_num_threads()
    torch.set_num_threads(recipe.threads)
    try:
        return _run(recipe, resume, advance, say)
    finally:
        torch.set_num_threads(threads)


def _run(
    recipe: Pretraining, resume: bool, advance: Advance, say: Callable[[str], None]
) -> dict[str, Any]:
    folder = Path(recipe.output)
    backbone = new_backbone(recipe.model, recipe.seed)
    model = backbone.model.train()
    optimisers = make_optimisers(model, recipe.optim)
    log = folder / "log.jsonl"
    first = 0
    if resume:
        check_same(recipe, read_facts(folder / "checkpoint"))
        first = int(load_checkpoint(folder / "checkpoint", optimisers)["step"])
        keep_until(log, first)
        say(f"resuming {folder} at step {first} of {recipe.steps}")
        advance(first)
    elif (folder / "checkpoint").exists():
        raise GoldimaskError(
            f"output: '{folder}' holds a run; continue it with --resume or move it"
        )
    else:
        write_text(folder / "recipe.yaml", pretraining_yaml(recipe))
        write_text(log, "")
    vanilla = method("vanilla", noise={"eps": recipe.noise_floor})
    step_once = MaskedStep(vanilla, backbone.scorer)
    get_batch = batches(recipe, backbone)
    keys = Keys(recipe.seed)
    watch = recipe.watch
    losses: list[float] = []
    norms: list[float] = []
    last: dict[str, Any] = {}
    clock, tokens = time.process_time(), 0
    for step in range(first, recipe.steps):
        share = rate(recipe.optim, step, recipe.steps)
        batch = get_batch(step)
        out = step_once(model, batch, keys)
        out.loss.backward()
        losses.append(float(out.loss.detach()))
        norms.append(update(optimisers, share))
        tokens += batch.ids.numel()
        if not math.isfinite(losses[-1]) or not math.isfinite(norms[-1]):
            raise RunFailed(f"step {step}: the loss is not finite; lower the rates and start again")
        done = step + 1
        advance(1, f"loss {losses[-1]:.3f}")
        if done % watch.log_every == 0 or done == recipe.steps:
            record: dict[str, Any] = {
                "step": done,
                "loss": round(sum(losses) / len(losses), 6),
                "grad_norm": round(sum(norms) / len(norms), 4),
                "rate": round(share, 6),
                "tokens_per_cpu_second": round(tokens / max(1e-9, time.process_time() - clock)),
            }
            append(log, record)
            losses, norms = [], []
            clock, tokens = time.process_time(), 0
        if done % watch.every == 0 or done == recipe.steps:
            last = {"step": done, **measure(backbone, watch)}
            append(log, last)
            say(json.dumps(last))
            clock, tokens = time.process_time(), 0
        if done % watch.checkpoint_every == 0 or done == recipe.steps:
            facts = {"step": done, "recipe": pretraining_dict(recipe)}
            save_checkpoint(folder / "checkpoint", optimisers, facts)
            save_backbone(backbone, folder / "model")
    return last


def check_same(recipe: Pretraining, facts: dict[str, Any]) -> None:
    """A resumed run must be the same run: where it is and what it watches may differ.

    The number of steps may change too as long as neither run has begun to decay its rate.
    """
    before, now = dict(facts["recipe"]), pretraining_dict(recipe)
    decay_starts = min(before["steps"], now["steps"]) - recipe.optim.decay
    if facts["step"] <= decay_starts:
        before["steps"] = now["steps"]
    for key in sorted(set(now) - {"output", "watch"}):
        if before.get(key) != now[key]:
            raise GoldimaskError(
                f"{key}: the checkpoint was made with {before.get(key)!r}, the recipe says "
                f"{now[key]!r}; use the recipe.yaml beside it, or begin a new run elsewhere"
            )


def append(log: Path, record: dict[str, Any]) -> None:
    with log.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record) + "\n")


def keep_until(log: Path, step: int) -> None:
    """Drop log lines of steps that will be taken again, and half a last line."""
    kept = []
    for line in log.read_text(encoding="utf-8").splitlines():
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if record["step"] <= step:
            kept.append(line)
    write_text(log, "".join(line + "\n" for line in kept))
