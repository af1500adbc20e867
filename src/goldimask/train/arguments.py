"""`trainer:` of a recipe -> transformers.TrainingArguments, checked key by key.

`global_batch_size` is what the recipe fixes; accumulation follows from the number of processes:

    global_batch_size = world size x per_device_train_batch_size x accumulation

How long a run is is said by `max_steps` or by `num_train_epochs`, never by both; a recipe that says
neither takes the paper's 2,480 steps. An epoch is as many whole batches as the examples fill, and
epochs become steps here, so that plan and run cannot differ.

A process trains on one device. Left alone, the Trainer would spread one process over all GPUs of
the machine (DataParallel) and so multiply the batch.

Trackers are the Trainer's own (`report_to`): tensorboard unless the recipe says otherwise, trackio,
wandb, or none. Their files go into the run's folder. `metrics.jsonl` is written whatever is chosen.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import TrainingArguments

from goldimask import processes, settings
from goldimask.errors import GoldimaskError, nearest

EPOCHS = 3.0  # of max_steps=-1 alone, as in transformers
MANY = 10  # epochs: beyond, fine-tuning on so few rows learns them by heart
DEFAULTS: dict[str, Any] = {  # the paper's protocol (LIFT's), where it differs from the Trainer's
    "max_steps": 2480,
    "learning_rate": 5.0e-6,
    "weight_decay": 0.1,
    "max_grad_norm": 1.0,
    "lr_scheduler_type": "linear",
    "warmup_steps": 0,
    "logging_steps": 10,
    "eval_strategy": "steps",
    "eval_steps": 100,
    "save_strategy": "steps",
    "save_steps": 100,
    "save_total_limit": 2,
    "load_best_model_at_end": True,
    "metric_for_best_model": "eval_loss",
    "greater_is_better": False,
    "report_to": ["tensorboard"],
}
FIXED: dict[str, Any] = {  # needed for the numbers to be right; a recipe may not change them
    "remove_unused_columns": False,
    "ddp_find_unused_parameters": False,
    "logging_nan_inf_filter": False,
    "disable_tqdm": True,
    "dataloader_drop_last": True,
    "average_tokens_across_devices": False,
    "include_num_input_tokens_seen": "no",
}
ELSEWHERE = {
    "seed": "seed",
    "output_dir": "output",
    "gradient_accumulation_steps": "global_batch_size",
    "data_seed": "seed",
    "group_by_length": "data.group_by_length",
}
ROUNDING = ("adamw_anyprecision", "lomo", "adalomo")  # these update or remember in bfloat16
SECRETS = ("hub_token", "push_to_hub_token")  # a recipe is kept in the run's folder
TRACKERS = ("tensorboard", "trackio", "wandb")  # each is a package of that name


def check_trainer(values: Mapping[str, Any]) -> dict[str, Any]:
    """Coerce each value by its field's type; unknown or reserved keys are errors."""
    for key in values:
        if key in SECRETS:
            raise GoldimaskError(
                f"trainer.{key}: a recipe is no place for a secret; set HF_TOKEN in the environment"
            )
        if key == "push_to_hub" or key.startswith("hub_"):
            raise GoldimaskError(
                f"trainer.{key}: a recipe publishes nothing; remove the key and upload the "
                "finished run or merged model yourself: hf upload USER/NAME FOLDER"
            )
        if key in ELSEWHERE:
            raise GoldimaskError(f"trainer.{key}: set '{ELSEWHERE[key]}' of the recipe instead")
        if key in FIXED:
            raise GoldimaskError(
                f"trainer.{key}: is fixed to {FIXED[key]!r} by goldimask; remove it"
            )
    # `no` is a strategy, and YAML's word for false
    said = {k: "no" if v is False and k.endswith("_strategy") else v for k, v in values.items()}
    checked = settings.check(TrainingArguments, said, "trainer")
    if str(checked.get("optim", "")) in ROUNDING:
        raise GoldimaskError(
            f"trainer.optim: {checked['optim']} rounds its updates to bfloat16, so that small ones "
            "are lost; use adamw_torch, or adamw_bnb_8bit to save memory"
        )
    steps, epochs = checked.get("max_steps", 0), checked.get("num_train_epochs")
    if steps > 0 and epochs is not None:
        raise GoldimaskError(
            f"trainer.num_train_epochs: {epochs:g} and trainer.max_steps {steps} both say how long "
            "to train; leave one out"
        )
    if epochs is not None and not epochs > 0:
        raise GoldimaskError(f"trainer.num_train_epochs: {epochs:g} trains nothing")
    if "max_steps" in checked and not (steps > 0 or steps == -1):
        raise GoldimaskError(f"trainer.max_steps: {steps} trains nothing (-1: as epochs say)")
    if "report_to" in checked:
        checked["report_to"] = check_trackers(checked["report_to"])
    return checked


