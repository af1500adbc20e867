"""`trainer:` of a recipe -> transformers.TrainingArguments, checked key by key.

`global_batch_size` is what the recipe fixes; accumulation follows from the number of processes:

    global_batch_size = world size x per_device_train_batch_size x accumulation
"""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any, get_type_hints

import torch
from pydantic import TypeAdapter, ValidationError
from transformers import TrainingArguments

from goldimask.config import Recipe
from goldimask.errors import GoldimaskError, nearest

DEFAULTS: dict[
    str, Any
] = {  # the paper's protocol (baselines: LIFT), where it differs from the Trainer's
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
}
FIXED: dict[str, Any] = {  # needed for the numbers to be right; a recipe may not change them
    "remove_unused_columns": False,
    "ddp_find_unused_parameters": False,
    "logging_nan_inf_filter": False,
    "disable_tqdm": True,
    "report_to": "none",  # trackers are added as callbacks, see train/run.py
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


def check_trainer(values: dict[str, Any]) -> dict[str, Any]:
    """Coerce each value by its field's type; unknown or reserved keys are errors."""
    hints = get_type_hints(TrainingArguments)
    names = {f.name for f in dataclasses.fields(TrainingArguments)}
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key in ELSEWHERE:
            raise GoldimaskError(f"trainer.{key}: set '{ELSEWHERE[key]}' of the recipe instead")
        if key in FIXED and key != "report_to":
            raise GoldimaskError(
                f"trainer.{key}: is fixed to {FIXED[key]!r} by goldimask; remove it"
            )
        if key not in names:
            raise GoldimaskError(f"trainer.{key}: unknown key; {nearest(key, names)[:200]}")
        try:
            checked[key] = TypeAdapter(hints[key]).validate_python(value)
        except ValidationError as error:
            message = error.errors()[0]["msg"]
            raise GoldimaskError(f"trainer.{key}: {message} (got {value!r})") from error
    return checked


def accumulation(global_batch_size: int, per_device: int, world: int) -> int:
    """Micro-batches per optimiser step, or an explanation of why there is no such number."""
    each = per_device * world
    if global_batch_size % each:
        raise GoldimaskError(
            f"global_batch_size: {global_batch_size} is not a multiple of {world} process(es) x "
            f"trainer.per_device_train_batch_size {per_device} = {each}"
        )
    return global_batch_size // each


def check_batch(recipe: Recipe, world: int) -> tuple[int, int]:
    """(micro-batch size, accumulation) of every process, before anything is started."""
    values = check_trainer(recipe.trainer)
    per_device = values.get("per_device_train_batch_size", recipe.global_batch_size // world or 1)
    return per_device, accumulation(recipe.global_batch_size, per_device, world)


def training_arguments(recipe: Recipe, folder: Path, has_validation: bool) -> TrainingArguments:
    """All arguments of one run."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    values = {**DEFAULTS, **check_trainer(recipe.trainer)}
    values.pop("report_to", None)
    per_device = values.setdefault(
        "per_device_train_batch_size", recipe.global_batch_size // world or 1
    )
    if not has_validation:
        values |= {"eval_strategy": "no", "load_best_model_at_end": False}
    if values["load_best_model_at_end"] and values["save_steps"] % values["eval_steps"]:
        raise GoldimaskError(
            f"trainer.save_steps: {values['save_steps']} must be a multiple of trainer.eval_steps "
            f"{values['eval_steps']}, or set trainer.load_best_model_at_end=false"
        )
    if not torch.cuda.is_available():
        values.setdefault("use_cpu", True)
        values.setdefault("dataloader_pin_memory", False)
    return TrainingArguments(
        output_dir=str(folder),
        seed=recipe.seed,
        gradient_accumulation_steps=accumulation(recipe.global_batch_size, per_device, world),
        **values,
        **FIXED,
    )
