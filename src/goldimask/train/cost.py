"""What a training step of each method costs, relative to Vanilla, beside what it must cost.

    ratio   time of the method's step / Vanilla's step, on the same batches and draws
    limit   (Vanilla's step + its extra passes, each one forward without gradient) / Vanilla's step
    shares  of the method's own step: its phases (those of `MaskedStep`, backward, optimiser), and
            attention capture, which is a part of the probe

A step is zero_grad, `MaskedStep`, the metrics, backward, clipping and AdamW over what is trainable
(at learning rate zero, so that every method always sees the same model). Everything runs where the
model is: on a CPU on one thread, in `process_time`; on an accelerator by events on its own clock,
which nobody waits for before the step is over. All methods take turns within each round; minimum
over the rounds for each batch, summed over the batches. Capture is a scoring pass with it minus one
without.

With accumulation a step is a group of micro-batches through `MaskedStep.accumulate`. The host
selects in another thread then, so that on a CPU the clock is that of the loop's own thread, and
`wall` is the ratio of elapsed seconds, which holds only where a second core is free.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from goldimask.backbones import Backbone
from goldimask.data.batches import EpochSampler, make_batch
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.methods import PRESETS, Method, method, warm_up
from goldimask.metrics import PHASES, MetricPool, step_metrics
from goldimask.noise import overmask
from goldimask.presets import MAIN
from goldimask.processes import clock, hardware, torch_threads
from goldimask.step import MaskedStep, module_mode
from goldimask.types import Batch, Example, Signal

AFTER = ("backward", "optimiser")  # what follows the phases of a `MaskedStep`
LOGP = frozenset({Signal.LOGP})
PROBES = {"forward": LOGP, "forward+attention": LOGP | {Signal.ATTENTION}}
PROBES["forward+received"] = PROBES["forward+attention"] | {Signal.RECEIVED}


@dataclass
class Best:
    """Smallest time per batch, and the phases of a step with theirs."""

    total: dict[int, float] = field(default_factory=dict)
    wall: dict[int, float] = field(default_factory=dict)
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
    examples: Sequence[Example],
    methods: Sequence[str] = MAIN,
    rounds: int = 12,
    batch_size: int = 16,
    batches: int = 1,
    accumulation: int = 1,
    attention_layer: int | float | str = "last",
    group_by_length: bool = True,
    advance: Callable[..., None] = lambda *a, **k: None,
) -> dict[str, Any]:
    """Time every method and return one record; `advance` is called after each timed step."""
    names = list(dict.fromkeys(("vanilla", *methods)))
    built = {name: method(name, attention_layer=attention_layer) for name in names}
    sampler = EpochSampler([len(e) for e in examples], batch_size, 0, group_by_length)
    chunks = sampler.order(0)[: batches * accumulation * batch_size].reshape(-1, batch_size)
    if len(chunks) % accumulation:
        raise GoldimaskError(f"--accumulate: {len(chunks)} batches are no multiple of it")
    data = [make_batch([examples[i] for i in chunk], backbone.pad_id) for chunk in chunks]
    for one in built.values():
        warm_up(one)
    with torch_threads():
        best = run_rounds(backbone, built, data, rounds, accumulation, advance)
        ran_on = hardware()
    records = {name: record(name, built[name], best) for name in names}
    if accumulation > 1:
        elapsed = {name: sum(best[name].wall.values()) for name in names}
        records = {n: {**r, "wall": elapsed[n] / elapsed["vanilla"]} for n, r in records.items()}
    return {
        "methods": records,
        **({"accumulation": accumulation} if accumulation > 1 else {}),
        "backbone": backbone.name,
        "blocks": backbone.layers,
        "trainable": sum(p.numel() for p in backbone.model.parameters() if p.requires_grad),
        "batch_size": batch_size,
        "batches": len(data),
        "tokens_per_batch": sum(int(b.valid.sum()) for b in data) / len(data),
        "candidates_per_example": candidates_mean(data),
        "rounds": rounds,
        "hardware": ran_on,
        "clock": "CPU" if device_of(backbone).type == "cpu" else "device",
        "vanilla_seconds": best["vanilla"].seconds / len(data) * accumulation,
        "forward_seconds": best["forward"].seconds / len(data) * accumulation,
    }


def device_of(backbone: Backbone) -> torch.device:
    return next(backbone.model.parameters()).device


def clock_of(device: torch.device, accumulation: int = 1) -> Callable[[], Any]:
    """CPU time, or the device's own."""
    own = time.process_time if accumulation == 1 else time.thread_time
    return own if device.type == "cpu" else clock(device)


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
        "shares": {phase: best[name].phase(phase) / own for phase in (*PHASES, *AFTER)},
        "passes": built.passes,
        "paper": PRESETS.get(name).cost,
    }