def check_trackers(value: Any) -> list[str]:
    """`trainer.report_to` as a list; unknown names and missing packages are errors."""
    value = DEFAULTS["report_to"] if value is None else value
    names = [value] if isinstance(value, str) else list(value)
    if names == ["none"]:
        return []
    for name in names:
        if name not in TRACKERS:
            raise GoldimaskError(
                f"trainer.report_to: unknown '{name}'; {nearest(str(name), [*TRACKERS, 'none'])}"
            )
        if find_spec(name) is None:
            raise GoldimaskError(
                f"trainer.report_to: '{name}' is not installed; pip install 'goldimask[track]' "
                "or choose tensorboard"
            )
    return names


def micro_batches(
    trainer: Mapping[str, Any], global_batch_size: int, world: int
) -> tuple[int, int]:
    """(examples at a time, how often) of every process, or why there are no such numbers."""
    checked = check_trainer(trainer)
    per_device = checked.get("per_device_train_batch_size", global_batch_size // world or 1)
    each = per_device * world
    if global_batch_size % each:
        raise GoldimaskError(
            f"global_batch_size: {global_batch_size} is not a multiple of {world} process(es) x "
            f"trainer.per_device_train_batch_size {per_device} = {each}"
        )
    return per_device, global_batch_size // each


def planned_steps(trainer: Mapping[str, Any], global_batch_size: int, examples: int) -> int:
    """Optimiser steps of a run on so many training examples."""
    checked = check_trainer(trainer)
    steps, epochs = checked.get("max_steps"), checked.get("num_train_epochs")
    if epochs is None:
        if steps is None or steps > 0:
            return steps or int(DEFAULTS["max_steps"])
        epochs = EPOCHS
    if not examples:
        raise GoldimaskError(
            "trainer.num_train_epochs: the data is not at hand, so that its epochs cannot be "
            "counted; fetch it, or give trainer.max_steps"
        )
    return math.ceil(epochs * max(1, examples // global_batch_size))


def epochs_warning(steps: int, global_batch_size: int, examples: int) -> str | None:
    """Said of a run that sees its rows very often."""
    epochs = steps * global_batch_size / max(1, examples)
    if epochs <= MANY:
        return None
    return (
        f"{steps:,} steps are {epochs:.0f} epochs of {examples:,} examples; "
        "trainer.num_train_epochs=3 trains three"
    )


def training_arguments(
    trainer: Mapping[str, Any],
    folder: Path,
    *,
    seed: int,
    global_batch_size: int,
    examples: int = 0,
    has_validation: bool,
    name: str | None = None,
) -> TrainingArguments:
    """All arguments of one run; `name` is what trackers call it."""
    per_device, accumulation = micro_batches(trainer, global_batch_size, processes.world())
    values = {**DEFAULTS, "run_name": name, **check_trainer(trainer)}
    values["per_device_train_batch_size"] = per_device
    values["max_steps"] = planned_steps(trainer, global_batch_size, examples)
    if not has_validation:
        values |= {"eval_strategy": "no", "load_best_model_at_end": False}
    if values["load_best_model_at_end"] and values["save_steps"] % values["eval_steps"]:
        raise GoldimaskError(
            f"trainer.save_steps: {values['save_steps']} must be a multiple of trainer.eval_steps "
            f"{values['eval_steps']}, or set trainer.load_best_model_at_end=false"
        )
    device = processes.own_device()
    if device.type == "cpu":
        values.setdefault("use_cpu", True)
        values.setdefault("dataloader_pin_memory", False)
    else:
        values.setdefault("accelerator_config", {"non_blocking": True})
        if processes.world() == 1:  # for devices that accelerate does not know by name
            os.environ.setdefault("ACCELERATE_TORCH_DEVICE", str(device))
    os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "tensorboard")
    os.environ.setdefault("WANDB_DIR", str(folder))
    made = TrainingArguments(
        output_dir=str(folder),
        seed=seed,
        gradient_accumulation_steps=accumulation,
        **values,
        **FIXED,
    )
    made._n_gpu = min(made.n_gpu, 1)
    return made


def check_precision(model: nn.Module, mixed: bool) -> None:
    """Weights that are trained need float32 masters, which only mixed precision gives them."""
    low = {p.dtype for p in model.parameters() if p.requires_grad} - {torch.float32}
    if low and not mixed:
        raise GoldimaskError(
            f"backbone.dtype: {str(low.pop())[6:]} weights cannot be trained, for "
            "small updates round away; set trainer.bf16=true (float32 master weights, bfloat16 "
            "arithmetic) or backbone.dtype=float32"
        )
