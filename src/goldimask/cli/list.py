"""`goldimask list methods|backbones|tasks|recipes`: what a recipe or a command can name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer

from goldimask.cli.app import JsonFlag, app
from goldimask.console import emit, table

list_app = typer.Typer(
    no_args_is_help=True, help="Name the methods, backbones, tasks and recipes there are."
)
app.add_typer(list_app, name="list")


@list_app.command()
def methods(as_json: JsonFlag = False) -> None:
    """Each training method in one line, with its paper reference and its cost in passes."""
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
    cells = [
        (
            r["name"],
            r["summary"],
            r["paper"],
            _or_dash(r["passes"]),
            "-" if r["paper_cost"] is None else f"{r['paper_cost']:.2f}",
        )
        for r in rows
    ]
    columns = ("method", "what it does", "defined in", "passes", "time in the paper")
    emit({"methods": rows}, as_json, table("Methods", columns, cells, left=3))


@list_app.command()
def backbones(as_json: JsonFlag = False) -> None:
    """Models that have a short name; any folder or Hub id works as well."""
    from goldimask.backbones import BACKBONES

    rows = [{"name": e.name, "summary": e.summary, "source": _source(e.load())} for e in BACKBONES]
    _emit_rows("backbones", rows, as_json)


@list_app.command()
def tasks(as_json: JsonFlag = False) -> None:
    """Tasks that `goldimask eval` can score."""
    import goldimask.eval.tasks  # noqa: F401  registers them
    from goldimask.eval.tasks.base import TASKS

    rows = [{"name": e.name, "summary": e.summary} for e in TASKS]
    _emit_rows("tasks", rows, as_json)


@list_app.command()
def corpora(as_json: JsonFlag = False) -> None:
    """Corpora that a recipe can name under `data.corpus`."""
    from goldimask.data.corpora import CORPORA

    _emit_rows("corpora", [{"name": e.name, "summary": e.summary} for e in CORPORA], as_json)


@list_app.command()
def recipes(as_json: JsonFlag = False) -> None:
    """Recipes inside the package, and those in ./recipes."""
    from goldimask.config import packaged_recipes

    local = {f.stem: f for f in sorted(Path("recipes").glob("*.yaml"))}
    rows = [
        {"name": name, "summary": _first_comment(file), "source": where}
        for where, files in (("package", packaged_recipes()), ("./recipes", local))
        for name, file in files.items()
    ]
    _emit_rows("recipes", rows, as_json)


def _emit_rows(kind: str, rows: list[dict[str, Any]], as_json: bool) -> None:
    columns = list(rows[0]) if rows else ["name"]
    cells = [tuple(_or_dash(row[c]) for c in columns) for row in rows]
    emit({kind: rows}, as_json, table(kind.capitalize(), columns, cells, left=len(columns)))


def _or_dash(value: Any) -> str:
    return "-" if value in (None, "") else str(value)


def _source(source: Any) -> str:
    return source.hub or ("embedded" if source.asset else source.clone)


def _first_comment(file: Path) -> str:
    """The first line of a recipe's header."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((line.lstrip("# ").strip() for line in lines if line.startswith("#")), "")
