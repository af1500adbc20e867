"""Real tokens a second of the training loop, and the peak memory of a step.

    python benchmarks/train.py

    model     d 256, 16 blocks, 4 heads, feed-forward 768, vocabulary 16,384: 22.0M, float32;
              many blocks and a head of some weight, as real models have
    data      200 random pairs, prompts of 20-60 and responses of 40-200 tokens, batch 8
    loops     vanilla and goldimask-d through GoldiTrainer: loading, both passes, backward,
              clipping, AdamW, schedule, metrics, logging every 10 steps
    naive     a plain loop: shuffled, padded to the longest, cross-entropy from full logits
              over all cells, AdamW

All loops run in turn within each round, on one thread, the first step untimed. Every round repeats
the same steps, so `tokens_per_s` takes the smallest `process_time` of each step over the rounds
(other programs slow a step, they never speed it up); `median_tokens_per_s` is that of whole
rounds. Real tokens do not count padding.
Memory is the highest sum of live tensor bytes above the model's own during one step (forward and
backward) on the longest batch, from torch's profiler.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile
from transformers import PrinterCallback, TrainerCallback

from goldimask.backbones.llada import LLaDAConfig, LLaDAForDiffusion
from goldimask.backbones.scoring import TokenScorer
from goldimask.backbones.scratch import init_weights
from goldimask.console import emit, progress, table
from goldimask.data.batches import EpochSampler, make_batch
from goldimask.keys import Keys, Stream
from goldimask.methods import method
from goldimask.noise import uniform
from goldimask.processes import torch_threads
from goldimask.step import MaskedStep
from goldimask.train.arguments import training_arguments
from goldimask.train.cost import clock_of
from goldimask.train.trainer import GoldiTrainer
from goldimask.types import Batch, Example
from memory import MB, peak_of

VOCAB, BATCH, PAIRS, UNTIMED = 16_384, 8, 200, 1
METHODS = ("vanilla", "goldimask-d")


def measure(
    rounds: int = 3,
    steps: int = 8,
    advance: Callable[..., None] = lambda *a, **k: None,
    device: str = "cpu",
) -> dict[str, Any]:
    """Measure every loop `rounds` times and return one record."""
    data, place = workload(), torch.device(device)
    loops: dict[str, Callable[[], dict[str, Any]]] = {
        "naive": lambda: naive_loop(data, steps, place)
    }
    for name in METHODS:
        loops[name] = lambda name=name: trainer_loop(data, name, steps, place)
    seen: dict[str, list[dict[str, Any]]] = {name: [] for name in loops}
    with torch_threads():
        for _ in range(rounds):
            for name, loop in loops.items():
                seen[name].append(loop())
                advance(note=name)
        peaks = {name: step_peak(data, name) for name in METHODS}
    result: dict[str, Any] = {name: record(rows) for name, rows in seen.items()}
    for name in METHODS:
        result[name]["peak_mb"] = peaks[name]
    base = result["naive"]["tokens_per_s"]
    return {
        **result,
        "vanilla_vs_naive": result["vanilla"]["tokens_per_s"] / base,
        "goldimask_d_vs_naive": result["goldimask-d"]["tokens_per_s"] / base,
        "memory_ratio": peaks["goldimask-d"] / peaks["vanilla"],
        "parameters": sum(p.numel() for p in new_model().parameters()),
        "rounds": rounds,
        "steps": steps,
        "batch_size": BATCH,
        "threads": 1,
        "device": device,
    }


def record(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The fastest of each step, and the median round, of one loop."""
    speeds = [r["tokens"] / sum(r["seconds"]) for r in rows]
    fastest = sum(min(times) for times in zip(*(r["seconds"] for r in rows), strict=True))
    return {
        "tokens_per_s": rows[0]["tokens"] / fastest,
        "median_tokens_per_s": statistics.median(speeds),
        "pad_share": 1.0 - rows[0]["tokens"] / rows[0]["cells"],
    }


def workload() -> list[Example]:
    """200 pairs whose lengths and tokens come from one key."""
    rng = Keys(0).rng(0, Stream.STUDY)
    pairs = []
    for number in range(PAIRS):
        prompt, response = int(rng.integers(20, 61)), int(rng.integers(40, 201))
        ids = rng.integers(0, VOCAB - 2, prompt + response).tolist()
        flags = [False] * prompt + [True] * response
        pairs.append(Example(ids, prompt, flags, number))
    return pairs


SIZES: dict[str, Any] = {
    "d_model": 256,
    "n_heads": 4,
    "n_kv_heads": 4,
    "n_layers": 16,
    "mlp_hidden_size": 768,
    "embedding_size": VOCAB,
    "vocab_size": VOCAB,
    "max_sequence_length": 512,
    "mask_token_id": VOCAB - 1,
    "attn_implementation": "sdpa",
}


def new_model() -> Any:
    with torch.random.fork_rng(devices=[]):
        model = LLaDAForDiffusion(LLaDAConfig(**SIZES))
    init_weights(model, seed=0)
    return model


class Timer(TrainerCallback):
    """CPU time of each step, all that happens between two steps included."""

    def __init__(self, clock: Callable[[], Any]) -> None:
        self.clock = clock
        self.ends: list[Any] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.ends.append(self.clock())

    @property
    def seconds(self) -> list[float]:
        return spans(self.ends)


