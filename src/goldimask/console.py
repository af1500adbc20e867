"""What the user sees: results on stdout, everything else (lines, bars, warnings) on stderr.

Names, rows and generated texts are shown as they are: no part of them is a style, a link or a
command to the terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

CONTROLS = {i: f"\\x{i:02x}" for i in (*range(32), *range(127, 160)) if chr(i) not in "\n\t"}


def emit(result: Any, as_json: bool, human: Any = None) -> None:
    """Print a result: one JSON object, or `human` (anything rich can print)."""
    if as_json:
        sys.stdout.write(json.dumps(result, ensure_ascii=False, allow_nan=False) + "\n")
        sys.stdout.flush()
    else:
        human = result if human is None else human
        terminal().print(visible(human) if isinstance(human, str) else human)


def say(message: str) -> None:
    """A line for the user, on stderr."""
    terminal(stderr=True, soft_wrap=True).print(visible(message), highlight=False)


def terminal(**options: Any) -> Any:
    """Rich's console; `[x]` and `:x:` in a text mean themselves."""
    from rich.console import Console

    return Console(markup=False, emoji=False, **options)


def visible(text: str) -> str:
    """A text whose control characters can be seen and do nothing."""
    return text.translate(CONTROLS)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], left: int = 1) -> Any:
    """A rich table whose first `left` columns are text and the others right-aligned figures."""
    from rich.table import Table

    out = Table(title=visible(title), title_justify="left", header_style="bold")
    for i, column in enumerate(columns):
        out.add_column(column, justify="left" if i < left else "right", overflow="fold")
    for row in rows:
        out.add_row(*(f"{x:.3g}" if isinstance(x, float) else visible(str(x)) for x in row))
    return out


@contextmanager
def progress(description: str, total: int | None) -> Iterator[Any]:
    """A bar on stderr; yields `advance(n=1, note="")`. Silent when stderr is not a terminal."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = terminal(stderr=True)
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
