"""`goldimask selftest`: is this machine right for goldimask, and how fast is it?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from goldimask.cli.options import JsonFlag, out_option, words
from goldimask.console import emit, progress, say

app = typer.Typer()
STYLES = {"ok": "green", "failed": "bold red", "skipped": "dim", "fact": ""}


@app.command()
def selftest(
    only: Annotated[
        str,
        typer.Option(
            help="Parts by commas: machine, arithmetic, block, selection, training, optional."
        ),
    ] = "",
    device: Annotated[
        str | None, typer.Option(help="`cpu`, `cuda:1`; the accelerator if there is one.")
    ] = None,
    out: Annotated[Path, out_option("The results as JSON, to send with an issue.")] = Path(
        "selftest.json"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Check this machine: arithmetic, speed, memory, resuming.

    Compares the device with the CPU, times one block of the 8B model and the selection, and
    interrupts and resumes a small run. Needs no download. Exit code 1 if a check failed.

    Examples:

        goldimask selftest

        goldimask selftest --only machine,arithmetic --device cuda:1
    """
    import torch

    from goldimask.files import write_json
    from goldimask.processes import own_device, use_device
    from goldimask.selftest import PARTS
    from goldimask.selftest import selftest as run

    parts = words(only) or list(PARTS)
    place = torch.device(device) if device else own_device()
    use_device(str(place))  # for the parts that take the current one
    with progress("selftest", len(parts)) as advance:
        found = run(place, parts, advance)
    write_json(out, found)
    say(f"written: {out}")
    emit(found, as_json, None if as_json else table(found))
    if found["failed"]:
        raise typer.Exit(1)


def table(found: dict[str, Any]) -> Any:
    """One row per line; fits 80 columns."""
    from rich.table import Table
    from rich.text import Text

    failed = found["failed"]
    title = f"{found['device']}: " + (f"{failed} failed" if failed else "nothing failed")
    shown = Table(title=title, title_justify="left", header_style="bold", width=80)
    for column in ("part", "check", "found", "limit", ""):
        shown.add_column(column, overflow="fold")
    before = ""
    for row in found["lines"]:
        verdict = row["verdict"]
        last = Text("" if verdict == "fact" else verdict, STYLES[verdict])
        part = "" if row["part"] == before else row["part"]
        before = row["part"]
        shown.add_row(part, Text(row["check"]), Text(row["found"]), row["limit"], last)
    return shown
