"""`goldimask bench`: what a training step of each method costs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, progress, table


@app.command()
def bench(
    methods: Annotated[
        str, typer.Option(help="Names separated by commas, `main`, or `all` presets.")
    ] = "all",
    rounds: Annotated[int, typer.Option(min=1, help="Times are the minimum over rounds.")] = 12,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per step.")] = 16,
    batches: Annotated[int, typer.Option(min=1, help="Different batches.")] = 1,
    backbone: Annotated[str, typer.Option(help="A backbone's name or folder.")] = "tiny",
    corpus: Annotated[str, typer.Option(help="A corpus the backbone can tokenise.")] = "tiny-sft",
    quick: Annotated[
        bool, typer.Option("--quick", help="The methods of the paper's table, few rounds.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Time a training step of every method against Vanilla, on one thread, in one run.

    The limit is what the extra forward passes alone would cost; shares are of the method's step.
    """
    from goldimask.backbones import load_backbone
    from goldimask.presets import MAIN, PRESETS
    from goldimask.train.cost import step_costs

    if quick:
        methods, rounds, batches = ("main" if methods == "all" else methods), min(rounds, 4), 1
    groups = {"all": PRESETS.names(), "main": list(MAIN)}
    names = groups.get(methods) or [m.strip() for m in methods.split(",") if m.strip()]
    model = load_backbone(backbone)
    total = (rounds + 1) * batches * len(dict.fromkeys(("vanilla", *names)))
    with progress("bench", total) as advance:
        result = step_costs(model, names, rounds, batch_size, batches, corpus, advance=advance)
    emit(result, as_json, _table(result))


def _table(result: dict[str, Any]) -> Any:
    columns = (
        "method",
        "time",
        "limit",
        "paper",
        "capture",
        "selection",
        "weighting",
        "passes",
    )
    rows = [
        (
            name,
            f"{r['ratio']:.3f}",
            f"{r['limit']:.3f}",
            "-" if r["paper"] is None else f"{r['paper']:.2f}",
            *(f"{r[key]:.1%}" for key in ("capture_share", "selection_share", "weighting_share")),
            r["passes"],
        )
        for name, r in result["methods"].items()
    ]
    title = (
        f"CPU time of a step relative to Vanilla ({result['vanilla_seconds'] * 1e3:.0f} ms), "
        f"{result['backbone']}, batch {result['batch_size']}, minimum of {result['rounds']}"
    )
    return table(title, columns, rows)
