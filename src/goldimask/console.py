"""What the user sees: results on stdout, everything else (lines, bars, warnings) on stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


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


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}"
