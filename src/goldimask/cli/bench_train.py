"""`goldimask bench train`: tokens per CPU second of the training loop."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from goldimask.cli.app import JsonFlag, bench_app
from goldimask.console import emit, progress, table


@bench_app.command("train")
def bench_train(
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the best one counts.")] = 3,
    steps: Annotated[int, typer.Option(min=1, max=45, help="Timed steps of a round.")] = 25,
    as_json: JsonFlag = False,
) -> None:
    """Real tokens per CPU second, for Vanilla, GoldiMask-D and a naive loop, on one thread."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "9")  # the profiler announces itself otherwise
    from goldimask.bench.train import bench_train as measure

    with progress("bench train", 3 * rounds) as advance:
        result = measure(rounds, steps, advance)
    rows = [
        (
            name,
            f"{r['tokens_per_cpu_s']:,.0f}",
            f"{r['median_tokens_per_cpu_s']:,.0f}",
            f"{r['pad_share']:.1%}",
            f"{r['peak_mb']:.0f}" if "peak_mb" in r else "-",
        )
        for name, r in ((n, result[n]) for n in ("naive", "vanilla", "goldimask-d"))
    ]
    columns = ("loop", "tokens / CPU s", "median", "padding", "peak MiB")
    title = f"Training loop, {result['parameters'] / 1e6:.2f}M parameters, best of {rounds} rounds"
    emit(result, as_json, table(title, columns, rows))
