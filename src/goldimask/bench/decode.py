"""Decoding speed: the engine against the straightforward decoder, in one run.

    straightforward   whole batch, logits of all positions, float64 softmax over all of them, blocks
                      in lock step, no compaction (`goldimask.decoding.oracle`)
    engine            `goldimask.decoding.decode` with the same rule

Both decode the same prompts to the full length; the minimum CPU time of interleaved repeats counts.
Tokens and steps must agree. The one-token-per-step decoder shows what the threshold saves in steps.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from goldimask.decoding.engine import decode
from goldimask.decoding.forward import Decodable
from goldimask.decoding.oracle import plain_decode
from goldimask.decoding.prompts import make_settings

Outputs = list[tuple[list[int], int]]  # (tokens, steps) per prompt


def bench_decode(
    backbone: Decodable,
    prompts: Sequence[str],
    *,
    batches: Sequence[int] = (1, 16),
    length: int = 128,
    block: int = 32,
    tau: float = 0.9,
    repeats: int = 3,
    one_token: bool = True,
    advance: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Rows per batch size and engine, the speed ratios, and steps against one token per step."""
    ids = [backbone.prompt_ids(p) for p in prompts]
    settings, _ = make_settings("threshold", length=length, block=block, tau=tau)

    def straightforward(batch: int) -> Outputs:
        parts = [ids[i : i + batch] for i in range(0, len(ids), batch)]
        return [row for part in parts for row in plain_decode(backbone, part, settings)]

    def engine(batch: int) -> Outputs:
        found = decode(
            backbone, ids, "threshold", length=length, block=block, tau=tau, batch_size=batch
        )
        return [(d.tokens, d.steps) for d in found]

    rows = []
    ratios = {}
    for batch in batches:
        seconds = {"straightforward": float("inf"), "engine": float("inf")}
        outputs: dict[str, Outputs] = {}
        for _ in range(repeats):
            for name, run in (("straightforward", straightforward), ("engine", engine)):
                took, outputs[name] = timed(lambda run=run, batch=batch: run(batch))
                seconds[name] = min(seconds[name], took)
                advance()
        same = outputs["engine"] == outputs["straightforward"]
        rows += [row(batch, name, seconds[name], outputs[name], same) for name in seconds]
        ratios[str(batch)] = seconds["straightforward"] / seconds["engine"]
    result: dict[str, Any] = {"rows": rows, "speedup": ratios}
    if one_token:
        took, outputs_ = timed(lambda: slowest(backbone, ids, length, block, max(batches)))
        rows.append(row(max(batches), "one-token", took, outputs_, None))
        result["steps_ratio"] = rows[-1]["steps_mean"] / rows[0]["steps_mean"]
        advance()
    return result | {"prompts": len(ids), "length": length, "block": block, "tau": tau}


def slowest(
    backbone: Decodable, ids: Sequence[list[int]], length: int, block: int, batch: int
) -> Outputs:
    """One token per step, by confidence."""
    found = decode(
        backbone,
        ids,
        "low-confidence",
        length=length,
        block=block,
        steps=-(-length // block) * block,
        batch_size=batch,
    )
    return [(d.tokens, d.steps) for d in found]


def timed(run: Callable[[], Outputs]) -> tuple[float, Outputs]:
    start = time.process_time()
    outputs = run()
    return time.process_time() - start, outputs


def row(
    batch: int, engine: str, seconds: float, outputs: Outputs, same: bool | None
) -> dict[str, Any]:
    return {
        "batch": batch,
        "engine": engine,
        "tokens_per_cpu_s": sum(len(tokens) for tokens, _ in outputs) / seconds,
        "steps_mean": sum(steps for _, steps in outputs) / len(outputs),
        "same_tokens": same,
    }


def tiny_prompts(count: int) -> list[str]:
    """Test problems of the tiny tasks, the families in turn."""
    from goldimask.tiny.families import PROBLEM_FAMILIES, test_set

    each = -(-count // len(PROBLEM_FAMILIES))
    columns = [[p.prompt for p in test_set(name, each, 0)] for name in PROBLEM_FAMILIES]
    return [prompt for group in zip(*columns, strict=True) for prompt in group][:count]