def run_rounds(
    backbone: Backbone,
    built: dict[str, Method],
    data: Sequence[Batch],
    rounds: int,
    accumulation: int,
    advance: Callable[..., None],
) -> dict[str, Best]:
    """All methods and bare passes in turn; round -1 warms up and is not counted."""
    model, ticks = backbone.model, clock_of(device_of(backbone), accumulation)
    data = [batch.to(device_of(backbone)) for batch in data]
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.0)
    steps = {n: MaskedStep(m, backbone.scorer, clock=ticks) for n, m in built.items()}
    noise = overmask()
    best = {name: Best() for name in (*steps, *PROBES)}
    was_training = model.training
    model.train()
    for turn in range(-1, rounds):
        for index in range(0, len(data), accumulation):
            part = data[index : index + accumulation]
            group = [(batch, Keys(0, index + i)) for i, batch in enumerate(part)]
            for name, want in PROBES.items():
                seconds = sum(
                    probe_seconds(backbone, batch, noise(batch, keys).candidates, want, ticks)
                    for batch, keys in group
                )
                if turn >= 0:
                    best[name].take(index, seconds)
            for name in rotated(list(steps), turn):  # no method always runs first
                start = time.perf_counter()
                seconds, phases = step_seconds(steps[name], model, optimiser, group)
                if turn >= 0:
                    best[name].take(index, seconds, phases)
                    wall = time.perf_counter() - start
                    best[name].wall[index] = min(wall, best[name].wall.get(index, wall))
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
    group: Sequence[tuple[Batch, Keys]],
) -> tuple[float, dict[str, float]]:
    """One optimiser step over the group: its time, and that of its phases."""
    spans: list[tuple[str, Any]] = []
    begin = step.clock()
    optimiser.zero_grad(set_to_none=True)
    for (batch, _), out in zip(group, step.accumulate(model, group), strict=True):
        MetricPool().add(step_metrics(out, batch))
        before = step.clock()
        (out.loss / len(group)).backward()
        spans += [*out.seconds.items(), (AFTER[0], step.clock() - before)]
    before = step.clock()
    torch.nn.utils.clip_grad_norm_(optimiser.param_groups[0]["params"], 1.0)
    optimiser.step()
    end = step.clock()
    phases: dict[str, float] = {}
    for name, took in (*spans, (AFTER[1], end - before)):
        phases[name] = phases.get(name, 0.0) + float(took)
    return float(end - begin), phases


def probe_seconds(
    backbone: Backbone,
    batch: Batch,
    hidden: torch.Tensor,
    want: frozenset[Signal],
    clock: Callable[[], Any],
) -> float:
    start = clock()
    with torch.no_grad(), module_mode(backbone.model, train=False):
        backbone.scorer(backbone.model, batch, hidden, want)
    return float(clock() - start)


def candidates_mean(data: Sequence[Batch]) -> float:
    noise = overmask()
    counts = [noise(b, Keys(0, i)).candidates.sum(1).double().mean() for i, b in enumerate(data)]
    return float(torch.stack(counts).mean())
