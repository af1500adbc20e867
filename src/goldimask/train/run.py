"""Recipe -> objects -> training -> run folder.

    runs/x/  recipe.yaml  manifest.json  metrics.jsonl  trainer_state.json  tensorboard/
             adapter/ or model/   checkpoint-N/

Every process of a distributed run executes `train`; rank 0 owns the folder (`folders.py`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from goldimask import processes
from goldimask.backbones import Backbone, save_backbone
from goldimask.build import build_backbone, build_method
from goldimask.config import Recipe, recipe_dict
from goldimask.data.examples import DataReport, data_hash, load_examples, split
from goldimask.errors import GoldimaskError
from goldimask.files import write_json, write_text
from goldimask.keys import Stream, torch_seed
from goldimask.methods import Method
from goldimask.step import MaskedStep
from goldimask.train.arguments import check_trainer, training_arguments
from goldimask.train.callbacks import Bar, LastStep, MetricsFile
from goldimask.train.describe import shown_examples, summary_lines
from goldimask.train.folders import (
    Folders,
    check_folders,
    complain,
    differences,
    read_start,
    working_folder,
)
from goldimask.train.layers import resolve_layer
from goldimask.train.manifest import manifest
from goldimask.train.sharding import gather_parameters
from goldimask.train.stopping import StopOnSignal, Stopped
from goldimask.train.tracking import tracker_callbacks, tracker_names
from goldimask.train.trainer import GoldiTrainer
from goldimask.types import Example

DROPOUT_COUNTER = 2  # keeps the dropout's seed apart from those of fresh weights


@dataclass(frozen=True)
class Prepared:
    """Everything a run needs, built and checked before the first step."""

    recipe: Recipe
    method: Method
    backbone: Backbone
    train: list[Example]
    validation: list[Example]
    report: DataReport


def prepare(recipe: Recipe) -> Prepared:
    """Build the objects of a recipe; every mistake in it surfaces here."""
    method = build_method(recipe.method)
    tracker_names(check_trainer(recipe.trainer).get("report_to"))
    backbone = build_backbone(recipe.backbone, processes.own_device())
    examples, report = load_examples(recipe.data, backbone, seed=recipe.seed)
    train, validation = split(examples, recipe.data.validation, recipe.seed)
    if recipe.lora is not None:
        from goldimask.backbones.lora import add_lora

        lora = recipe.lora
        backbone = add_lora(
            backbone,
            recipe.seed,
            r=lora.r,
            alpha=lora.alpha,
            dropout=lora.dropout,
            targets=lora.targets,
        )
    return Prepared(recipe, method, backbone, train, validation, report)


def train(
    recipe: Recipe,
    *,
    resume: bool = False,
    allow_changes: bool = False,
    show: int = 0,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Run a recipe to the end and return its summary.

    `resume` continues an unfinished run from its last sound checkpoint, bit for bit;
    `allow_changes` lets it go on with another recipe. `show` prints that many examples first.
    """
    processes.start()
    if processes.rank() != 0:
        say = lambda _: None  # noqa: E731
    folders = Folders(Path(recipe.output))
    checkpoint = processes.on_main(
        lambda: check_folders(recipe, folders, resume, allow_changes, say)
    )
    before = read_start(folders.partial) if checkpoint else {}
    ready = prepare(recipe)
    facts = (recipe, ready.method, ready.backbone, ready.train, ready.validation, ready.report)
    for line in summary_lines(*facts) + shown_examples(
        ready.backbone, ready.train, show, recipe.seed
    ):
        say(line)
    method, layers = resolve_layer(
        ready.method,
        ready.backbone,
        ready.validation,
        ready.train,
        recipe.seed,
        before.get("layers"),
        say,
    )
    ready = replace(ready, method=method)
    start = {"data_hash": data_hash(ready.train), "world_size": processes.world(), "layers": layers}
    if checkpoint:
        complain(start_changes(ready, before, start), allow_changes, say)
    processes.wait()
    with working_folder(folders.partial, recipe, start, say):
        processes.wait()
        trainer = run_trainer(ready, folders.partial, checkpoint)
        summary = finish(ready, trainer, folders.partial, start)
    processes.wait()
    if processes.rank() == 0:
        os.replace(folders.partial, folders.output)
    return {"output": str(folders.output), **summary}


