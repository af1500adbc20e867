"""Make a tiny base from nothing.

    python tools/pretrain.py tools/tiny-base.yaml --until 8400

Step-based and reproducible: the same recipe gives the same weights, stopped and resumed or not.
"""

from __future__ import annotations

from typing import Annotated

import typer

from goldimask.console import emit, progress, say, table
from goldimask.errors import GoldimaskError
from pretraining.curves import draw_curves, read_log
from pretraining.recipe import load_pretraining
from pretraining.run import pretrain


def main(
    recipe: Annotated[str, typer.Argument(help="A recipe, such as tools/tiny-base.yaml.")],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value words, such as seed=1 model.width=96.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint, bit by bit.")
    ] = False,
    until: Annotated[
        int | None, typer.Option(help="Stop after this step, with the schedule of the whole run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Pretrain a tiny base on generated problems."""
    settings = load_pretraining(recipe, overrides or [])
    with progress("pretraining", until or settings.steps) as advance:
        last = pretrain(settings, resume=resume, advance=advance, say=say, until=until)
    draw_curves(read_log(f"{settings.output}/log.jsonl"), f"{settings.output}/curves.png")
    rows = [
        (name, values["accuracy"] * 100, values["steps"], last["test_loss"][name])
        for name, values in last.get("test", {}).items()
    ]
    columns = ("family", "accuracy %", "decoding steps", "denoising loss")
    title = f"{settings.output}/model, step {last.get('step')}"
    emit({"output": settings.output, **last}, as_json, table(title, columns, rows))


if __name__ == "__main__":
    try:
        typer.run(main)
    except GoldimaskError as error:
        raise SystemExit(f"error: {error}") from None
