"""Peak memory of one scoring pass: log-probabilities at the asked rows against full logits.

    python benchmarks/memory.py

    full   z = W h for all B T positions, log-softmax over [B, T, V], gather
    rows   the same log-probabilities through `score_mask`: only the asked rows, in chunks

Both passes run the same blocks on the same input, with and without gradient. The peak is the
largest sum of live tensor bytes above what was there before the pass: torch's profiler reports
every allocation and release on the CPU, the allocator's own counter is used on CUDA. It is exact
and does not depend on the load of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from goldimask.backbones.llada import LLaDAConfig, LLaDAForDiffusion
from goldimask.backbones.scoring import BUDGET_MB
from goldimask.backbones.scratch import init_weights
from goldimask.console import emit, table
from goldimask.errors import GoldimaskError
from goldimask.keys import Stream, torch_seed

MB = 2**20
os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # the profiler announces itself otherwise


def measure(
    vocab: int = 126_464,
    length: int = 1024,
    width: int = 64,
    layers: int = 2,
    masked: float = 0.5,
    budget_mb: float = BUDGET_MB,
    device: str = "cpu",
) -> dict[str, Any]:
    """Measure both ways; `ratio` is the smaller of the two passes' ratios."""
    if not 0.0 < masked <= 1.0:
        raise GoldimaskError(f"--masked: {masked} must lie in (0, 1]")
    model = tiny_model(vocab, length, width, layers).to(device)
    generator = torch.Generator().manual_seed(torch_seed(0, Stream.STUDY))
    ids = torch.randint(vocab - 1, (1, length), generator=generator).to(device)
    mask = torch.zeros(1, length, dtype=torch.bool, device=device)
    count = max(1, round(masked * length))
    mask[0, torch.randperm(length, generator=generator)[:count].to(device)] = True
    x = ids.masked_fill(mask, vocab - 1)

    def full() -> Tensor:
        logs = model(x).logits.float().log_softmax(-1)
        return logs.gather(2, ids[..., None]).squeeze(2) * mask

    def rows() -> Tensor:
        return model(x, score_ids=ids, score_mask=mask, score_mb=budget_mb).logp

    passes = {}
    for name, grad in (("probe", False), ("train", True)):
        f, r = (peak_mb(fn, model, grad) for fn in (full, rows))
        passes[name] = {"full_logits_mb": f, "rows_mb": r, "ratio": f / r}
    worst = min(passes.values(), key=lambda p: p["ratio"])
    return {
        **worst,
        "passes": passes,
        "difference": difference(full, rows),
        "vocab": vocab,
        "length": length,
        "width": width,
        "layers": layers,
        "masked": count,
        "budget_mb": budget_mb,
        "device": device,
    }


def tiny_model(vocab: int, length: int, width: int, layers: int) -> Any:
    heads = max(1, width // 32)
    fields: dict[str, Any] = {
        "d_model": width,
        "n_heads": heads,
        "n_kv_heads": heads,
        "n_layers": layers,
        "mlp_hidden_size": 2 * width,
        "embedding_size": vocab,
        "max_sequence_length": length,
        "mask_token_id": vocab - 1,
        "attn_implementation": "sdpa",
    }
    with torch.random.fork_rng(devices=[]):
        model = LLaDAForDiffusion(LLaDAConfig(**fields))
    init_weights(model, seed=0)
    return model


def peak_mb(score: Callable[[], Tensor], model: Any, grad: bool) -> float:
    """Largest live allocation of a pass (and its backward) above the start, in MiB."""

    def run() -> None:
        with torch.set_grad_enabled(grad):
            logp = score()
        if grad:
            logp.sum().backward()

    for p in model.parameters():  # gradients exist beforehand, so that both ways only add to them
        p.grad = torch.zeros_like(p) if grad else None
    device = next(model.parameters()).device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        return (torch.cuda.max_memory_allocated(device) - before) / MB
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    return peak_of(profiler) / MB


def peak_of(profiler: Any) -> int:
    """The highest running sum of allocations and releases, in bytes."""
    events = profiler.profiler.kineto_results.events()
    changes = sorted((e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]")
    live = peak = 0
    for _, change in changes:
        live += change
        peak = max(peak, live)
    return peak


@torch.no_grad()
def difference(full: Callable[[], Tensor], rows: Callable[[], Tensor]) -> float:
    """Largest difference between the two log-probabilities."""
    return float((full() - rows()).abs().max())


def main(
    vocab: Annotated[int, typer.Option(min=8, help="Vocabulary size.")] = 126_464,
    length: Annotated[int, typer.Option(min=2, help="Sequence length.")] = 1024,
    width: Annotated[int, typer.Option(min=32, help="Width of the model.")] = 64,
    masked: Annotated[float, typer.Option(help="Share of positions that are scored.")] = 0.5,
    budget_mb: Annotated[float, typer.Option(help="Budget for logits, in MiB.")] = BUDGET_MB,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Peak memory of a scoring pass through full logits and through the asked rows alone."""
    result = measure(vocab, length, width, masked=masked, budget_mb=budget_mb, device=device)
    rows = [
        (name, f"{p['full_logits_mb']:.0f}", f"{p['rows_mb']:.0f}", f"{p['ratio']:.1f}")
        for name, p in result["passes"].items()
    ]
    title = f"Peak memory of one pass, MiB (V = {vocab:,}, T = {length:,})"
    emit(result, as_json, table(title, ("pass", "full logits", "rows", "ratio"), rows))


if __name__ == "__main__":
    try:
        typer.run(main)
    except GoldimaskError as error:
        raise SystemExit(f"error: {error}") from None
