"""The typer application, and what every verb shares.

Results go to stdout, everything else (logs, bars, warnings) to stderr; with `--json` stdout holds
exactly one JSON object. A `GoldimaskError` becomes one line on stderr and a non-zero exit.
Verbs import torch and transformers inside their functions, so that `--help` stays instant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, TypeVar

import typer

from goldimask.errors import GoldimaskError

app = typer.Typer(
    name="goldimask",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Fine-tune masked diffusion language models: choose what to reveal, weigh what remains.",
    epilog="Add `--debug` to any command for a traceback. Start with `goldimask demo`.",
)

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]
N = TypeVar("N", int, float)


def numbers(text: str, option: str, kind: Callable[[str], N]) -> tuple[N, ...]:
    """`128,256` -> (128, 256)."""
    try:
        return tuple(kind(x) for x in text.split(",") if x.strip())
    except ValueError:
        raise GoldimaskError(
            f"{option}: expected numbers such as 1,2 with commas between them, got '{text}'"
        ) from None
