"""Recipe -> objects -> training -> run folder.

    runs/x/  recipe.yaml  manifest.json  metrics.jsonl  held_out.json  trainer_state.json
             tensorboard/  adapter/ or model/   checkpoint-N/   complete.json

Every process of a distributed run executes `train`; rank 0 owns the folder (`folders.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from goldimask import processes
from goldimask.backbones import save_backbone
from goldimask.backbones.identity import weights_hash
from goldimask.config import Recipe, recipe_dict
from goldimask.data.examples import data_hash
from goldimask.errors import GoldimaskError
from goldimask.files import write_json, write_text
from goldimask.jobs import make_manifest, partial_of
from goldimask.keys import Stream, torch_seed
from goldimask.records import METRICS, digest, write_manifest
from goldimask.step import MaskedStep
from goldimask.train.arguments import training_arguments
from goldimask.train.attention_layer import resolve_layer
from goldimask.train.callbacks import Bar, LastStep, MetricsFile, StopOnSignal, Stopped
from goldimask.train.card import write_card
from goldimask.train.folders import (
    already_done,
    complain,
    differences,
    find_checkpoint,
    only_writer,
    read_start,
    run_folder,
)
from goldimask.train.launch import gather_parameters
from goldimask.train.meters import Clock
from goldimask.train.prepare import Prepared, base_of, method_tables, prepare, train_key
from goldimask.train.preview import shown_examples, summary_lines
from goldimask.train.trainer import GoldiTrainer
from goldimask.train.validation import mean_and_error, two_checkpoints, verdict

HELD_OUT = "held_out.json"  # loss of every held-out example at every evaluation
DROPOUT_COUNTER = 2  # keeps the dropout's seed apart from those of fresh weights
SUMMARY = ("method", "steps", "examples", "validation_examples", "seed", "data_hash", "eval_loss")
Say = Callable[[str], None]


def train(
    recipe: Recipe,
    *,
    resume: bool = False,
    allow_changes: bool = False,
    show: int = 0,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Run a recipe to the end and return its summary.

    `resume` continues an unfinished run from its last sound checkpoint, bit for bit, and leaves a
    finished one as it is;
    `allow_changes` lets it go on with another recipe. `show` prints that many examples first.
    """
    processes.start()
    if processes.rank() != 0:
        say = lambda _: None  # noqa: E731
    output, clock = Path(recipe.output), Clock()
    with only_writer(output), clock.during("loading"):
        if resume and (done := processes.on_main(lambda: already_done(recipe, output, say))):
            facts = {k: v for k, v in done.items() if k.startswith(SUMMARY)}
            return {"output": str(output), **facts}
        checkpoint = processes.on_main(
            lambda: find_checkpoint(recipe, output, resume, allow_changes, say)
        )
        before = read_start(partial_of(output)) if checkpoint else {}
        ready, start = settle(prepare(recipe), before, show, say)
        if checkpoint:
            complain(start_changes(recipe, before, start), allow_changes, say)
        processes.wait()
        with run_folder(output, recipe, start, say) as partial:
            processes.wait()
            trainer = run_trainer(ready, partial, checkpoint, clock, say)
            with clock.during("checkpoints"):
                summary = finish(ready, trainer, partial, start, say)
        processes.wait()
    return {"output": str(output), **summary}


def settle(
    ready: Prepared, before: dict[str, Any], show: int, say: Say
) -> tuple[Prepared, dict[str, Any]]:
    """Say what will be trained, measure the layer if asked, and note what a resume may not change.

    A resumed run (`before`) keeps the layer that its first start measured.
    """
    recipe, data, backbone = ready.recipe, ready.data, ready.backbone
    for line in summary_lines(ready):
        say(line)
    for line in shown_examples(backbone.tokenizer, data.train, show, recipe.seed):
        say(line)
    known = before.get("layers")
    method, layers = resolve_layer(
        ready.method, backbone, data.validation, data.train, recipe.seed, known, say
    )
    start = {
        "weights": processes.on_main(lambda: weights_hash(base_of(recipe))),
        "data_hash": data_hash(data.train),
        "world_size": processes.world(),
        "layers": layers,
        "tables": digest(method_tables(recipe)),
    }
    return replace(ready, method=method), start


