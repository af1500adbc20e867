"""The typer application, and what every verb shares.

Results go to stdout, everything else (logs, bars, warnings) to stderr; with `--json` stdout holds
exactly one JSON object. A `GoldimaskError` becomes one line on stderr and a non-zero exit.
Verbs import torch and transformers inside their functions, so that `--help` stays instant.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer

app = typer.Typer(
    name="goldimask",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Fine-tune masked diffusion language models: choose what to reveal, weigh what remains.",
    epilog="Add `--debug` to any command for a traceback. Start with `goldimask demo`.",
)
bench_app = typer.Typer(
    no_args_is_help=True, help="Measure speed and memory, as ratios in one run."
)
app.add_typer(bench_app, name="bench")

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]
T = TypeVar("T")


def emit(result: Any, as_json: bool, human: Any = None) -> None:
    """Print a result: one JSON object, or `human` (anything rich can print)."""
    if as_json:
        sys.stdout.write(json.dumps(result, ensure_ascii=False, allow_nan=False) + "\n")
        sys.stdout.flush()
    else:
        from rich.console import Console

        Console().print(human if human is not None else result)


def say(message: str) -> None:
    """A line for the user, on stderr."""
    from rich.console import Console

    Console(stderr=True, soft_wrap=True).print(message, highlight=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> Any:
    """A rich table whose first `left` columns are text and the others right-aligned figures."""
    from rich.table import Table

    out = Table(title=title, title_justify="left", header_style="bold")
    for i, column in enumerate(columns):
        out.add_column(column, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        out.add_row(*(f"{x:.3g}" if isinstance(x, float) else str(x) for x in row))
    return out


@contextmanager
def progress(description: str, total: int | None) -> Iterator[Any]:
    """A bar on stderr; yields `advance(n=1, note="")`. Silent when stderr is not a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(description, total=total, note="")

        def advance(n: int = 1, note: str = "") -> None:
            if note:
                bar.update(task, advance=n, note=note)
            else:
                bar.advance(task, n)

        yield advance
