"""Decoding speed: the engine against the straightforward decoder, in one run.

    python benchmarks/decode.py [--device cuda --dtype bfloat16] [--json]

    straightforward   whole batch, logits of all positions, float64 softmax over all of them, blocks
                      in lock step, no compaction (`tests/oracles/decoding.py`)
    engine            `goldimask.decode` with the same rule

Both decode the same prompts to the full length; the minimum time of interleaved repeats counts: CPU
time on one thread, or an accelerator's own, by events. Tokens and steps must agree. The
one-token-per-step decoder shows what the threshold saves in steps.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from goldimask.backbones import load_backbone
from goldimask.console import emit, progress, table
from goldimask.decoding import decode, decode_with, make_settings
from goldimask.decoding.forward import Decodable
from goldimask.processes import torch_threads
from goldimask.tiny.families import PROBLEM_FAMILIES, test_set
from goldimask.train.cost import clock_of
from oracles.decoding import plain_decode

Outputs = list[tuple[list[int], int]]  # (tokens, steps) per prompt


def bench_decode(
    backbone: Decodable,
    prompts: Sequence[str],
    *,
    batches: Sequence[int] = (1, 16),
    length: int = 128,
    block: int = 32,
    tau: float = 0.9,
    repeats: int = 5,
    one_token: bool = True,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Rows per batch size and engine, the speed ratios, and steps against one token per step."""
    ids = [backbone.prompt_ids(p) for p in prompts]
    settings = make_settings("threshold", length=length, block=block, tau=tau)

    def straightforward(batch: int) -> Outputs:
        parts = [ids[i : i + batch] for i in range(0, len(ids), batch)]
        return [row for part in parts for row in plain_decode(backbone, part, settings)]

    def engine(batch: int) -> Outputs:
        return outputs(decode_with(backbone, ids, settings, batch_size=batch))

    clock = clock_of(next(backbone.model.parameters()).device)
    rows: list[dict[str, Any]] = []
    ratios = {}
    for batch in batches:
        seconds = {"straightforward": float("inf"), "engine": float("inf")}
        made: dict[str, Outputs] = {}
        for _ in range(repeats):
            for name, run in (("straightforward", straightforward), ("engine", engine)):
                took, made[name] = timed(lambda run=run, batch=batch: run(batch), clock)
                seconds[name] = min(seconds[name], took)
                advance()
        same = made["engine"] == made["straightforward"]
        rows += [row(batch, name, seconds[name], made[name], same) for name in seconds]
        ratios[str(batch)] = seconds["straightforward"] / seconds["engine"]
    result: dict[str, Any] = {"rows": rows, "speedup": ratios}
    if one_token:
        longest = max(batches)
        took, slow = timed(lambda: one_token_per_step(backbone, ids, length, block, longest), clock)
        rows.append(row(longest, "one-token", took, slow, None))
        result["steps_ratio"] = rows[-1]["steps_mean"] / rows[0]["steps_mean"]
        advance()
    kind = "CPU" if clock is time.process_time else "device"
    return result | {
        "prompts": len(ids),
        "length": length,
        "block": block,
        "tau": tau,
        "clock": kind,
    }


def one_token_per_step(
    backbone: Decodable, ids: Sequence[list[int]], length: int, block: int, batch: int
) -> Outputs:
    """The most confident position, one at a time."""
    steps = -(-length // block) * block
    return outputs(
        decode(
            backbone,
            ids,
            "low-confidence",
            length=length,
            block=block,
            steps=steps,
            batch_size=batch,
        )
    )


def outputs(found: Sequence[Any]) -> Outputs:
    return [(d.tokens, d.steps) for d in found]


def timed(run: Callable[[], Outputs], clock: Callable[[], Any]) -> tuple[float, Outputs]:
    start = clock()
    made = run()
    return float(clock() - start), made


def row(batch: int, engine: str, seconds: float, made: Outputs, same: bool | None) -> dict:
    return {
        "batch": batch,
        "engine": engine,
        "tokens_per_s": sum(len(tokens) for tokens, _ in made) / seconds,
        "steps_mean": sum(steps for _, steps in made) / len(made),
        "same_tokens": same,
    }


def tiny_prompts(count: int) -> list[str]:
    """Test problems of the tiny tasks, the families in turn."""
    names = list(PROBLEM_FAMILIES)
    each = -(-count // len(names))
    columns = [[p.prompt for p in test_set(name, each, 0)] for name in names]
    return [prompt for group in zip(*columns, strict=True) for prompt in group][:count]


def as_table(result: dict[str, Any]) -> Any:
    rows = []
    for row in result["rows"]:
        engine = row["engine"] == "engine"
        ratio = f"{result['speedup'][str(row['batch'])]:.2f}" if engine else ""
        same = {None: "", True: "yes", False: "NO"}[row["same_tokens"]]
        speed, steps = f"{row['tokens_per_s']:.0f}", f"{row['steps_mean']:.1f}"
        rows.append((row["engine"], str(row["batch"]), speed, ratio, steps, same))
    columns = (
        "decoder",
        "batch",
        f"tokens / {result['clock']} s",
        "times faster",
        "steps",
        "same tokens",
    )
    words = f"{result['prompts']} prompts to {result['length']} tokens, tau {result['tau']}"
    return table(f"Decoding {words}", columns, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--backbone", default="tiny", help="a run, model folder or backbone")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 16], help="batch sizes")
    parser.add_argument("--prompts", type=int, default=16, help="prompts, from the tiny tasks")
    parser.add_argument("--length", type=int, default=128, help="response positions")
    parser.add_argument("--block", type=int, default=32, help="positions per block")
    parser.add_argument("--tau", type=float, default=0.9, help="confidence threshold")
    parser.add_argument("--repeats", type=int, default=5, help="the minimum time counts")
    parser.add_argument("--no-one-token", action="store_true", help="leave one token per step out")
    parser.add_argument("--device", default="cpu", help="cpu, cuda, cuda:1, ...")
    parser.add_argument("--dtype", default="float32", help="float32, bfloat16")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    one_token = not given.no_one_token
    backbone = load_backbone(given.backbone, device=given.device, dtype=given.dtype)
    bar = progress("decode", 2 * given.repeats * len(given.batches) + one_token)
    with torch_threads(), bar as advance:
        result = bench_decode(
            backbone,
            tiny_prompts(given.prompts),
            batches=given.batches,
            length=given.length,
            block=given.block,
            tau=given.tau,
            repeats=given.repeats,
            one_token=one_token,
            advance=advance,
        )
    emit(result, given.json, as_table(result))


if __name__ == "__main__":
    main()
