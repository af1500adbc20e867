"""`goldimask score`: answers judged as another harness left them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from goldimask.cli.options import (
    AllowCode,
    AllowPlugins,
    JsonFlag,
    Judge,
    Protocol,
    Sandbox,
    TestSets,
)
from goldimask.console import emit, percent, say, table
from goldimask.errors import GoldimaskError, nearest

if TYPE_CHECKING:
    from rich.console import Group

app = typer.Typer()


@app.command()
def score(
    files: Annotated[
        list[Path], typer.Argument(help="Stored generations; several files are pooled.")
    ],
    task: Annotated[str, typer.Option(help="A task (`goldimask list tasks`), or file:test.jsonl.")],
    judge: Judge = None,
    protocol: Protocol = "fixed",
    diff: Annotated[
        bool, typer.Option("--diff", help="Show the samples on which the protocols disagree.")
    ] = False,
    data: TestSets = None,
    allow_code_execution: AllowCode = False,
    sandbox: Sandbox = "auto",
    allow_plugins: AllowPlugins = False,
    as_json: JsonFlag = False,
) -> None:
    """Score generations that any harness has stored.

    Reads the files of d1, LIFT, lm-eval, `goldimask eval` and `goldimask decode --file`.

    Examples:

        goldimask score gsm8k_*_generations.json --task gsm8k

        goldimask score out.json --task math500 --protocol lift --diff

        goldimask score answers.jsonl --task file:test.jsonl
    """
    from goldimask.eval.score import disagreements, read_stored, score_stored
    from goldimask.eval.tasks import accepted, get_task

    if protocol not in ("fixed", "lift"):
        raise GoldimaskError(f"--protocol: '{protocol}'; {nearest(protocol, ('fixed', 'lift'))}")
    asked = {"allow_code_execution": allow_code_execution, "sandbox": sandbox}
    given = accepted(task, asked | ({"judge": judge} if judge else {}))
    chosen = get_task(task, protocol=protocol, **given)
    if chosen.prepare:
        say(chosen.prepare())
    stored = read_stored(files, chosen, data)
    result = score_stored(stored, chosen, len(files))
    report = result.to_json()
    if missing := report["details"].get("no gold"):
        say(f"note: {missing} rows carry no gold answer; give the set with --data")
    if diff:
        other = "lift" if protocol == "fixed" else "fixed"
        second = score_stored(stored, get_task(task, protocol=other, **given), len(files))
        report |= {"diff": disagreements(stored, result, second), "other": second.to_json()}
    emit(report, as_json, None if as_json else score_tables(report))


def score_tables(report: dict[str, Any]) -> Group:
    """Tables for a person."""
    from rich.console import Group

    figure = lambda x: f"{percent(x, 2)} %"  # noqa: E731
    rows = [
        ("protocol", report["protocol"]),
        ("generations", f"{report['n']} in {report['files']} file(s)"),
        ("correct", str(report["correct"])),
        (report["metric"], figure(report["accuracy"])),
        ("95 % (Wilson)", f"{figure(report['low'])} to {figure(report['high'])}"),
        *(
            (f"{k}, {report['problems']} problems", figure(x))
            for k, x in report.get("pass_at", {}).items()
        ),
        ("unparsable", str(report["unparsable"])),
        *(
            (k.replace("_", " "), f"{report[k]:.4g}")
            for k in ("cells", "cells_correct", "solved")
            if k in report
        ),
        *((f"failed: {k}", str(v)) for k, v in sorted(report["details"].items())),
        *((trial_name(t), figure(t["accuracy"])) for t in report.get("trials", ())),
    ]
    parts = [table(report["task"], ("", ""), rows)]
    if "other" in report:
        other = report["other"]
        cells = [
            (
                x["where"],
                short(x["gold"]),
                *(mark(x[p]) for p in (report["protocol"], other["protocol"])),
            )
            for x in report["diff"]
        ]
        title = f"{len(cells)} disagreements; {other['protocol']}: {figure(other['accuracy'])}"
        columns = ("where", "gold", report["protocol"], other["protocol"])
        parts.append(table(title, columns, cells, left=4))
    return Group(*parts)


def trial_name(trial: dict[str, Any]) -> str:
    options = " ".join(f"{k}={v}" for k, v in sorted(trial["decoding"]["options"].items()))
    where = f"length {trial['length']}, seed {trial['seed']}"
    return f"{trial['decoding']['decoder']} {options}, {where}"


def mark(side: dict[str, Any]) -> str:

    return ("right: " if side["correct"] else "wrong: ") + short(side["extracted"])


def short(value: object, length: int = 60) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= length else text[: length - 3] + "..."
