"""`goldimask score FILE --task T`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, say, table

if TYPE_CHECKING:
    from rich.console import Group


@app.command()
def score(
    files: Annotated[
        list[Path], typer.Argument(help="Stored generations; several files are pooled.")
    ],
    task: Annotated[str, typer.Option(help="A task (`goldimask list tasks`).")],
    protocol: Annotated[
        str, typer.Option(help="fixed (corrected parsers) or lift (as released).")
    ] = "fixed",
    diff: Annotated[
        bool, typer.Option("--diff", help="Show the samples on which the protocols disagree.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="The test set, to look up golds (else GOLDIMASK_DATA).")
    ] = None,
    allow_code_execution: Annotated[
        bool, typer.Option("--allow-code-execution", help="Run generated programs in the sandbox.")
    ] = False,
    sandbox: Annotated[str, typer.Option(help="auto, bubblewrap or limits.")] = "auto",
    as_json: JsonFlag = False,
) -> None:
    """Score generations stored by any harness: d1, LIFT, lm-eval, or `goldimask eval`.

    Examples:

        goldimask score gsm8k_*_generations.json --task gsm8k

        goldimask score out.json --task math500 --protocol lift --diff
    """
    from goldimask.errors import GoldimaskError, nearest
    from goldimask.eval.score import disagreements, read_stored, score_stored
    from goldimask.eval.tasks import accepted, get_task

    if protocol not in ("fixed", "lift"):
        raise GoldimaskError(f"--protocol: '{protocol}'; {nearest(protocol, ('fixed', 'lift'))}")
    given = accepted(task, {"allow_code_execution": allow_code_execution, "sandbox": sandbox})
    chosen = get_task(task, protocol=protocol, **given)
    if chosen.prepare:
        say(chosen.prepare())
    stored = read_stored(files, chosen, data)
    result = score_stored(stored, chosen, len(files))
    report = result.to_json()
    if missing := report["details"].get("no gold"):
        say(f"[yellow]note:[/yellow] {missing} rows carry no gold answer; give the set with --data")
    differing: list[dict[str, Any]] = []
    if diff:
        other = "lift" if protocol == "fixed" else "fixed"
        second = score_stored(stored, get_task(task, protocol=other, **given), len(files))
        differing = disagreements(stored, result, second)
        report |= {"diff": differing, "other": second.to_json()}
    emit(report, as_json, None if as_json else human(report))


def human(report: dict[str, Any]) -> Group:
    """Tables for a person."""
    from rich.console import Group
    from rich.markup import escape

    percent = lambda x: f"{100 * x:.2f} %"  # noqa: E731
    rows = [
        ("protocol", report["protocol"]),
        ("generations", f"{report['n']} in {report['files']} file(s)"),
        ("correct", str(report["correct"])),
        (report["metric"], percent(report["accuracy"])),
        ("95 % (Wilson)", f"{percent(report['low'])} to {percent(report['high'])}"),
        ("unparsable", str(report["unparsable"])),
        *(
            (k.replace("_", " "), f"{report[k]:.4g}")
            for k in ("cells", "cells_correct", "solved")
            if k in report
        ),
        *((f"failed: {k}", str(v)) for k, v in sorted(report["details"].items())),
        *((trial_name(t), percent(t["accuracy"])) for t in report.get("trials", ())),
    ]
    parts = [table(report["task"], ("", ""), rows)]
    if "other" in report:
        other = report["other"]
        cells = [
            (
                x["where"],
                escape(short(x["gold"])),
                *(mark(x[p]) for p in (report["protocol"], other["protocol"])),
            )
            for x in report["diff"]
        ]
        title = f"{len(cells)} disagreements; {other['protocol']}: {percent(other['accuracy'])}"
        columns = ("where", "gold", report["protocol"], other["protocol"])
        parts.append(table(title, columns, cells, left=4))
    return Group(*parts)


def trial_name(trial: dict[str, Any]) -> str:
    options = " ".join(f"{k}={v}" for k, v in sorted(trial["decoding"]["options"].items()))
    where = f"length {trial['length']}, seed {trial['seed']}"
    return f"{trial['decoding']['decoder']} {options}, {where}"


def mark(side: dict[str, Any]) -> str:
    from rich.markup import escape

    return ("right: " if side["correct"] else "wrong: ") + escape(short(side["extracted"]))


def short(value: object, length: int = 60) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= length else text[: length - 3] + "..."
