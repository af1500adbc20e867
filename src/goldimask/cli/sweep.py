"""`goldimask sweep`: accuracy against decoding steps."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, progress, say, table
from goldimask.errors import GoldimaskError


@app.command()
def sweep(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="Runs, model folders or backbones.")
    ],
    tasks: Annotated[str, typer.Option(help="Tasks, separated by commas.")],
    tau: Annotated[str, typer.Option(help="Thresholds.")] = "0.7,0.8,0.9,0.95",
    lengths: Annotated[
        str | None, typer.Option(help="Response lengths; each task's own if left out.")
    ] = None,
    block: Annotated[int, typer.Option(min=1, help="Positions per block.")] = 32,
    baselines: Annotated[
        str | None,
        typer.Option(help="Which RUNs are baselines; by their recipes if left out."),
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Problems per task.")] = None,
    protocol: Annotated[str, typer.Option(help="Answer parsing: fixed or lift.")] = "fixed",
    data: Annotated[Path | None, typer.Option(help="Folder or file of the test sets.")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Examples per model call.")] = 16,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="Folder for figure, tables and resumable samples."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Accuracy and mean steps of threshold decoding per run, task, length and threshold.

    Writes the figure (PDF, PNG), both tables and the numbers to `--out`. Steps are model calls,
    not seconds.
    """
    from goldimask.backbones import find_model, load_backbone
    from goldimask.decoding.sweep import evaluator, is_baseline, to_json
    from goldimask.decoding.sweep import sweep as run_sweep

    taus = numbers(tau, "--tau", float)
    sizes = [None] if lengths is None else numbers(lengths, "--lengths", int)
    names = [t.strip() for t in tasks.split(",") if t.strip()]
    chosen = None if baselines is None else {b.strip() for b in baselines.split(",")}
    if chosen is not None and not chosen <= set(runs):
        raise GoldimaskError(
            f"--baselines: {', '.join(sorted(chosen - set(runs)))} is not among the runs"
        )
    labels = [find_model(r).name for r in runs]
    plan = [
        (
            label if labels.count(label) == 1 else r,  # two folders may share a last name
            partial(load_backbone, r),
            r in chosen if chosen is not None else is_baseline(r),
        )
        for r, label in zip(runs, labels, strict=True)
    ]
    evaluate = evaluator(block, limit, batch_size, out, protocol, data)
    total = len(plan) * len(names) * len(sizes) * len(taus)
    with progress("sweep", total) as advance:
        points = run_sweep(plan, names, evaluate, taus, sizes, lambda note: advance(1, note))
    result = to_json(points)
    if out is not None:
        result["files"] = [str(p) for p in write_all(points, result, out)]
    if not result["reductions"] and not as_json:
        say("no step reductions: the runs are all baselines or all candidates (see --baselines)")
    emit(result, as_json, tables(points))


def numbers(text: str, option: str, kind: Any) -> list[Any]:
    try:
        return [kind(x) for x in text.split(",")]
    except ValueError as error:
        raise GoldimaskError(f"{option}: expected numbers like 1,2, got '{text}'") from error


def write_all(points: Any, result: dict[str, Any], out: Path) -> list[Path]:
    from goldimask.files import write_json, write_text
    from goldimask.report.sweep import markdown, write_figure

    return [
        *write_figure(points, out),
        write_text(out / "sweep.md", markdown(points)),
        write_json(out / "sweep.json", result),
    ]


def tables(points: Any) -> Any:
    from rich.console import Group

    from goldimask.report.sweep import point_rows, reduction_rows

    columns, rows = point_rows(points)
    parts = [table("Accuracy and steps (* candidate)", columns, rows, left=2)]
    columns, rows = reduction_rows(points)
    if rows:
        parts.append(table("Against the most accurate baseline", columns, rows, left=2))
    return Group(*parts)
