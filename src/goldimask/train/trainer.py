"""`GoldiTrainer`: transformers' Trainer with our step as its loss.

    loss of a micro-batch = mean over its examples (D4); accumulation and ranks average equal parts

What the subclass changes, and why:
  * `loss_is_scaled_for_ga = False`: the loss is a micro-batch mean, so the Trainer must divide it
  by
    the accumulation count (left to guess, it would not, and gradients would be too large);
  * the sampler: the order depends on (seed, epoch) only, and every item carries its epoch;
  * `evaluate`: the fixed bank of noise levels and masks, summed exactly per example, so that the
  figure
    depends neither on the batch size nor on the number of ranks and repeats bit for bit (D14);
  * checkpoints hold the state of the method, keep the parameter names of the running model, and are
    sealed when complete (`checkpoints.py`);
  * non-finite losses end the run and leave the ids of the examples behind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.utils.data import Sampler
from transformers import Trainer
from transformers.trainer_utils import rotate_checkpoints

from goldimask.config import EvaluationSection
from goldimask.data.batches import Collator, EpochDataset, EpochSampler, collate, to_batch
from goldimask.errors import RunFailed
from goldimask.files import write_json
from goldimask.keys import Keys
from goldimask.methods import Method
from goldimask.metrics import MetricPool, step_metrics
from goldimask.noise import bank
from goldimask.select.base import NoReveal
from goldimask.step import MaskedStep, module_mode
from goldimask.train.checkpoints import seal
from goldimask.types import Example
from goldimask.weighting import Uniform

METHOD_STATE = "method.safetensors"
BANK_SEED = 20_260  # of the validation draws; one number for every run, so that runs compare


def validation_method(section: EvaluationSection, method: Method) -> Method:
    """What a checkpoint is judged by: the unweighted denoising loss on the bank, or the method
    itself.
    """
    if section.objective == "method":
        return method
    return Method(bank(section.t_grid, BANK_SEED), NoReveal(), Uniform(), name="validation")


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
        self.eval_step = MaskedStep(validation_method(self.evaluation, step.method), step.scorer)
        self.keys_seed = seed
        self.global_batch_size = global_batch_size
        self.group_by_length = group_by_length
        self.pad_id, self.pad_to_multiple = pad_id, pad_to_multiple
        self.validation = list(validation)
        self.pool = MetricPool()
        super().__init__(
            train_dataset=EpochDataset(list(examples)),
            eval_dataset=EpochDataset(self.validation) if validation else None,
            data_collator=Collator(pad_id, pad_to_multiple),
            **trainer,
        )

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
        return (out.loss, {"loss": out.loss}) if return_outputs else out.loss

    def _stop_on_non_finite(self, per_example: torch.Tensor, inputs: dict[str, Any]) -> None:
        ids = inputs["example_id"].tolist()
        bad = [i for i, x in zip(ids, per_example.tolist(), strict=True) if not math.isfinite(x)]
        where = Path(str(self.args.output_dir)) / "non_finite.json"
        record = {
            "step": self.state.global_step,
            "epoch": inputs["epoch"],
            "batch": ids,
            "bad": bad,
        }
        write_json(where, record)
        raise RunFailed(
            f"non-finite loss at step {self.state.global_step + 1} (example ids {bad}); the last "
            "checkpoint is kept. Try a lower trainer.learning_rate or look at these examples"
        )

    def evaluate(
        self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval"
    ) -> dict[str, float]:
        """Mean validation loss over all held-out examples, on every rank the same number of
        passes.
        """
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
                out = self.eval_step(model, to_batch(inputs)[0], Keys(BANK_SEED))
            if index < len(chunks):
                losses += out.per_example.double().tolist()
        return math.fsum(losses), float(len(losses))

    def _save(
        self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None
    ) -> None:
        """Weights under the model's own names.

        `save_pretrained` would rename them to the Hub's, and the Trainer would then find none of
        them in its own checkpoint.
        """
        if _is_peft(self.model):
            super()._save(output_dir, state_dict)
            return
        folder = Path(output_dir or str(self.args.output_dir))
        folder.mkdir(parents=True, exist_ok=True)
        named = state_dict or self.model.state_dict()  # type: ignore[union-attr]
        state = {k: v.contiguous() for k, v in named.items()}
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})

    def _save_checkpoint(self, model: torch.nn.Module, trial: Any) -> None:
        limit, self.args.save_total_limit = self.args.save_total_limit, None
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self.args.save_total_limit = limit
        if not self.args.should_save:
            return
        folder = Path(str(self.args.output_dir)) / f"checkpoint-{self.state.global_step}"
        state = self.step.method.state_dict()
        if state:
            save_file(state, folder / METHOD_STATE)
        seal(folder)
        rotate_checkpoints(
            output_dir=str(folder.parent),
            save_total_limit=limit,
            best_model_checkpoint=self.state.best_model_checkpoint,
            use_mtime=False,
        )

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        file = Path(resume_from_checkpoint) / METHOD_STATE
        if file.is_file():
            self.step.method.load_state_dict(load_file(file))

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            reduce = self.accelerator.reduce if self.args.world_size > 1 else None
            logs = {**logs, **self.pool.pop(reduce, self.args.device)}
        super().log(logs, start_time)

    def floating_point_ops(self, inputs: Any) -> int:
        return 0  # the Trainer's estimate assumes one causal pass


def _is_peft(model: Any) -> bool:
    return hasattr(model, "peft_config")
