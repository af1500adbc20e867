"""`goldimask bench select`: the maximisers' engines against each other."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, bench_app
from goldimask.console import emit, progress, say, table


@bench_app.command("select")
def bench_select_command(
    sizes: Annotated[str, typer.Option(help="Candidates, separated by commas.")] = (
        "64,256,1024,4096"
    ),
    shares: Annotated[str, typer.Option(help="Budgets as shares of N.")] = "0.25,0.5,0.75",
    family: Annotated[str, typer.Option(help="real, sink, peaked or flat.")] = "real",
    rounds: Annotated[int, typer.Option(min=1, help="The minimum time counts.")] = 5,
    full: Annotated[
        int, typer.Option(help="Candidates up to which the dense engines run to the end.")
    ] = 1024,
    quick: Annotated[bool, typer.Option("--quick", help="N = 64, 256, 1024; B = N/2.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """CPU time of every maximiser and engine on one thread, evaluations counted, sets compared."""
    from goldimask.bench.select import SELECTORS, bench_select

    counts = _numbers(sizes, int, "--sizes")
    parts = _numbers(shares, float, "--shares")
    if quick:
        counts, parts, rounds, full = [64, 256, 1024], [0.5], min(rounds, 3), min(full, 256)
    with progress("bench select", len(counts) * len(parts) * len(SELECTORS)) as advance:
        result = bench_select(counts, parts, family, rounds, full, advance)
    if not as_json:
        say("CPU seconds on one thread, the minimum of interleaved rounds; ~ extrapolated.")
    emit(result, as_json, _tables(result))


def _numbers(text: str, kind: type, option: str) -> list[Any]:
    from goldimask.errors import GoldimaskError

    try:
        found = [kind(x) for x in text.split(",")]
    except ValueError as error:
        raise GoldimaskError(f"{option}: expected numbers like 64,256, got '{text}'") from error
    if min(found) <= 0 or (kind is float and max(found) > 1):
        raise GoldimaskError(f"{option}: '{text}' must be positive, and shares at most 1")
    return found


def _tables(result: dict[str, Any]) -> Any:
    from rich.console import Group

    rows = [
        (
            r["selector"], r["engine"], r["n"], r["budget"],
            f"{'~' if r['extrapolated'] else ''}{r['seconds'] * 1e3:.3g}", r["evaluations"],
            {True: "yes", False: "NO", None: "-"}[r["same_set"]],
            r["reference"] or (f"audit: {r['audit']}" if "audit" in r else "-"),
        )
        for r in result["rows"]
    ]  # fmt: skip
    columns = ("selector", "engine", "N", "B", "ms", "evaluations", "same set", "as")
    names = list(result["ratios"][0])
    return Group(
        table(f"Selection, {result['family']} attention", columns, rows, left=2),
        table(
            "Ratios of CPU time",
            [name.replace("_over_", " / ") for name in names],
            [[r[name] for name in names] for r in result["ratios"]],
            left=0,
        ),
    )
