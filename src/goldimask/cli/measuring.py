"""What the verbs of `goldimask study` share: models, folders, shards, tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from goldimask.cli.options import words
from goldimask.console import emit, progress, say
from goldimask.errors import GoldimaskError

Result = dict[str, Any]


@dataclass(frozen=True)
class Where:
    """How and where a study is measured and kept."""

    out: Path | None
    as_json: bool
    device: str | None = None
    dtype: str | None = None
    shard: tuple[int, int] = (0, 1)
    table: Path | None = None


def parse(shard: str, out: Path | None) -> tuple[int, int]:
    """`1/4`; shards meet in a folder."""
    from goldimask.cli.evaluation import parse_shard

    if shard and out is None:
        raise GoldimaskError("--shard: shards meet in a folder; name it with --out")
    return parse_shard(shard or "0/1")


def parse_layers(text: str) -> list[int | float | str]:
    """`last,0,0.5` -> ["last", 0, 0.5]; `all` -> []."""
    if text == "all":
        return []
    try:
        return [
            w if w == "last" else float(w) if "." in w else int(w)  # a share has a point
            for w in words(text)
        ]
    except ValueError:
        raise GoldimaskError(
            f"--layer: expected all, last, block numbers or shares of the depth, got '{text}'"
        ) from None


def frozen_models(
    study: str,
    function: Callable[..., Result],
    options: dict[str, Any],
    runs: list[str] | None,
    where: Where,
) -> None:
    """A study that loads every model once and leaves it as it is."""
    from goldimask.backbones import load_backbone

    examples = options["examples"]

    def measure(source: str, gather: Any) -> Result:
        backbone = load_backbone(source, dtype=where.dtype, device=where.device)
        with progress(study, examples * len(options["seeds"]) // where.shard[1]) as advance:
            return function(backbone, gather=gather, advance=advance, **options)

    each_model(study, measure, options, runs, examples, where)


def each_model(
    study: str,
    measure: Callable[[str, Any], Result],
    settings: dict[str, Any],
    runs: list[str] | None,
    rows: int,
    where: Where,
) -> None:
    """Measure every model by itself; with `out`, each has its folder."""
    from goldimask.studies.examples import study_rows
    from goldimask.studies.run import labels, save_table
    from goldimask.tables import file_name

    models = labels(runs or ["tiny"])
    if where.table is not None and len(models) > 1:
        raise GoldimaskError("--table: holds the curve of one model; name one RUN")
    data = study_rows(settings["corpus"], rows)
    results = []
    for name, source in models.items():

        def named(gather: Any, name: str = name, source: str = source) -> Result:
            return {**measure(source, gather), "backbone": name}

        folder = None if where.out is None else where.out / f"{study}-{file_name(name)}"
        result = kept(study, named, {name: source}, settings, data, folder, where)
        if result is None:
            continue
        results.append(result)
        if where.table is not None:
            save_table(where.table, result, {name: source}, data)
            say(f"written: {where.table}")
    if results:
        show(results, {"results": results}, where.as_json)


def kept(
    study: str,
    measure: Callable[[Any], Result],
    models: dict[str, str],
    settings: dict[str, Any],
    data: Sequence[Any],
    folder: Path | None,
    where: Where,
) -> Result | None:
    """A result, from its folder if it is to have one; None while other shards are to come."""
    from goldimask.stats import finite
    from goldimask.studies.run import run_study, study_manifest
    from goldimask.studies.shards import Waiting, everything

    if folder is None:
        return finite(measure(everything))
    settings = {**settings, "dtype": [precision(source, where) for source in models.values()]}
    manifest = study_manifest(study, models, settings, data)
    try:
        return run_study(folder, manifest, measure, say, where.shard)
    except Waiting as waiting:
        say(str(waiting))
        return None


def precision(source: str, where: Where) -> str:
    """In which numbers a model is measured, as `load_backbone` decides it."""
    import torch

    from goldimask.backbones import find_model
    from goldimask.backbones.loading import resolve_dtype
    from goldimask.processes import own_device

    place = torch.device(where.device or own_device())
    asked = where.dtype or find_model(source).options.get("dtype")
    return str(resolve_dtype(asked, place)).removeprefix("torch.")


def show(results: Sequence[Result], value: Result, as_json: bool) -> None:
    """The tables of all results, or their JSON."""
    from goldimask.studies.output import study_tables
    from goldimask.tables import terminal

    if as_json:
        emit(value, True)
    else:
        typer.echo("\n".join(terminal(table) for r in results for table in study_tables(r)))
