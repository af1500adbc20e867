"""What the user sees: results on stdout, everything else (lines, bars, warnings) on stderr.

Names, rows and generated texts are shown as they are: no part of them is a style, a link or a
command to the terminal. Colours and bars are for terminals. Elsewhere, in a log file, a bar is a
line now and then. `hush` (`--quiet`) leaves results and errors.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

CONTROLS = {i: f"\\x{i:02x}" for i in (*range(32), *range(127, 160)) if chr(i) not in "\n\t"}
EVERY = 5.0  # seconds that pass between two lines of a bar at least
_quiet = False


@contextmanager
def hush() -> Iterator[None]:
    """Say nothing within the block."""
    global _quiet
    before, _quiet = _quiet, True
    try:
        yield
    finally:
        _quiet = before


def is_quiet() -> bool:
    return _quiet


def on_terminal() -> bool:
    """Whether somebody watches stderr."""
    return terminal(stderr=True).is_terminal


def emit(result: Any, as_json: bool, human: Any = None) -> None:
    """Print a result: one JSON object, or `human` (anything rich can print)."""
    if as_json:
        sys.stdout.write(json.dumps(result, ensure_ascii=False, allow_nan=False) + "\n")
        sys.stdout.flush()
    else:
        human = result if human is None else human
        terminal().print(visible(human) if isinstance(human, str) else human)


def say(message: str) -> None:
    """A line for the user, on stderr; a terminal folds it between words, a log keeps it whole."""
    if not _quiet:
        console = terminal(stderr=True)
        whole = not console.is_terminal
        console.print(visible(message), highlight=False, soft_wrap=whole)


@cache
def say_once(message: str) -> None:
    """What holds for many things of one command."""
    say(message)


def suggest(*commands: str) -> None:
    """What to type next, whole on one line each."""
    if not _quiet:
        text = "\n".join(["next:", *(f"  {command}" for command in commands)])
        terminal(stderr=True).print(visible(text), highlight=False, soft_wrap=True)


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
def progress(description: str, total: int | None, lines: bool = False) -> Iterator[Any]:
    """A bar on stderr; yields `advance(n=1, note="")`. Without a terminal: a line per tenth, if
    `lines`, or nothing.
    """
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    console = terminal(stderr=True)
    if not console.is_terminal or _quiet:
        yield Tenths(description, total) if lines and total else lambda *_, **__: None
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[note]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(description, total=total, note="")

        def advance(n: int = 1, note: str = "") -> None:
            if note:
                bar.update(task, advance=n, note=note)
            else:
                bar.advance(task, n)

        yield advance


class Tenths:
    """`advance` of a bar that is a line at every tenth."""

    def __init__(self, description: str, total: int) -> None:
        self.description, self.total, self.done = description, total, 0
        self.began = self.last = time.monotonic()

    def __call__(self, n: int = 1, note: str = "") -> None:
        before, self.done = self.done, self.done + n
        now = time.monotonic()
        if 10 * self.done // self.total > 10 * before // self.total and now - self.last >= EVERY:
            self.last = now
            left = (now - self.began) / self.done * (self.total - self.done)
            say(f"{self.description} {self.done}/{self.total}, {duration(left)} left")


def duration(seconds: float) -> str:
    """`0:46`, `1:02:03`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}"
