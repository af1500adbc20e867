"""`GoldiTrainer`: transformers' Trainer with our step as its loss.

    loss of a micro-batch = mean over its examples; accumulation and ranks average equal parts
    (D4, docs/decisions.md)

What the subclass changes, and why:
  * `loss_is_scaled_for_ga = False`: the loss is a micro-batch mean, so the Trainer must divide it
    by the accumulation count (left to guess, it would not, and gradients would be too large);
  * the sampler: the order depends on (seed, epoch) only, and every item carries its epoch;
  * `evaluate`: the fixed bank of noise levels and masks (`validation.py`), per example and with its
    standard error; it depends neither on the batch size nor on the ranks and repeats bit for bit;
  * checkpoints hold the state of the method and of what is logged (`meters.py`), keep the parameter
    names of the running model, and get their name when they are complete (`folders.py`);
  * the loss is the next of `MaskedStep.accumulate`, which selects ahead within a step;
  * logs add the metrics of the step, the speed, and the kinds of tokens that were supervised;
  * non-finite losses end the run and name the examples.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.utils.data import Sampler
from transformers import Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import rotate_checkpoints

from goldimask.baselines.exchange import joined_state, own_state, share_memory
from goldimask.data.batches import Collator, EpochDataset, EpochSampler, to_batch
from goldimask.errors import RunFailed
from goldimask.files import write_json
from goldimask.jobs import damage, publish
from goldimask.keys import Keys
from goldimask.methods import warm_up
from goldimask.metrics import MetricPool, step_metrics
from goldimask.processes import gather, wait
from goldimask.step import MaskedStep
from goldimask.train.folders import WRITING, first_line, is_disk, non_finite_file
from goldimask.train.launch import hold_weights, honour_request
from goldimask.train.meters import Clock, Speed, load_meters, save_meters
from goldimask.train.tally import Tally
from goldimask.train.validation import Objective, finite, make_judge, mean_and_error, score_bank
from goldimask.types import Batch, Example, StepOutput

METHOD_STATE = "method.safetensors"


class GoldiTrainer(Trainer):
    """Trains with a `MaskedStep`; everything else is the Trainer's."""

    loss_is_scaled_for_ga = False

    def __init__(
        self,
        *,
        model: torch.nn.Module,
        args: TrainingArguments,
        step: MaskedStep,
        examples: Sequence[Example],
        validation: Sequence[Example],
        seed: int,
        global_batch_size: int,
        pad_id: int,
        group_by_length: bool = True,
        pad_to_multiple: int = 1,
        classes: Sequence[str] = (),
        objective: Objective = "vanilla",
        levels: int = 16,
        pairs: int = 128,
        eval_batch_size: int = 16,
        clock: Clock | None = None,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        """`model` may be wrapped; `step` holds the method and the backbone's scorer. `classes` name
        the kinds of tokens of the examples; `objective`, `levels`, `pairs` and `eval_batch_size`
        are those of the held-out loss (`validation.py`).
        """
        self.step = step
        self.judge = make_judge(step.method, validation, seed, objective, levels, pairs)
        self.held_out: dict[int, list[float]] = {}  # step -> losses of the held-out examples
        self.eval_batch_size = eval_batch_size
        self.eval_step = MaskedStep(self.judge.method, step.scorer)
        self.keys_seed = seed
        self.global_batch_size, self.group_by_length = global_batch_size, group_by_length
        self.pad_id, self.pad_to_multiple = pad_id, pad_to_multiple
        self.clock = clock or Clock()
        self.pool, self.tally = MetricPool(), Tally(classes, examples)
        self.speed, self.writing = Speed(self.clock), False
        self.seen: list[int] = []  # examples since the ranks last shared a memory
        self.group: list[tuple[Batch, int]] = []  # micro-batches of this optimiser step
        self.outputs: Iterator[StepOutput] = iter(())
        self.unchecked: list[tuple[torch.Tensor, torch.Tensor, dict[str, Any]]] = []
        self.resumed: Path | None = None  # the checkpoint whose sums are still to be taken up
        super().__init__(
            model=model,
            args=args,
            callbacks=list(callbacks),
            train_dataset=EpochDataset(list(examples)),
            eval_dataset=EpochDataset(self.judge.examples) if validation else None,
            data_collator=Collator(pad_id, pad_to_multiple),
        )

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.is_fsdp_enabled = honour_request(self.accelerator) or self.is_fsdp_enabled

    def _prepare_for_training(self, *args: Any, **kwargs: Any) -> Any:
        hold_weights(self.model, self.accelerator, self.is_fsdp_enabled)
        return super()._prepare_for_training(*args, **kwargs)

    # --- steps -----------------------------------------------------------------------------------

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler[int]:
        dataset = self.train_dataset
        assert isinstance(dataset, EpochDataset)
        lengths = [len(e) for e in dataset.examples]
        return EpochSampler(lengths, self.global_batch_size, self.keys_seed, self.group_by_length)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        batch, epoch = to_batch(inputs)
        out = self._next_step(model, batch, epoch)
        self.unchecked.append((out.loss.detach(), out.per_example, inputs))
        if self.accelerator.sync_gradients:  # one wait an optimiser step
            self._stop_on_non_finite()
        self.pool.add(step_metrics(out, batch))
        self.tally.add(out, batch)
        self.speed.add(inputs["tokens"], batch.ids.numel())
        if self.args.world_size > 1 and self.step.method.memory is not None:
            self.seen += batch.on_host()[1]
        return (out.loss, {"loss": out.loss}) if return_outputs else out.loss

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        """Notes the micro-batches of the optimiser step that begins."""
        samples, found = super().get_batch_samples(*args, **kwargs)
        self.group, self.outputs = [to_batch(self._prepare_inputs(x)) for x in samples], iter(())
        return samples, found

    def _next_step(self, model: torch.nn.Module, batch: Batch, epoch: int) -> StepOutput:
        """The step of this micro-batch, the next of its group unless it came without one."""
        if self.group:
            keyed = [(b, Keys(self.keys_seed, e)) for b, e in self.group]
            self.group, self.outputs = [], self.step.accumulate(model, keyed)
        return next(self.outputs, None) or self.step(model, batch, Keys(self.keys_seed, epoch))

    def _stop_on_non_finite(self) -> None:
        """Looks at the losses of all micro-batches before the optimiser uses them."""
        group, self.unchecked = self.unchecked, []
        sound = torch.stack([loss for loss, _, _ in group]).isfinite().tolist()
        if all(sound):
            return
        _, per_example, inputs = group[sound.index(False)]
        ids = inputs["example_id"].tolist()
        bad = [i for i, x in zip(ids, per_example.tolist(), strict=True) if not math.isfinite(x)]
        step, epoch = self.state.global_step, inputs["epoch"]
        record = {"step": step, "seed": self.keys_seed, "epoch": epoch, "batch": ids, "bad": bad}
        file = write_json(non_finite_file(self.root, self.args.process_index), record)
        raise RunFailed(
            f"non-finite loss at step {step + 1}, epoch {epoch} (example ids {bad}, kept in "
            f"'{file}'). Try a lower trainer.learning_rate or look at these examples"
        )

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        warm_up(self.step.method)  # no step waits for a compiler
        return super()._inner_training_loop(*args, **kwargs)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        load_meters(self)
        if self.state.global_step >= self.state.max_steps:  # killed after its last checkpoint
            return
        with self.clock.during("training"):
            super()._run_epoch(*args, **kwargs)
            share_memory(self.step.method, self.seen)

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        load_meters(self)  # where no epoch was left
        self.args.save_total_limit = None  # 1 would remove the last checkpoint for the best one
        return super()._finalize_training(*args, **kwargs)

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # the Trainer's estimate assumes one causal pass

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            meters = (self.pool, self.tally, self.speed)
            found = [meter.pop(self.reduce, self.args.device) for meter in meters]
            logs = {**logs, **{k: v for part in found for k, v in part.items()}}
        if "train_loss" in logs:  # of all steps, also of those before a resume
            logs["train_loss"] = self._total_loss_scalar / max(self.state.global_step, 1)
        super().log(logs, start_time)

    @property
    def reduce(self) -> Any:
        """Adds over ranks, where there are several."""
        return self.accelerator.reduce if self.args.world_size > 1 else None

    # --- validation ------------------------------------------------------------------------------

    def _evaluate(self, trial: Any, ignore_keys_for_eval: Any, skip_scheduler: bool = False) -> Any:
        if skip_scheduler and self.state.global_step:  # at the start: a resumed run has done it
            return {}
        return super()._evaluate(trial, ignore_keys_for_eval, skip_scheduler)

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Mean loss of the held-out examples and its standard error, the same on every rank."""
        with self.clock.during("validation"):
            losses = finite(self._held_out_losses(), self.state.global_step)
        self.held_out[self.state.global_step] = losses
        mean, error = mean_and_error(losses)
        metrics = {f"{metric_key_prefix}_loss": mean}
        if error is not None:
            metrics[f"{metric_key_prefix}_loss_se"] = error
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def _held_out_losses(self) -> list[float]:
        """Of every held-out example, in the order of their ids; each rank scores a share."""
        losses: dict[int, float] = {}
        with self.compute_loss_context_manager():
            for chosen, out in score_bank(
                self.model_wrapped,  # type: ignore[arg-type]
                self.eval_step,
                self.judge.examples,
                self.judge.keys(self.state.global_step),
                pad_id=self.pad_id,
                batch_size=self.eval_batch_size,
                pad_to_multiple=self.pad_to_multiple,
                share=(self.args.process_index, self.args.world_size),
            ):
                losses |= dict(zip(chosen, out.per_example.double().tolist(), strict=True))
        return self.judge.per_example({k: v for part in gather(losses) for k, v in part.items()})

    # --- checkpoints -----------------------------------------------------------------------------

    @property
    def root(self) -> Path:
        """The folder of the run."""
        return Path(str(self.args.output_dir))

    def _get_output_dir(self, trial: Any) -> str:
        return str(self.root / WRITING) if self.writing else super()._get_output_dir(trial)

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None
    ) -> None:
        """Weights under the model's own names.

        `save_pretrained` would rename them to the Hub's, and the Trainer would then find none of
        them in its own checkpoint.
        """
        folder = Path(output_dir or str(self.args.output_dir))
        if _is_peft(self.model):
            self.model.save_pretrained(str(folder), state_dict=state_dict)  # type: ignore[union-attr]
            return
        folder.mkdir(parents=True, exist_ok=True)
        named = state_dict or self.model.state_dict()  # type: ignore[union-attr]
        state = {k: v.contiguous() for k, v in named.items()}
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        with self.clock.during("checkpoints"):
            self._save_whole(model, trial, f"checkpoint-{self.state.global_step}")

    def _save_whole(self, model: torch.nn.Module, trial: Any, name: str) -> None:
        """Write, seal and name a checkpoint; only then remove older ones."""
        try:
            self._write_checkpoint(model, trial, self.root / WRITING / name)
            wait()
            if self.args.should_save:
                publish(self.root / WRITING / name, self.root / name)
                shutil.rmtree(self.root / WRITING, ignore_errors=True)
            wait()
        except (OSError, SafetensorError, RuntimeError) as error:
            if not is_disk(error):
                raise
            shutil.rmtree(self.root / WRITING, ignore_errors=True)
            raise RunFailed(
                f"'{self.root / name}' could not be saved ({first_line(error)}); earlier "
                "checkpoints are untouched. Make room and continue with --resume"
            ) from error
        if self.args.should_save:
            rotate_checkpoints(
                output_dir=str(self.root),
                save_total_limit=self.args.save_total_limit,
                best_model_checkpoint=self.state.best_model_checkpoint,
                use_mtime=False,
            )

    def _write_checkpoint(self, model: torch.nn.Module, trial: Any, folder: Path) -> None:
        """Everything under the temporary name; nothing is rotated before it is published."""
        share_memory(self.step.method, self.seen)
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        self.writing = True
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.writing, self.args.save_total_limit = False, limit
        state = joined_state(self.step.method)
        save_meters(self, folder)
        if not self.args.should_save:
            return
        if state:
            save_file(state, folder / METHOD_STATE)
        self._name_best(self.state.best_global_step)
        self.state.save_to_json(str(folder / "trainer_state.json"))

    def _name_best(self, step: int | None) -> None:
        """The path of the best checkpoint, which may be the one being written."""
        if step and (step == self.state.global_step or (self.root / f"checkpoint-{step}").is_dir()):
            self.state.best_model_checkpoint = str(self.root / f"checkpoint-{step}")

    def _init_training_state(self, *args: Any, **kwargs: Any) -> tuple[int, int]:
        """Find the best checkpoint again; one that is gone or damaged is forgotten."""
        place = super()._init_training_state(*args, **kwargs)
        best = self.state.best_global_step
        if best:
            folder = self.root / f"checkpoint-{best}"
            sound = folder.is_dir() and damage(folder) is None
            self.state.best_model_checkpoint = str(folder) if sound else None
            if not sound:
                self.state.best_metric = self.state.best_global_step = None
        return place

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        file = Path(resume_from_checkpoint) / METHOD_STATE
        if file.is_file():
            mine = own_state(load_file(file), self.args.process_index)
            self.step.method.load_state_dict(mine)
        self.resumed = Path(resume_from_checkpoint)


def _is_peft(model: Any) -> bool:
    return hasattr(model, "peft_config")
