"""`goldimask study eligibility`: what models would commit in shared states."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, numbers
from goldimask.cli.study import study_app
from goldimask.console import emit, progress, say, table
from goldimask.errors import GoldimaskError


@study_app.command("eligibility")
def study_eligibility_command(
    runs: Annotated[
        list[str], typer.Argument(metavar="RUN...", help="The first is what others are held to.")
    ],
    data: Annotated[Path | None, typer.Option(help="A file of prompts and responses.")] = None,
    corpus: Annotated[str, typer.Option(help="A named corpus, without --data.")] = "tiny-sft",
    limit: Annotated[int, typer.Option(min=1, help="References.")] = 100,
    tau: Annotated[str, typer.Option(help="Thresholds.")] = "0.7,0.8,0.9,0.95",
    states: Annotated[int, typer.Option(min=1, help="States per reference.")] = 4,
    block: Annotated[int, typer.Option(min=1, help="Positions per block.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the states.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="States per model call.")] = 16,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Also write the JSON here.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Oracle-safe parallelism, threshold precision and their change, on fixed references."""
    from goldimask.backbones import find_model, load_backbone
    from goldimask.data.corpora import open_rows
    from goldimask.data.examples import to_pair
    from goldimask.files import write_json
    from goldimask.studies.eligibility import study_eligibility

    taus = numbers(tau, "--tau", float)
    if any(not 0 < t <= 1 for t in taus):
        raise GoldimaskError(f"--tau: expected confidences in (0, 1], got '{tau}'")
    source = (corpus, None) if data is None else (None, str(data))
    found = [to_pair(row) for row in open_rows(*source, limit=limit)]
    pairs = [(p.prompt, p.response) for p in found]
    names = [find_model(r).name for r in runs]
    labels = [n if names.count(n) == 1 else r for n, r in zip(names, runs, strict=True)]
    models = [(label, partial(load_backbone, r)) for label, r in zip(labels, runs, strict=True)]
    with progress("eligibility", len(models) * len(pairs) * states) as advance:
        result = study_eligibility(
            models,
            pairs,
            taus=taus,
            per_example=states,
            block=block,
            seed=seed,
            batch_size=batch_size,
            advance=advance,
        )
    if out is not None:
        say(f"written: {write_json(out, result)}")
    emit(result, as_json, tables(result))


def tables(result: dict[str, Any]) -> Any:
    from rich.console import Group

    rows = [
        (name, r["tau"], r["masked"], r["eligible"], r["oracle_safe"], shown(r["precision"]))
        for name, lines in result["models"].items()
        for r in lines
    ]
    columns = ("model", "tau", "masked", "eligible", "oracle-safe", "precision")
    parts = [table(f"Per state, {result['states']} shared states", columns, rows)]
    changes = [
        (name, r["tau"], r["gained"], r["lost"], r["net"], f"[{r['low']:.3f}, {r['high']:.3f}]")
        for name, lines in result["changes"].items()
        for r in lines
    ]
    if changes:
        first = next(iter(result["models"]))
        columns = ("model", "tau", "gained", "lost", "net", "95 %")
        parts.append(table(f"Correct eligibility against {first}", columns, changes))
    return Group(*parts)


def shown(precision: float | None) -> str:
    return "–" if precision is None else f"{precision:.3f}"