def start_changes(recipe: Recipe, before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """What would make a resumed run another one; processes matter only where dropout draws."""
    kept = ["weights", "data_hash", "tables"]
    kept += ["world_size"] * bool(recipe.lora and recipe.lora.dropout)
    return differences({k: before.get(k) for k in kept}, {k: now.get(k) for k in kept})


def run_trainer(
    ready: Prepared, folder: Path, checkpoint: Path | None, clock: Clock, say: Say
) -> GoldiTrainer:
    """Train to the last step; a signal ends it earlier, with a checkpoint."""
    trainer, bar = make_trainer(ready, folder, clock, say)
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


def make_trainer(
    ready: Prepared, folder: Path, clock: Clock | None = None, say: Say = lambda _: None
) -> tuple[GoldiTrainer, Bar]:
    """The trainer of a prepared run, with its callbacks."""
    from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback

    recipe, data = ready.recipe, ready.data
    bar = Bar(recipe.method.preset, say)
    args = training_arguments(
        recipe.trainer,
        folder,
        seed=recipe.seed,
        global_batch_size=recipe.global_batch_size,
        examples=len(data.train),
        has_validation=bool(data.validation),
        name=Path(recipe.output).name,
    )
    callbacks: list[TrainerCallback] = [LastStep(), MetricsFile(folder / METRICS), bar]
    evaluation = recipe.evaluation
    if evaluation.patience is not None:
        if not args.load_best_model_at_end:
            raise GoldimaskError(
                "evaluation.patience: needs held-out examples and "
                "trainer.load_best_model_at_end=true"
            )
        callbacks.append(EarlyStoppingCallback(evaluation.patience))
    trainer = GoldiTrainer(
        model=ready.backbone.model,
        args=args,
        step=MaskedStep(ready.method, ready.backbone.scorer, processes.clock(args.device)),
        examples=data.train,
        validation=data.validation,
        seed=recipe.seed,
        global_batch_size=recipe.global_batch_size,
        pad_id=ready.backbone.pad_id,
        group_by_length=recipe.data.group_by_length,
        pad_to_multiple=recipe.data.pad_to_multiple,
        classes=data.classes,
        objective=evaluation.objective,
        levels=evaluation.t_grid,
        pairs=evaluation.pairs,
        eval_batch_size=evaluation.batch_size,
        clock=clock,
        callbacks=callbacks,
    )
    trainer.remove_callback(PrinterCallback)
    return trainer, bar


def finish(
    ready: Prepared, trainer: GoldiTrainer, folder: Path, start: dict[str, Any], say: Say
) -> dict[str, Any]:
    """Write what a finished run consists of; the model is the best one when the recipe says so."""
    recipe, data = ready.recipe, ready.data
    trainer.tally.pop(trainer.reduce, trainer.args.device)
    gather_parameters(trainer.model, only_trainable=recipe.lora is not None)
    if processes.rank() != 0:
        return {}
    if recipe.lora is not None:
        from goldimask.backbones.lora import save_adapter

        save_adapter(ready.backbone, folder / "adapter")
    else:
        save_backbone(ready.backbone, folder / "model")
    trainer.save_state()
    state = folder / "trainer_state.json"
    write_text(state, state.read_text().replace(f"{folder}{os.sep}", ""))  # paths within the run
    summary = {
        "method": recipe.method.preset,
        "steps": trainer.state.global_step,
        "examples": len(data.train),
        "validation_examples": len(data.validation),
        "seed": recipe.seed,
        "data_hash": start["data_hash"],
        **held_out_facts(trainer.held_out, say),
    }
    if data.validation:
        ids = sorted(e.example_id for e in data.validation)
        write_json(folder / HELD_OUT, {"examples": ids, "losses": trainer.held_out})
    facts = {
        **summary,
        "world_size": processes.world(),
        "seconds": trainer.clock.record(),
        "attention_layer": ready.method.attention_layer,
        "layer_probe": start["layers"],
        "classes": trainer.tally.shares(),
        "tables": method_tables(recipe),
        "recipe": recipe_dict(recipe),
    }
    weights = start["weights"]
    key = train_key(recipe, weights)
    write_manifest(folder, make_manifest("train", key, base_of(recipe), weights, **facts))
    write_card(folder)
    return summary


def held_out_facts(history: dict[int, list[float]], say: Say) -> dict[str, float | None]:
    """First, best and last held-out loss with their standard errors, and what best is worth.

    The best one is of the models that could be kept, so the start does not count.
    """
    means = {step: mean_and_error(losses) for step, losses in sorted(history.items())}
    tuned = {step: found for step, found in means.items() if step > 0}
    best = min(tuned, key=lambda step: tuned[step][0], default=None)
    chosen = {"first": min(means, default=None), "best": best, "last": max(means, default=None)}
    facts: dict[str, float | None] = {"eval_loss_best_step": best}
    for name, step in chosen.items():
        mean, error = (None, None) if step is None else means[step]
        facts |= {f"eval_loss_{name}": mean, f"eval_loss_{name}_se": error}
    compared = two_checkpoints(history)
    if compared is not None:
        say(verdict(compared))
        facts |= {f"eval_loss_{k}": compared[k] for k in ("rival", "difference")}
        facts["eval_loss_difference_se"] = compared["se"]
    return facts
