"""`GoldiTrainer`: transformers' Trainer with our step as its loss.

    loss of a micro-batch = mean over its examples; accumulation and ranks average equal parts
    (D4, docs/decisions.md)

What the subclass changes, and why:
  * `loss_is_scaled_for_ga = False`: the loss is a micro-batch mean, so the Trainer must divide it
    by the accumulation count (left to guess, it would not, and gradients would be too large);
  * the sampler: the order depends on (seed, epoch) only, and every item carries its epoch;
  * `evaluate`: the fixed bank of noise levels and masks, summed exactly per example, so that the
    figure depends neither on the batch size nor on the number of ranks and repeats bit for bit;
  * checkpoints hold the state of the method, keep the parameter names of the running model, and
    get their name when they are complete (`folders.py`);
  * logs add the metrics of the step, the speed, and the kinds of tokens that were supervised;
  * non-finite losses end the run and name the examples.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
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
from goldimask.methods import Method
from goldimask.metrics import MetricPool, step_metrics
from goldimask.processes import wait
from goldimask.select import warmup
from goldimask.select.api import SELECTOR_NAMES
from goldimask.step import MaskedStep
from goldimask.train.callbacks import Speed
from goldimask.train.folders import WRITING, non_finite_file
from goldimask.train.launch import honour_request
from goldimask.train.tally import Tally
from goldimask.train.validation import Objective, make_judge, score_bank
from goldimask.types import Example

METHOD_STATE = "method.safetensors"
CLASSES_STATE = "classes.safetensors"


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
        eval_batch_size: int = 16,
        callbacks: Sequence[TrainerCallback] = (),
    ) -> None:
        """`model` may be wrapped; `step` holds the method and the backbone's scorer. `classes` name
        the kinds of tokens of the examples; `objective`, `levels` and `eval_batch_size` are those
        of the held-out loss (`validation.py`).
        """
        self.step = step
        self.judge = make_judge(step.method, validation, seed, objective, levels)
        self.validation = sorted(validation, key=lambda e: e.example_id)
        self.eval_batch_size = eval_batch_size
        self.eval_step = MaskedStep(self.judge.method, step.scorer)
        self.keys_seed = seed
        self.global_batch_size = global_batch_size
        self.group_by_length = group_by_length
        self.pad_id, self.pad_to_multiple = pad_id, pad_to_multiple
        self.pool, self.speed, self.tally = MetricPool(), Speed(), Tally(classes, examples)
        self.seen: list[int] = []  # examples since the ranks last shared a memory
        self.writing = False
        super().__init__(
            model=model,
            args=args,
            callbacks=list(callbacks),
            train_dataset=EpochDataset(list(examples)),
            eval_dataset=EpochDataset(self.validation) if validation else None,
            data_collator=Collator(pad_id, pad_to_multiple),
        )

    def create_accelerator_and_postprocess(self) -> None:
        super().create_accelerator_and_postprocess()
        self.is_fsdp_enabled = honour_request(self.accelerator) or self.is_fsdp_enabled

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
        out = self.step(model, batch, Keys(self.keys_seed, epoch))
        if not torch.isfinite(out.loss.detach()):
            self._stop_on_non_finite(out.per_example, inputs)
        self.pool.add(step_metrics(out, batch))
        self.tally.add(out, batch)
        self.speed.add(inputs["tokens"], batch.ids.numel())
        if self.args.world_size > 1 and self.step.method.memory is not None:
            self.seen += batch.example_id.tolist()
        return (out.loss, {"loss": out.loss}) if return_outputs else out.loss

    def _stop_on_non_finite(self, per_example: torch.Tensor, inputs: dict[str, Any]) -> None:
        ids = inputs["example_id"].tolist()
        bad = [i for i, x in zip(ids, per_example.tolist(), strict=True) if not math.isfinite(x)]
        step, epoch = self.state.global_step, inputs["epoch"]
        record = {"step": step, "seed": self.keys_seed, "epoch": epoch, "batch": ids, "bad": bad}
        file = non_finite_file(self.root, self.args.process_index)
        write_json(file, record)
        raise RunFailed(
            f"non-finite loss at step {step + 1}, epoch {epoch} (example ids {bad}, kept in "
            f"'{file}'). Try a lower trainer.learning_rate or look at these examples"
        )

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        warm_up(self.step.method, self.args.device)  # no step waits for a compiler
        self.speed = Speed()
        return super()._inner_training_loop(*args, **kwargs)

    def _run_epoch(self, *args: Any, **kwargs: Any) -> None:
        super()._run_epoch(*args, **kwargs)
        share_memory(self.step.method, self.seen)

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # the Trainer's estimate assumes one causal pass

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            meters = (self.pool, self.tally, self.speed)
            found = [meter.pop(self.reduce, self.args.device) for meter in meters]
            logs = {**logs, **{k: v for part in found for k, v in part.items()}}
        super().log(logs, start_time)

    @property
    def reduce(self) -> Any:
        """Adds over ranks, where there are several."""
        return self.accelerator.reduce if self.args.world_size > 1 else None

    # --- validation ------------------------------------------------------------------------------

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Mean validation loss over all held-out examples, the same on every rank."""
        with self.speed.pause():
            total, count = self._validation_sums()
        sums = torch.tensor([total, count], dtype=torch.float64, device=self.args.device)
        if self.args.world_size > 1:
            sums = self.accelerator.reduce(sums, "sum")
        metrics = {f"{metric_key_prefix}_loss": float(sums[0] / sums[1])}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def _validation_sums(self) -> tuple[float, float]:
        """(sum of losses, number of examples) of this rank's share."""
        losses: list[float] = []
        with self.compute_loss_context_manager():
            for _, out in score_bank(
                self.model_wrapped,  # type: ignore[arg-type]
                self.eval_step,
                self.validation,
                self.judge.keys(self.state.global_step),
                pad_id=self.pad_id,
                batch_size=self.eval_batch_size,
                pad_to_multiple=self.pad_to_multiple,
                share=(self.args.process_index, self.args.world_size),
            ):
                losses += out.per_example.double().tolist()
        return math.fsum(losses), float(len(losses))

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
        with self.speed.pause():
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
            if not _is_disk(error):
                raise
            shutil.rmtree(self.root / WRITING, ignore_errors=True)
            raise RunFailed(
                f"'{self.root / name}' could not be saved ({_first_line(error)}); earlier "
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
        tallied = self.tally.total(self.reduce, self.args.device)
        if not self.args.should_save:
            return
        if state:
            save_file(state, folder / METHOD_STATE)
        if tallied.size:
            save_file({"total": torch.from_numpy(tallied)}, folder / CLASSES_STATE)
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
        tallied = Path(resume_from_checkpoint) / CLASSES_STATE
        if tallied.is_file():
            self.tally.restore(load_file(tallied)["total"].numpy())


def warm_up(method: Method, device: Any = "cpu") -> tuple[str, ...]:
    """Compile (or read from numba's cache) what the method's steps will run; names of maximisers.

    Methods without a maximiser need nothing, and an accelerator runs the batched torch engine. The
    metric `value_vs_greedy` runs greedy beside every other maximiser.
    """
    maximiser = method.shown["maximiser"]
    if maximiser not in SELECTOR_NAMES or torch.device(device).type != "cpu":
        return ()
    names = tuple(dict.fromkeys(("greedy", maximiser)))
    warmup(names)
    return names


def _is_peft(model: Any) -> bool:
    return hasattr(model, "peft_config")


def _is_disk(error: Exception) -> bool:
    """A write that failed, as the libraries report it."""
    words = ("write", "No space", "File too large", "I/O error", "inline_container")
    return isinstance(error, OSError) or any(w in str(error) for w in words)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
