"""`goldimask pretrain`: make the embedded backbone from nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, progress, say, table


@app.command()
def pretrain(
    recipe: Annotated[
        str, typer.Argument(help="A pretraining recipe, such as recipes/tiny-base.yaml.")
    ],
    overrides: Annotated[
        list[str] | None, typer.Argument(help="key=value words, such as steps=100 optim.lr=1e-3.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the last checkpoint, bit by bit.")
    ] = False,
    until: Annotated[
        int | None, typer.Option(help="Stop after this step, with the schedule of the whole run.")
    ] = None,
    json_: JsonFlag = False,
) -> None:
    """Pretrain a tiny backbone on generated problems; step-based and reproducible."""
    from goldimask.tiny.recipe import load_pretraining

    settings = load_pretraining(recipe, overrides or [])
    from goldimask.tiny.pretrain import pretrain as run

    with progress("pretraining", until or settings.steps) as advance:
        last = run(settings, resume=resume, advance=advance, say=say, until=until)
    from goldimask.tiny.curves import draw_curves, read_log

    draw_curves(read_log(f"{settings.output}/log.jsonl"), f"{settings.output}/curves.png")
    result = {"output": settings.output, **last}
    rows = [
        (name, values["accuracy"] * 100, values["steps"], last["test_loss"][name])
        for name, values in last.get("test", {}).items()
    ]
    columns = ("task", "accuracy %", "decoding steps", "denoising loss")
    emit(result, json_, table(f"{settings.output}/model, step {last.get('step')}", columns, rows))
