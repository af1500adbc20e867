"""`goldimask compare-runs NAME=FOLDER ...`: evaluated runs in the paper's table."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit


@app.command("compare-runs")
def compare_runs(
    runs: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME=FOLDER...", help="Evaluated runs; a name given again is another seed."
        ),
    ],
    baselines: Annotated[str, typer.Option(help="Fine-tuned baselines, comma-separated.")] = "",
    base: Annotated[str, typer.Option(help="Untuned models, comma-separated.")] = "",
    length: Annotated[
        str, typer.Option(help="best (selected on test), fixed, or a number.")
    ] = "fixed",
    form: Annotated[
        str, typer.Option("--format", help="terminal, markdown, latex or csv.")
    ] = "terminal",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Write the table there.")] = None,
    as_json: JsonFlag = False,
) -> None:
    """Mean and SD over seeds, relative change against the strongest baseline, paired tests.

    Two methods are paired on the problems both answered: bootstrap interval of the difference and
    exact McNemar test, for each pair of runs in the order given.

    Example:

        goldimask compare-runs vanilla=runs/v42 vanilla=runs/v43 goldimask-d=runs/g42 \\
        goldimask-d=runs/g43 --baselines vanilla --format latex
    """
    from goldimask.errors import GoldimaskError, nearest
    from goldimask.eval.summary import FIXED, SELECTED, chosen_scores, load_results
    from goldimask.eval.tables import render, results_table
    from goldimask.files import write_text

    forms = ("terminal", "markdown", "latex", "csv")
    if form not in forms:
        raise GoldimaskError(f"--format: '{form}'; {nearest(form, forms)}")
    loaded: dict[str, list[Any]] = {}
    for text in runs:
        name, _, folder = text.partition("=")
        if not folder:
            raise GoldimaskError(f"'{text}': expected NAME=FOLDER, such as vanilla=runs/v42")
        loaded.setdefault(name, []).append(load_results(folder))
    for name in (x for x in f"{baselines},{base}".split(",") if x):
        if name not in loaded:
            raise GoldimaskError(
                f"--baselines/--base: no run named '{name}'; {nearest(name, loaded)}"
            )
    scores = {
        name: {i: chosen_scores(results, length) for i, (_, results) in enumerate(many)}
        for name, many in loaded.items()
    }
    note = {"best": SELECTED, "fixed": FIXED}.get(length, f"length {length}")
    made = results_table(scores, split(baselines), split(base), note)
    pairs = list(paired_rows(loaded, made.strongest, length))
    text = render(made, form)  # type: ignore[arg-type]
    if out:
        write_text(out, text)
    report = {
        "note": note,
        "strongest_baseline": made.strongest,
        "methods": {
            line.method: {
                "scores": {c: vars(line.cells[c]) for c in made.columns},
                "change": line.change,
            }
            for line in made.lines
        },
        "paired": pairs,
    }
    if as_json or form != "terminal":
        if as_json:
            emit(report, True)
        else:
            typer.echo(text, nl=False)
        return
    typer.echo(text)
    for p in pairs:
        typer.echo(
            f"{p['task']}, length {p['length']}, run {p['run']}: {p['second_name']} - "
            f"{p['first_name']} = {100 * p['difference']:+.1f} points "
            f"[{100 * p['low']:+.1f}, {100 * p['high']:+.1f}], McNemar p = {p['p']:.3g} "
            f"(n = {p['n']}" + (f"; {p['unpaired']} unpaired" if p["unpaired"] else "") + ")"
        )


def split(text: str) -> tuple[str, ...]:
    return tuple(x for x in text.split(",") if x)


def paired_rows(loaded: dict[str, list[Any]], strongest: str | None, length: str) -> Any:
    """Every other method against the strongest baseline, or against the first run named."""
    from dataclasses import asdict

    from goldimask.eval.summary import best_lengths, compare_pair, fixed_lengths, mean_by_length

    reference = strongest or next(iter(loaded))
    for name, many in loaded.items():
        if name == reference:
            continue
        for run, (one, two) in enumerate(zip(loaded[reference], many, strict=False)):
            choose = best_lengths if length == "best" else fixed_lengths
            for task, (own, _) in choose(two[1]).items():
                at = int(length) if length.isdigit() else own
                if at not in mean_by_length(one[1]).get(task, {}):
                    continue
                result, unpaired = compare_pair(one[0], two[0], task, at)
                names = {"first_name": reference, "second_name": name}
                yield {"task": task, "length": at, "run": run, **names, **asdict(result)} | {
                    "unpaired": unpaired
                }
