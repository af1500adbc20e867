"""`GoldiTrainer`: transformers' Trainer with our step as its loss.

    loss of a micro-batch = mean over its examples (D4); accumulation and ranks average equal parts

What the subclass changes, and why:
  * `loss_is_scaled_for_ga = False`: the loss is a micro-batch mean, so the Trainer must divide it
    by the accumulation count (left to guess, it would not, and gradients would be too large);
  * the sampler: the order depends on (seed, epoch) only, and every item carries its epoch;
  * `evaluate`: the fixed bank of noise levels and masks, summed exactly per example, so that the
    figure depends neither on the batch size nor on the number of ranks and repeats bit for bit;
  * checkpoints hold the state of the method, keep the parameter names of the running model, and
    get their name when they are complete (`checkpoints.py`);
  * non-finite losses end the run and name the examples.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch.utils.data import Sampler
from transformers import Trainer
from transformers.trainer_utils import rotate_checkpoints

from goldimask.baselines.exchange import joined_state, own_state, share_memory
from goldimask.config import EvaluationSection
from goldimask.data.batches import Collator, EpochDataset, EpochSampler, collate, to_batch
from goldimask.errors import RunFailed
from goldimask.files import write_json
from goldimask.keys import Keys
from goldimask.metrics import MetricPool, step_metrics
from goldimask.processes import wait
from goldimask.step import MaskedStep, module_mode
from goldimask.train.checkpoints import WRITING, damage, publish
from goldimask.train.folders import non_finite_file
from goldimask.train.sharding import honour_request
from goldimask.train.speed import Speed
from goldimask.train.validation import make_judge
from goldimask.train.warmth import warm_up
from goldimask.types import Example

METHOD_STATE = "method.safetensors"


class GoldiTrainer(Trainer):
    """Trains with a `MaskedStep`; everything else is the Trainer's."""

    loss_is_scaled_for_ga = False

    def __init__(
        self,
        *,
        step: MaskedStep,
        examples: Sequence[Example],
        validation: Sequence[Example],
        seed: int,
        global_batch_size: int,
        pad_id: int,
        group_by_length: bool = True,
        pad_to_multiple: int = 1,
        evaluation: EvaluationSection | None = None,
        **trainer: Any,
    ) -> None:
        self.step = step
        self.evaluation = evaluation or EvaluationSection()
        self.validation = list(validation)
        self.judge = make_judge(self.evaluation, step.method, self.validation, seed)
        self.eval_step = MaskedStep(self.judge.method, step.scorer)
        self.keys_seed = seed
        self.global_batch_size = global_batch_size
        self.group_by_length = group_by_length
        self.pad_id, self.pad_to_multiple = pad_id, pad_to_multiple
        self.pool, self.speed = MetricPool(), Speed()
        self.seen: list[int] = []  # examples since the ranks last shared a memory
        self.writing = False
        super().__init__(
            train_dataset=EpochDataset(list(examples)),
            eval_dataset=EpochDataset(self.validation) if validation else None,
            data_collator=Collator(pad_id, pad_to_multiple),
            **trainer,
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
            reduce = self.accelerator.reduce if self.args.world_size > 1 else None
            pooled = self.pool.pop(reduce, self.args.device)
            logs = {**logs, **pooled, **self.speed.pop(reduce, self.args.device)}
        super().log(logs, start_time)

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
        size, world = self.evaluation.batch_size, self.args.world_size
        order = sorted(self.validation, key=lambda e: (len(e), e.example_id))
        chunks = [order[i : i + size] for i in range(0, len(order), size)]
        rounds = -(-len(chunks) // world)
        model: torch.nn.Module = self.model_wrapped  # type: ignore[assignment]
        keys = self.judge.keys(self.state.global_step)
        losses: list[float] = []
        for turn in range(rounds):
            index = turn * world + self.args.process_index
            mine = chunks[min(index, len(chunks) - 1)]  # a surplus rank repeats one, uncounted
            inputs = self._prepare_inputs(collate(mine, self.pad_id, self.pad_to_multiple))
            with (
                torch.no_grad(),
                module_mode(model, train=False),
                self.compute_loss_context_manager(),
            ):
                out = self.eval_step(model, to_batch(inputs)[0], keys)
            if index < len(chunks):
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
        name = f"checkpoint-{self.state.global_step}"
        began = time.perf_counter()
        try:
            self._write_checkpoint(model, trial, self.root / WRITING / name)
            wait()
            if self.args.should_save:
                publish(self.root / WRITING / name, self.root / name)
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
        self.speed.skip(time.perf_counter() - began)

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


def _is_peft(model: Any) -> bool:
    return hasattr(model, "peft_config")


def _is_disk(error: Exception) -> bool:
    """A write that failed, as the libraries report it."""
    words = ("write", "No space", "File too large", "I/O error", "inline_container")
    return isinstance(error, OSError) or any(w in str(error) for w in words)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
