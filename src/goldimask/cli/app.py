"""The typer application, and what every verb shares.

Results go to stdout, everything else (logs, bars, warnings) to stderr; with `--json` stdout holds
exactly one JSON object. A `GoldimaskError` becomes one line on stderr and a non-zero exit.
Verbs import torch and transformers inside their functions, so that `--help` stays instant.
"""

from __future__ import annotations

from typing import Annotated

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

JsonFlag = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]
