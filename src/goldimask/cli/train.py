"""`goldimask train RECIPE [key=value ...]`."""

from __future__ import annotations

from typing import Annotated

import typer

from goldimask.cli.app import JsonFlag, app, emit, say, table


@app.command()
def train(
    recipe: Annotated[str, typer.Argument(help="A YAML file, or the name of a packaged recipe.")],
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Overrides, such as `seed=2 method.weigh.cap=5`."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue an unfinished run from its last checkpoint.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the recipe, print it as resolved, and stop.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Fine-tune a backbone as a recipe says.

    Writes a run folder: the adapter or the weights, the recipe as resolved, a manifest, metrics.

    Examples:

        goldimask train tiny-goldimask-d output=runs/first

        goldimask train tiny-goldimask-d method.preset=vanilla seed=43 output=runs/vanilla-43
    """
    from goldimask.config import load_recipe, recipe_dict, recipe_yaml

    resolved = load_recipe(recipe, overrides or [])
    if dry_run:
        from goldimask.build import build_method
        from goldimask.train.arguments import check_trainer

        build_method(resolved.method)
        check_trainer(resolved.trainer)
        emit(recipe_dict(resolved), as_json, recipe_yaml(resolved))
        return
    from goldimask.train.run import train as run

    summary = run(resolved, resume=resume, say=say)
    rows = [(k.replace("_", " "), v) for k, v in summary.items() if v is not None]
    emit(summary, as_json, table("Finished", ("", ""), rows))
