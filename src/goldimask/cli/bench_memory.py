"""`goldimask bench memory`: what full logits would cost."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from goldimask.cli.app import JsonFlag, bench_app
from goldimask.console import emit, table


@bench_app.command("memory")
def bench_memory(
    vocab: Annotated[int, typer.Option(min=8, help="Vocabulary size.")] = 126_464,
    length: Annotated[int, typer.Option(min=2, help="Sequence length.")] = 1024,
    width: Annotated[int, typer.Option(min=32, help="Width of the model.")] = 64,
    masked: Annotated[float, typer.Option(help="Share of positions that are scored.")] = 0.5,
    budget_mb: Annotated[float, typer.Option(help="Budget for logits, in MiB.")] = 256.0,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    as_json: JsonFlag = False,
) -> None:
    """Peak memory of a scoring pass through full logits and through the asked rows alone."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # the profiler announces itself otherwise
    from goldimask.bench.memory import bench_memory as measure

    result = measure(vocab, length, width, masked=masked, budget_mb=budget_mb, device=device)
    rows = [
        (name, f"{p['full_logits_mb']:.0f}", f"{p['rows_mb']:.0f}", f"{p['ratio']:.1f}")
        for name, p in result["passes"].items()
    ]
    title = f"Peak memory of one pass, MiB (V = {vocab:,}, T = {length:,})"
    emit(result, as_json, table(title, ("pass", "full logits", "rows", "ratio"), rows))
