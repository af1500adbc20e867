"""Fine-tune in memory: the loop of studies and grids, without folders or checkpoints.

    for step: batch of the order (seed, epoch) -> MaskedStep -> clip -> AdamW, linear decay

Order, noise and selection come from the keys (seed, epoch, example), as in `goldimask train`; two
methods with one seed see the same examples in the same order under the same draws. The weights of
the last step are kept. Everything is float32 on the device of the backbone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from goldimask.backbones import Backbone
from goldimask.data.batches import EpochSampler, make_batch
from goldimask.errors import GoldimaskError, RunFailed
from goldimask.keys import Keys
from goldimask.methods import Method
from goldimask.metrics import MetricPool, step_metrics
from goldimask.step import MaskedStep
from goldimask.studies.schedule import Tuning, rate
from goldimask.types import Batch, Example, StepOutput


@dataclass(frozen=True)
class Tuned:
    """What a run reports; the model itself was changed in place."""

    cpu_seconds: float
    losses: tuple[float, ...]  # one per step
    metrics: dict[str, float]  # pooled over the run, the names of `goldimask.metrics`


def tune(
    backbone: Backbone,
    examples: Sequence[Example],
    method: Method,
    tuning: Tuning,
    seed: int,
    watch: Callable[[StepOutput, Batch], None] = lambda out, batch: None,
) -> Tuned:
    """Train the backbone in place; `watch` sees every step."""
    model = backbone.model
    free = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in free if p.ndim > 1]},
        {"params": [p for p in free if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimiser = torch.optim.AdamW(groups, lr=tuning.learning_rate, weight_decay=tuning.weight_decay)
    step, pool, losses = MaskedStep(method, backbone.scorer), MetricPool(), []
    seconds = 0.0
    model.train()
    for number, (batch, epoch) in enumerate(batches(backbone, examples, tuning, seed)):
        began = time.process_time()
        for group in optimiser.param_groups:
            group["lr"] = tuning.learning_rate * rate(number, tuning)
        optimiser.zero_grad(set_to_none=True)
        out = step(model, batch, Keys(seed, epoch))
        losses.append(float(out.loss.detach()))
        if not math.isfinite(losses[-1]):
            raise RunFailed(
                f"non-finite loss at step {number + 1} of {method.name}; lower the learning rate"
            )
        out.loss.backward()
        torch.nn.utils.clip_grad_norm_(free, tuning.clip)
        optimiser.step()
        seconds += time.process_time() - began
        pool.add(step_metrics(out, batch))
        watch(out, batch)
    model.eval()
    metrics = {k: v for k, v in pool.pop().items() if not k.startswith("seconds/")}
    return Tuned(seconds, tuple(losses), metrics)


def batches(
    backbone: Backbone, examples: Sequence[Example], tuning: Tuning, seed: int
) -> Iterator[tuple[Batch, int]]:
    """(batch, epoch) of every step."""
    if tuning.steps == 0:
        return
    sampler = EpochSampler([len(e) for e in examples], tuning.batch_size, seed)
    per_epoch = len(sampler) // tuning.batch_size
    device = next(backbone.model.parameters()).device
    for number in range(tuning.steps):
        epoch, place = divmod(number, per_epoch)
        if place == 0:
            order = sampler.order(epoch).reshape(-1, tuning.batch_size)
        chosen = [examples[i] for i in order[place]]  # pyright: ignore[reportPossiblyUnboundVariable]
        yield make_batch(chosen, backbone.pad_id, 8).to(device), epoch


def study_examples(backbone: Backbone, corpus: str, count: int, first: int = 0) -> list[Any]:
    """Examples `first` .. `first + count` of a named corpus or a data file, turn end supervised."""
    from goldimask.data.examples import load_examples

    found, _ = load_examples(corpus, backbone, limit=first + count, supervise_turn_end=True)
    if len(found) < first + count:
        raise GoldimaskError(
            f"corpus '{corpus}': has {len(found)} usable examples, {first + count} were asked for"
        )
    return found[first : first + count]
