"""`goldimask list KIND`: what recipes and commands can name, one line each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from goldimask.cli.options import JsonFlag
from goldimask.console import emit

if TYPE_CHECKING:
    from goldimask.backbones.lookup import Source
    from goldimask.registry import Registry

WIDTH = 80
list_app = typer.Typer(no_args_is_help=True, help="Name what recipes and commands can name.")


@list_app.command()
def methods(as_json: JsonFlag = False) -> None:
    """Training methods; `--json` adds parts, passes, and the place and cost in the paper."""
    from goldimask.presets import PRESETS

    rows = [
        {
            "name": entry.name,
            "summary": entry.summary,
            "passes": (row := entry.load()).passes or None,
            "paper_cost": row.cost,
            "paper": row.paper,
            "noise": dict(row.noise),
            "select": dict(row.select),
            "weigh": dict(row.weigh),
        }
        for entry in PRESETS
    ]
    show("methods", rows, as_json)


@list_app.command()
def tasks(as_json: JsonFlag = False) -> None:
    """Tasks that `goldimask eval` can score."""
    from goldimask.eval.tasks import TASKS

    show("tasks", entries(TASKS), as_json)


@list_app.command()
def decoders(as_json: JsonFlag = False) -> None:
    """Rules that decide what a decoding step commits."""
    from goldimask.decoding import DECODERS

    show("decoders", entries(DECODERS), as_json)


@list_app.command()
def corpora(as_json: JsonFlag = False) -> None:
    """Corpora that a recipe can name under `data.corpus`."""
    from goldimask.data.corpora import CORPORA

    show("corpora", entries(CORPORA), as_json)


@list_app.command()
def backbones(as_json: JsonFlag = False) -> None:
    """Models that have a short name; any folder or Hub id works as well."""
    from goldimask.backbones import BACKBONES

    rows = [{"name": e.name, "summary": e.summary, "source": source(e.load())} for e in BACKBONES]
    show("backbones", rows, as_json)


@list_app.command()
def recipes(as_json: JsonFlag = False) -> None:
    """Recipes inside the package, and those in ./recipes."""
    from goldimask.config import packaged_recipes

    local = {f.stem: f for f in sorted(Path("recipes").glob("*.yaml"))}
    rows = [
        {"name": name, "summary": first_comment(file), "source": where}
        for where, files in (("package", packaged_recipes()), ("./recipes", local))
        for name, file in files.items()
    ]
    show("recipes", rows, as_json)


def entries(registry: Registry[Any]) -> list[dict[str, Any]]:
    return [{"name": entry.name, "summary": entry.summary} for entry in registry]


def show(kind: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    """One object, or a line each that no terminal folds."""
    if as_json:
        emit({kind: rows}, True)
        return
    room = max((len(row["name"]) for row in rows), default=0) + 2
    for row in rows:
        line = f"{row['name']:<{room}}{row['summary'] or '-'}"
        typer.echo(line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…")


def source(found: Source) -> str:
    return found.hub or ("embedded" if found.asset else found.clone)


def first_comment(file: Path) -> str:
    """The first line of a recipe's header."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ").strip() for line in lines if line.startswith("#")), "")
