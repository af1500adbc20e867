"""`goldimask list decoders`."""

from __future__ import annotations

from goldimask.cli.app import JsonFlag
from goldimask.cli.list import list_app
from goldimask.console import emit, table


@list_app.command()
def decoders(as_json: JsonFlag = False) -> None:
    """Rules that decide what a decoding step commits."""
    from goldimask.decoding import DECODERS

    rows = [{"name": entry.name, "summary": entry.summary} for entry in DECODERS]
    cells = [(row["name"], row["summary"]) for row in rows]
    emit({"decoders": rows}, as_json, table("Decoders", ("decoder", "rule"), cells, left=2))
