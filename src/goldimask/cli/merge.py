"""`goldimask merge RUN --to DIR`: an adapter folded into its base."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, table


@app.command("merge")
def merge(
    run: Annotated[Path, typer.Argument(help="Folder written by `goldimask train`.")],
    to: Annotated[Path, typer.Option("--to", help="New folder for the merged model.")],
    layout: Annotated[
        str,
        typer.Option(help="hub: the published names and config; native: those of transformers."),
    ] = "hub",
    dtype: Annotated[
        str | None, typer.Option(help="Stored precision; default: that of the base.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an existing folder.")] = False,
    json_: JsonFlag = False,
) -> None:
    """Merge in float32, compare the logits with the adapter's, then write the model."""
    from goldimask.backbones.merge import merge_run

    done = merge_run(run, to, layout, dtype, force)  # type: ignore[arg-type]
    rows = [
        ("folder", done.folder),
        ("layout", done.layout),
        ("stored as", done.dtype),
        ("parameters", f"{done.parameters:,}"),
        ("largest logit difference, merged - adapter", f"{done.difference:.2e}"),
        ("largest logit difference after rounding", f"{done.stored_difference:.2e}"),
        ("same most likely token after rounding", f"{done.agreement:.1%}"),
    ]
    title = "Merged" if done.merged else "Copied (the run has full weights, no adapter)"
    emit(done.as_dict(), json_, table(title, ("", "value"), rows))
