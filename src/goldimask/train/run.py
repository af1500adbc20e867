"""Recipe -> objects -> training -> run folder.

    runs/x/  recipe.yaml  manifest.json  metrics.jsonl  trainer_state.json  tensorboard/
             adapter/ or model/   checkpoint-N/

A run works in `runs/x.partial` and takes its name when it is complete. A run that fails before its
first checkpoint leaves nothing behind; one that fails later keeps its checkpoints for `--resume`.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldimask.backbones import Backbone, load_backbone, save_backbone
from goldimask.build import build_method
from goldimask.config import Recipe, parse_recipe, read_yaml, recipe_dict, recipe_yaml
from goldimask.data.batches import EpochSampler, pad_share
from goldimask.data.examples import DataReport, data_hash, load_examples, split
from goldimask.errors import GoldimaskError
from goldimask.files import write_json, write_text
from goldimask.methods import Method
from goldimask.step import MaskedStep
from goldimask.train.arguments import training_arguments
from goldimask.train.callbacks import Bar, LastStep, MetricsFile
from goldimask.train.checkpoints import last_sound
from goldimask.train.manifest import manifest
from goldimask.train.trainer import GoldiTrainer
from goldimask.types import Example


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
    section = recipe.backbone
    backbone = load_backbone(
        section.path or section.name,
        dtype=None if section.dtype == "auto" else section.dtype,
        attn=section.attn,
        quant=section.quant,
    )
    examples, report = load_examples(recipe.data, backbone)
    train, validation = split(examples, recipe.data.validation, recipe.seed)
    if recipe.lora is not None:
        from goldimask.lora import LoraSettings, add_lora

        lora = recipe.lora
        settings = LoraSettings(lora.r, lora.alpha, lora.dropout, lora.targets)
        backbone = add_lora(backbone, settings, recipe.seed)
    return Prepared(recipe, method, backbone, train, validation, report)


def train(
    recipe: Recipe, *, resume: bool = False, say: Callable[[str], None] = lambda _: None
) -> dict[str, Any]:
    """Run a recipe to the end and return its summary."""
    output = Path(recipe.output)
    partial = output.with_name(output.name + ".partial")
    check_folders(recipe, output, partial, resume)
    ready = prepare(recipe)
    for line in describe(ready):
        say(line)
    with working_folder(partial, say):
        write_text(partial / "recipe.yaml", recipe_yaml(recipe))
        trainer, bar = make_trainer(ready, partial)
        try:
            trainer.train(resume_from_checkpoint=str(last_sound(partial, say)) if resume else None)
        finally:
            bar.close()
        if trainer.is_world_process_zero():
            summary = finish(ready, trainer, partial)
    trainer.accelerator.wait_for_everyone()
    if trainer.is_world_process_zero():
        os.replace(partial, output)
        return {"output": str(output), **summary}
    return {"output": str(output)}


def make_trainer(ready: Prepared, folder: Path) -> tuple[GoldiTrainer, Bar]:
    """The trainer of a prepared run, with its callbacks."""
    from torch.utils.tensorboard import SummaryWriter
    from transformers import PrinterCallback
    from transformers.integrations.integration_utils import TensorBoardCallback

    recipe = ready.recipe
    bar = Bar(f"{recipe.method.preset}")
    args = training_arguments(recipe, folder, bool(ready.validation))
    callbacks: list[Any] = [LastStep(), MetricsFile(folder / "metrics.jsonl"), bar]
    trackers = recipe.trainer.get("report_to", ["tensorboard"])
    trackers = [trackers] if isinstance(trackers, str) else list(trackers)
    if "tensorboard" in trackers:
        callbacks.append(TensorBoardCallback(SummaryWriter(str(folder / "tensorboard"))))
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


def finish(ready: Prepared, trainer: GoldiTrainer, folder: Path) -> dict[str, Any]:
    """Write what a finished run consists of; the model is the best one when the recipe asks for
    it.
    """
    if ready.recipe.lora is not None:
        from goldimask.lora import save_adapter

        save_adapter(ready.backbone, folder / "adapter")
    else:
        save_backbone(ready.backbone, folder / "model")
    trainer.save_state()
    state = folder / "trainer_state.json"
    write_text(state, state.read_text().replace(f"{folder}{os.sep}", ""))  # paths within the run
    history = trainer.state.log_history
    held_out = [x["eval_loss"] for x in history if "eval_loss" in x]
    summary = {
        "method": ready.recipe.method.preset,
        "steps": trainer.state.global_step,
        "examples": len(ready.train),
        "validation_examples": len(ready.validation),
        "seed": ready.recipe.seed,
        "data_hash": data_hash(ready.train),
        "eval_loss_first": held_out[0] if held_out else None,
        "eval_loss_best": min(held_out) if held_out else None,
        "eval_loss_last": held_out[-1] if held_out else None,
    }
    write_json(folder / "manifest.json", manifest(**summary, recipe=recipe_dict(ready.recipe)))
    return summary


def describe(ready: Prepared) -> list[str]:
    """What is about to be trained, in a few lines."""
    recipe, lengths = ready.recipe, sorted(len(e) for e in ready.train)
    sampler = EpochSampler(
        [len(e) for e in ready.train],
        recipe.global_batch_size,
        recipe.seed,
        recipe.data.group_by_length,
    )
    share = pad_share(ready.train, sampler, recipe.global_batch_size, recipe.data.pad_to_multiple)
    targets = sum(sum(e.supervisable) for e in ready.train) / len(ready.train)
    middle = lengths[len(lengths) // 2]
    return [
        f"data      {', '.join(ready.report.lines())}: {len(ready.train)} to train on, "
        f"{len(ready.validation)} held out",
        f"lengths   {lengths[0]} to {lengths[-1]} tokens, median {middle}; "
        f"{targets:.0f} supervisable on average; {share:.1%} padding",
        f"backbone  {ready.backbone.name}, {ready.backbone.layers} blocks",
        f"method    {recipe.method.preset}, {1 + bool(ready.method.needs)} forward pass(es) a step",
    ]


def check_folders(recipe: Recipe, output: Path, partial: Path, resume: bool) -> None:
    """Refuse to overwrite a finished run, and to resume what is not there or was something else."""
    if output.exists():
        raise GoldimaskError(f"output: '{output}' exists; choose another output=... or remove it")
    if not resume:
        if partial.exists():
            raise GoldimaskError(
                f"output: '{partial}' holds an unfinished run; continue with --resume or remove it"
            )
        return
    if last_sound(partial) is None:
        raise GoldimaskError(
            f"--resume: '{partial}' holds no complete checkpoint; start without --resume"
        )
    before = parse_recipe(read_yaml(partial / "recipe.yaml"), str(partial / "recipe.yaml"))
    changed = differences(recipe_dict(before), recipe_dict(recipe))
    if changed:
        raise GoldimaskError("--resume: the unfinished run differs in " + "; ".join(changed))


def differences(a: dict[str, Any], b: dict[str, Any], at: str = "") -> list[str]:
    """Keys whose values differ between two recipes, with both values."""
    found = []
    for key in sorted(a.keys() | b.keys()):
        left, right = a.get(key), b.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            found += differences(left, right, f"{at}{key}.")
        elif left != right:
            found.append(f"{at}{key} ({left!r} then, {right!r} now)")
    return found


@contextmanager
def working_folder(folder: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Make the folder of an unfinished run; take it away again if it fails without a checkpoint."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        if last_sound(folder) is None:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            say(f"checkpoints are kept in '{folder}'; continue with --resume")
        raise


def read_manifest(run: Path) -> dict[str, Any]:
    """Manifest of a finished run."""
    try:
        return json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, json.JSONDecodeError) as error:
        raise GoldimaskError(
            f"run '{run}': no readable manifest.json; is it a finished run?"
        ) from error
