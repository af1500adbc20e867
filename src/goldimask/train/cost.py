"""What a training step of each method costs, relative to Vanilla, beside what it must cost.

    ratio   CPU time of the method's step / Vanilla's step, on the same batches and draws
    limit   (Vanilla's step + its extra passes, each one forward without gradient) / Vanilla's step
    shares  attention capture, selection and weighting, of the method's own step

A step is zero_grad, `MaskedStep`, backward, clipping, AdamW (at learning rate zero, so that every
method always sees the same model) and the metrics. Everything is measured in one run on one thread
with `process_time`, all methods in turn within each round, minimum over the rounds for each batch,
summed over the batches. Capture is the difference between a scoring pass with and without it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from goldimask.backbones import Backbone
from goldimask.data.batches import EpochSampler, make_batch
from goldimask.data.examples import load_examples
from goldimask.keys import Keys
from goldimask.methods import PRESETS, Method, method
from goldimask.metrics import MetricPool, step_metrics
from goldimask.noise import overmask
from goldimask.presets import MAIN
from goldimask.processes import torch_threads
from goldimask.step import MaskedStep, module_mode
from goldimask.train.trainer import warm_up
from goldimask.types import Batch, Signal

LOGP = frozenset({Signal.LOGP})
PROBES = {"forward": LOGP, "forward+attention": LOGP | {Signal.ATTENTION}}
PROBES["forward+received"] = PROBES["forward+attention"] | {Signal.RECEIVED}


@dataclass
class Best:
    """Smallest time per batch, and the phases of a step with theirs."""

    total: dict[int, float] = field(default_factory=dict)
    phases: dict[tuple[str, int], float] = field(default_factory=dict)

    def take(self, batch: int, seconds: float, phases: dict[str, float] | None = None) -> None:
        self.total[batch] = min(seconds, self.total.get(batch, seconds))
        for name, value in (phases or {}).items():
            key = (name, batch)
            self.phases[key] = min(value, self.phases.get(key, value))

    @property
    def seconds(self) -> float:
        return sum(self.total.values())

    def phase(self, name: str) -> float:
        return sum(v for (phase, _), v in self.phases.items() if phase == name)


def step_costs(
    backbone: Backbone,
    methods: Sequence[str] = MAIN,
    rounds: int = 12,
    batch_size: int = 16,
    batches: int = 1,
    corpus: str = "tiny-sft",
    attention_layer: int | float | str = "last",
    advance: Callable[..., None] = lambda *a, **k: None,
) -> dict[str, Any]:
    """Time every method and return one record; `advance` is called after each timed step."""
    names = list(dict.fromkeys(("vanilla", *methods)))
    built = {name: method(name, attention_layer=attention_layer) for name in names}
    data = corpus_batches(backbone, corpus, batch_size, batches)
    for one in built.values():
        warm_up(one, backbone.model.device)
    with torch_threads():
        best = run_rounds(backbone, built, data, rounds, advance)
    tokens = sum(int(b.valid.sum()) for b in data) / len(data)
    return {
        "methods": {name: record(name, built[name], best) for name in names},
        "backbone": backbone.name,
        "blocks": backbone.layers,
        "corpus": corpus,
        "batch_size": batch_size,
        "batches": len(data),
        "tokens_per_batch": tokens,
        "candidates_per_example": candidates_mean(data),
        "rounds": rounds,
        "threads": 1,
        "vanilla_seconds": best["vanilla"].seconds / len(data),
        "forward_seconds": best["forward"].seconds / len(data),
    }


def record(name: str, built: Method, best: dict[str, Best]) -> dict[str, Any]:
    """One method's figures from the smallest times."""
    vanilla, own, forward = best["vanilla"].seconds, best[name].seconds, best["forward"].seconds
    wanted = built.needs | (built.captures if built.memory is not None else frozenset())
    probe = "forward"
    if Signal.RECEIVED in wanted:
        probe = "forward+received"
    elif Signal.ATTENTION in wanted:
        probe = "forward+attention"
    limit = (vanilla + (built.passes - 1) * forward) / vanilla
    return {
        "ratio": own / vanilla,
        "limit": limit,
        "over_limit": own / vanilla / limit - 1.0,
        "capture_share": max(0.0, best[probe].seconds - forward) / own,
        "selection_share": best[name].phase("select") / own,
        "weighting_share": best[name].phase("weigh") / own,
        "passes": built.passes,
        "paper": PRESETS.get(name).cost,
    }


def run_rounds(
    backbone: Backbone,
    built: dict[str, Method],
    data: Sequence[Batch],
    rounds: int,
    advance: Callable[..., None],
) -> dict[str, Best]:
    """All methods and bare passes in turn; round -1 warms up and is not counted."""
    model = backbone.model
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.0)
    steps = {n: MaskedStep(m, backbone.scorer, clock=time.process_time) for n, m in built.items()}
    noise = overmask()
    best = {name: Best() for name in (*steps, *PROBES)}
    was_training = model.training
    model.train()
    for turn in range(-1, rounds):
        for index, batch in enumerate(data):
            keys = Keys(0, index)
            hidden = noise(batch, keys).candidates
            for name, want in PROBES.items():
                seconds = probe_seconds(backbone, batch, hidden, want)
                if turn >= 0:
                    best[name].take(index, seconds)
            for name in rotated(list(steps), turn):  # no method always runs first
                seconds, phases = step_seconds(steps[name], model, optimiser, batch, keys)
                if turn >= 0:
                    best[name].take(index, seconds, phases)
                advance(note=name)
    model.train(was_training)
    return best


def rotated(names: list[str], by: int) -> list[str]:
    by %= len(names)
    return names[by:] + names[:by]


def step_seconds(
    step: MaskedStep,
    model: torch.nn.Module,
    optimiser: torch.optim.Optimizer,
    batch: Batch,
    keys: Keys,
) -> tuple[float, dict[str, float]]:
    start = time.process_time()
    optimiser.zero_grad(set_to_none=True)
    out = step(model, batch, keys)
    MetricPool().add(step_metrics(out, batch))
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    return time.process_time() - start, dict(out.seconds)


def probe_seconds(
    backbone: Backbone, batch: Batch, hidden: torch.Tensor, want: frozenset[Signal]
) -> float:
    start = time.process_time()
    with torch.no_grad(), module_mode(backbone.model, train=False):
        backbone.scorer(backbone.model, batch, hidden, want)
    return time.process_time() - start


def corpus_batches(backbone: Backbone, corpus: str, size: int, count: int) -> list[Batch]:
    """Batches as the trainer makes them: shuffled, of similar lengths."""
    examples, _ = load_examples(corpus, backbone, limit=16 * size, supervise_turn_end=True)
    order = EpochSampler([len(e) for e in examples], size, seed=0).order(0)
    chunks = order[: count * size].reshape(-1, size)
    return [make_batch([examples[i] for i in chunk], backbone.pad_id) for chunk in chunks]


def candidates_mean(data: Sequence[Batch]) -> float:
    noise = overmask()
    counts = [noise(b, Keys(0, i)).candidates.sum(1).double().mean() for i, b in enumerate(data)]
    return float(torch.stack(counts).mean())