def start_changes(ready: Prepared, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What would make a resumed run another one; processes matter only where dropout draws."""
    lora = ready.recipe.lora
    kept = ["data_hash"] + ["world_size"] * bool(lora and lora.dropout)
    return differences({k: before.get(k) for k in kept}, {k: now.get(k) for k in kept})


def run_trainer(ready: Prepared, folder: Path, checkpoint: Path | None) -> GoldiTrainer:
    """Train to the last step; a signal ends it earlier, with a checkpoint."""
    trainer, bar = make_trainer(ready, folder)
    stopper = StopOnSignal()
    trainer.add_callback(stopper)
    seed = torch_seed(ready.recipe.seed, Stream.INIT, DROPOUT_COUNTER, processes.rank())
    torch.manual_seed(seed)  # dropout draws from the global generator
    stopper.install()
    try:
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    finally:
        stopper.remove()
        bar.close()
    if stopper.stopped:
        raise Stopped(
            f"stopped by {stopper.caught or 'another process'} after step "
            f"{trainer.state.global_step} of {trainer.state.max_steps}; a checkpoint was saved. "
            "Continue with the same command and --resume"
        )
    return trainer


def make_trainer(ready: Prepared, folder: Path) -> tuple[GoldiTrainer, Bar]:
    """The trainer of a prepared run, with its callbacks."""
    from transformers import EarlyStoppingCallback, PrinterCallback

    recipe = ready.recipe
    bar = Bar(recipe.method.preset)
    args = training_arguments(recipe, folder, bool(ready.validation))
    callbacks: list[Any] = [LastStep(), MetricsFile(folder / "metrics.jsonl"), bar]
    if processes.rank() == 0:
        name = Path(recipe.output).name
        callbacks += tracker_callbacks(recipe.trainer.get("report_to"), folder, name)
    if recipe.evaluation.patience is not None:
        if not args.load_best_model_at_end:
            raise GoldimaskError(
                "evaluation.patience: needs held-out examples and "
                "trainer.load_best_model_at_end=true"
            )
        callbacks.append(EarlyStoppingCallback(recipe.evaluation.patience))
    trainer = GoldiTrainer(
        model=ready.backbone.model,
        args=args,
        step=MaskedStep(ready.method, ready.backbone.scorer),
        examples=ready.train,
        validation=ready.validation,
        seed=recipe.seed,
        global_batch_size=recipe.global_batch_size,
        pad_id=ready.backbone.pad_id,
        group_by_length=recipe.data.group_by_length,
        pad_to_multiple=recipe.data.pad_to_multiple,
        evaluation=recipe.evaluation,
        callbacks=callbacks,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, bar


def finish(
    ready: Prepared, trainer: GoldiTrainer, folder: Path, start: dict[str, Any]
) -> dict[str, Any]:
    """Write what a finished run consists of; the model is the best one when the recipe says so."""
    gather_parameters(trainer.model, only_trainable=ready.recipe.lora is not None)
    if processes.rank() != 0:
        return {}
    if ready.recipe.lora is not None:
        from goldimask.backbones.lora import save_adapter

        save_adapter(ready.backbone, folder / "adapter")
    else:
        save_backbone(ready.backbone, folder / "model")
    trainer.save_state()
    state = folder / "trainer_state.json"
    write_text(state, state.read_text().replace(f"{folder}{os.sep}", ""))  # paths within the run
    history = trainer.state.log_history
    held_out = [x["eval_loss"] for x in history if "eval_loss" in x]
    tuned = [x["eval_loss"] for x in history if "eval_loss" in x and x["step"] > 0]
    summary = {
        "method": ready.recipe.method.preset,
        "steps": trainer.state.global_step,
        "examples": len(ready.train),
        "validation_examples": len(ready.validation),
        "seed": ready.recipe.seed,
        "data_hash": start["data_hash"],
        "eval_loss_first": held_out[0] if held_out else None,
        "eval_loss_best": min(tuned) if tuned else None,  # of the models that could be kept
        "eval_loss_last": held_out[-1] if held_out else None,
    }
    facts = {
        **summary,
        "world_size": processes.world(),
        "attention_layer": ready.method.attention_layer,
        "layer_probe": start["layers"],
        "recipe": recipe_dict(ready.recipe),
    }
    write_json(folder / "manifest.json", manifest(**facts))
    return summary


def read_manifest(run: Path) -> dict[str, Any]:
    """Manifest of a finished run."""
    try:
        return json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise GoldimaskError(
            f"run '{run}': no readable manifest.json; is it a finished run?"
        ) from error