def spans(ends: Sequence[Any]) -> list[float]:
    """Seconds of the timed steps; only now does anybody wait for a device."""
    return [float(b - a) for a, b in pairwise(ends[UNTIMED - 1 :])]


def trainer_loop(
    data: Sequence[Example], name: str, steps: int, device: torch.device
) -> dict[str, Any]:
    """The product's own loop."""
    values = {
        "max_steps": steps + UNTIMED,
        "learning_rate": 1e-4,
        "logging_steps": 10,
        "save_strategy": "no",
        "eval_strategy": "no",
        "load_best_model_at_end": False,
        "use_cpu": device.type == "cpu",
    }
    timer = Timer(clock_of(device))
    with tempfile.TemporaryDirectory(prefix="goldimask-") as folder:
        trainer = GoldiTrainer(
            model=new_model(),
            args=training_arguments(
                values,
                Path(folder),
                seed=42,
                global_batch_size=BATCH,
                has_validation=False,
            ),
            step=MaskedStep(method(name), scorer()),
            examples=data,
            validation=[],
            seed=0,
            global_batch_size=BATCH,
            pad_id=0,
            callbacks=[timer],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    sampler = EpochSampler([len(e) for e in data], BATCH, seed=0)
    batches = [b for e in (0, 1) for b in sampler.order(e).reshape(-1, BATCH)]
    lengths = [[len(data[i]) for i in b] for b in batches[UNTIMED : steps + UNTIMED]]
    return {
        "tokens": float(sum(map(sum, lengths))),
        "cells": float(sum(max(x) * BATCH for x in lengths)),
        "seconds": timer.seconds,
    }


def scorer() -> TokenScorer:
    return TokenScorer(mask_id=VOCAB - 1, shift=False, layers=SIZES["n_layers"])


def naive_loop(data: Sequence[Example], steps: int, device: torch.device) -> dict[str, Any]:
    """What a first version looks like."""
    model, noise = new_model().to(device), uniform()
    clock = clock_of(device)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
    sampler = EpochSampler([len(e) for e in data], BATCH, seed=0, group_by_length=False)
    batches = [b for e in (0, 1) for b in sampler.order(e).reshape(-1, BATCH)]
    tokens = cells = 0
    ends = []
    for number, chosen in enumerate(batches[: steps + UNTIMED]):
        if number == UNTIMED:
            tokens = cells = 0
        batch = make_batch([data[i] for i in chosen], 0).to(device)
        loss = naive_loss(model, batch, noise(batch, Keys(0, number)))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        tokens += int(batch.valid.sum())
        cells += batch.ids.numel()
        ends.append(clock())
    return {
        "tokens": float(tokens),
        "cells": float(cells),
        "seconds": spans(ends),
    }


def naive_loss(model: Any, batch: Batch, c: Any) -> torch.Tensor:
    """-1/(tL) sum of log p over the masked positions, by way of [B, T, V] logits."""
    logits = model(
        batch.ids.masked_fill(c.candidates, VOCAB - 1), attention_mask=batch.attention_mask()
    ).logits.float()
    nll = F.cross_entropy(logits.transpose(1, 2), batch.ids, reduction="none")
    return ((nll * c.candidates).sum(1) / (c.t * batch.lengths())).mean()


def step_peak(data: Sequence[Example], name: str) -> float:
    """Peak of one forward and backward on the eight longest pairs, in MiB."""
    model = new_model().train()
    longest = sorted(data, key=len)[-BATCH:]
    batch = make_batch(longest, 0)
    step = MaskedStep(method(name), scorer())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    seeds = np.arange(4)  # several noise levels: a high one has the largest training pass
    peaks = []
    for epoch in seeds.tolist():
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            step(model, batch, Keys(0, epoch)).loss.backward()
        peaks.append(peak_of(profiler) / MB)
    return max(peaks)


def main(
    rounds: Annotated[int, typer.Option(min=1, help="The fastest of each step counts.")] = 3,
    steps: Annotated[int, typer.Option(min=1, max=45, help="Timed steps of a round.")] = 8,
    device: Annotated[
        str, typer.Option(help="cpu (CPU time, one thread), or the accelerator (its own clock).")
    ] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Real tokens a second, for Vanilla, GoldiMask-D and a naive loop, on one thread."""
    with progress("training", 3 * rounds) as advance:
        result = measure(rounds, steps, advance, device)
    rows = [
        (
            name,
            f"{r['tokens_per_s']:,.0f}",
            f"{r['tokens_per_s'] / result['naive']['tokens_per_s']:.2f}",
            f"{r['median_tokens_per_s']:,.0f}",
            f"{r['pad_share']:.1%}",
            f"{r['peak_mb']:.0f}" if "peak_mb" in r else "-",
        )
        for name, r in ((n, result[n]) for n in ("naive", *METHODS))
    ]
    columns = ("loop", "tokens / s", "against naive", "median", "padding", "peak MiB")
    title = f"Training loop, {result['parameters'] / 1e6:.1f}M parameters, best of {rounds} rounds"
    emit(result, as_json, table(title, columns, rows))


if __name__ == "__main__":
    typer.run(main)
