"""`goldimask bench decode`: the engine against a straightforward decoder."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, bench_app
from goldimask.console import emit, progress, table


@bench_app.command("decode")
def bench_decode_command(
    backbone: Annotated[str, typer.Option(help="A run, model folder or backbone.")] = "tiny",
    batches: Annotated[str, typer.Option(help="Batch sizes, separated by commas.")] = "1,16",
    prompts: Annotated[int, typer.Option(min=1, help="Prompts, from the tiny tasks.")] = 16,
    length: Annotated[int, typer.Option(min=1, help="Response positions.")] = 128,
    block: Annotated[int, typer.Option(min=1, help="Positions per block.")] = 32,
    tau: Annotated[float, typer.Option(help="Confidence threshold.")] = 0.9,
    repeats: Annotated[int, typer.Option(min=1, help="The minimum time counts.")] = 5,
    one_token: Annotated[bool, typer.Option(help="Also run one token per step.")] = True,
    as_json: JsonFlag = False,
) -> None:
    """Tokens per CPU second and steps, on one thread, with the same tokens from both."""
    from goldimask.backbones import load_backbone
    from goldimask.bench.decode import bench_decode, tiny_prompts
    from goldimask.errors import GoldimaskError
    from goldimask.processes import torch_threads

    try:
        sizes = [int(x) for x in batches.split(",")]
    except ValueError as error:
        raise GoldimaskError(f"--batches: expected numbers like 1,16, got '{batches}'") from error
    model = load_backbone(backbone, device="cpu", dtype="float32")
    bar = progress("bench decode", 2 * repeats * len(sizes) + one_token)
    with torch_threads(), bar as advance:
        result = bench_decode(
            model,
            tiny_prompts(prompts),
            batches=sizes,
            length=length,
            block=block,
            tau=tau,
            repeats=repeats,
            one_token=one_token,
            advance=advance,
        )
    emit(result, as_json, _table(result))


def _table(result: dict[str, Any]) -> Any:
    rows = []
    for row in result["rows"]:
        engine = row["engine"] == "engine"
        ratio = f"{result['speedup'][str(row['batch'])]:.2f}" if engine else ""
        same = {None: "", True: "yes", False: "NO"}[row["same_tokens"]]
        speed, steps = f"{row['tokens_per_cpu_s']:.0f}", f"{row['steps_mean']:.1f}"
        rows.append((row["engine"], str(row["batch"]), speed, ratio, steps, same))
    columns = ("decoder", "batch", "tokens / CPU s", "times faster", "steps", "same tokens")
    title = (
        f"Decoding {result['prompts']} prompts to {result['length']} tokens, tau {result['tau']}"
    )
    return table(title, columns, rows)
