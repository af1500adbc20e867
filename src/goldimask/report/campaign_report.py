"""A campaign's folder as tables, figures and one page: `OUT/campaign.json` says what its cells are.

    tables/[PART/]*.{csv,md,tex,json}   figures/[PART/]*.{pdf,png}   report.html   report.md
    summary.json                        what `write_campaign` returns

A part is a set of cells with the tables and figures to make of them; a campaign has one or several.
Only cells that are done are in tables; what is left out is named. Each folder is read once. A part
whose cells cannot stand in one table (other protocols, say) is refused by itself, with the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.files import write_json, write_text
from goldimask.records import RECIPE, evaluated, read_json
from goldimask.report.cells import Entry
from goldimask.report.comparison import Choices
from goldimask.report.paper import ALL
from goldimask.report.runs_page import markdown, write_files, write_html
from goldimask.report.runs_report import Report, make_report
from goldimask.report.sources import CAMPAIGN, Source, is_done, told_apart
from goldimask.stats import finite
from goldimask.tables import WRITERS

KEYS = ("row", "folder")  # that every cell has
SUFFIXES = {f".{suffix}" for suffix, _ in WRITERS.values()} | {".pdf", ".png"}


@dataclass(frozen=True)
class Part:
    """Some cells, and what to make of them."""

    name: str
    title: str
    cells: frozenset[str]
    tables: tuple[str, ...]
    figures: tuple[str, ...]
    tau: float | None


def write_campaign(
    out: Path,
    tables: Sequence[str] = (),
    figures: Sequence[str] = (),
    choices: Choices | None = None,
    title: str = "",
) -> dict[str, Any]:
    """Everything a campaign's folder shows; `tables` and `figures` are in place of its own."""
    campaign = read_campaign(out)
    cells = campaign["cells"]
    sources = read_cells(out, cells)
    parts = parts_of(campaign)
    choices = choices or Choices(length="both", allow_incomplete=True)
    made: dict[str, Report] = {}
    refused: dict[str, str] = {}
    left_out: list[str] = []
    for part in parts:
        mine = [c for c in cells if name_of(c) in part.cells]
        left_out += [f"{name_of(c)}: {state_of(c)}" for c in mine if not is_done(c)]
        chosen = {str(c["folder"]): sources.get(str(c["folder"])) for c in mine if is_done(c)}
        settled = replace(choices, tau=part.tau) if choices.tau is None else choices
        named = (tuple(tables) or part.tables, tuple(figures) or part.figures)
        try:
            kept = [s for s in chosen.values() if s]
            made[part.name] = make_report(kept, {}, part.title, settled, *named)
        except GoldimaskError as error:
            refused[part.name] = str(error)
    files: list[Path] = []
    for name, report in made.items():
        below = name if len(parts) > 1 else ""
        places = [out / "tables" / below, out / "figures" / below]
        written = write_files(report, places[0], places[1])
        remove_others(places, written)
        files += written
    title = title or f"Campaign {campaign.get('name', out.name)}"
    notes = [f"{name}: refused: {text}" for name, text in refused.items()]
    notes += [note for r in made.values() for note in r.notes]
    notes += [f"left out: {line}" for line in dict.fromkeys(left_out)]
    found = tuple(c for r in made.values() for c in r.comparisons)
    shown = tuple(s for s in sources.values())
    whole = Report(title, shown, (), (), found, tuple(dict.fromkeys(notes)))
    entries = [entry(c, sources.get(str(c["folder"]))) for c in cells]
    page = write_html([whole, *made.values()], out / "report.html", files, entries)
    texts = [markdown(r, [], page) for r in made.values()]
    write_text(out / "report.md", "\n".join(texts))
    summary = {
        **{k: v for k, v in campaign.items() if k not in ("cells", "parts")},
        "page": str(page),
        "cells": len(cells),
        "done": sum(map(is_done, cells)),
        "tables": {name: [t.name for t in r.tables] for name, r in made.items()},
        "figures": {name: [f.name for f in r.figures] for name, r in made.items()},
        "comparisons": {n: [c.as_dict() for c in r.comparisons] for n, r in made.items()},
        "refused": refused,
        "left_out": list(dict.fromkeys(left_out)),
        "notes": list(dict.fromkeys(n for r in made.values() for n in r.notes)),
    }
    summary = finite(summary)
    write_json(out / "summary.json", summary)
    return summary


def read_campaign(out: Path) -> dict[str, Any]:
    """`campaign.json`, checked as far as it is used."""
    file = out / CAMPAIGN
    campaign = read_json(file)
    cells = campaign.get("cells")
    if not isinstance(cells, list) or not cells:
        raise GoldimaskError(f"{file}: cells: expected a list of cells; run `goldimask compare`")
    for i, cell in enumerate(cells):
        missing = [k for k in KEYS if not isinstance(cell, Mapping) or k not in cell]
        if missing:
            raise GoldimaskError(f"{file}: cells[{i}]: no {' and no '.join(missing)}")
    return campaign


def read_cells(out: Path, cells: Sequence[Mapping[str, Any]]) -> dict[str, Source]:
    """Folder -> the run in it, of all cells that have anything to show."""
    given = {}
    for cell in cells:
        path = out / str(cell["folder"])
        if cell["folder"] and ((path / RECIPE).is_file() or evaluated(path)):
            given[str(cell["folder"])] = (str(cell["row"]), path)
    found = told_apart(list(given.values()))
    return dict(zip(given, found, strict=True))


def parts_of(campaign: Mapping[str, Any]) -> list[Part]:
    """The parts, with all cells and all tables where nothing is said."""
    every = [name_of(c) for c in campaign["cells"]]
    name = str(campaign.get("name", "campaign"))
    out = []
    for part in campaign.get("parts") or [{}]:
        judging = part.get("judging") or {}
        several = len(judging.get("taus") or ()) > 1
        out.append(
            Part(
                name=str(part.get("name", name)),
                title=str(part.get("title") or part.get("name") or name),
                cells=frozenset(part.get("cells", every)),
                tables=tuple(part.get("tables", (ALL,))),
                figures=tuple(part.get("figures", (ALL,))),
                tau=judging.get("main_tau") if several else None,
            )
        )
    return out


def name_of(cell: Mapping[str, Any]) -> str:
    return str(cell.get("name") or cell["folder"])


def state_of(cell: Mapping[str, Any]) -> str:
    state = str(cell.get("state") or ("done" if is_done(cell) else "not done"))
    return f"{state}, {cell['error']}" if cell.get("error") else state


def entry(cell: Mapping[str, Any], source: Source | None) -> Entry:
    """A cell of the page."""
    steps, step = cell.get("steps"), cell.get("step")
    corpus = cell.get("corpus") or (source.corpus if source else "")
    return Entry(
        row=str(cell["row"]),
        backbone=str(cell.get("backbone") or (source.backbone if source else "")),
        corpus=str(corpus or ""),
        seed=cell.get("seed"),
        state=str(cell.get("state") or ("done" if is_done(cell) else "not done")),
        error=str(cell.get("error") or ""),
        progress=f"{step} of {steps}" if step is not None and steps else "",
        source=source,
    )


def remove_others(folders: Sequence[Path], written: Sequence[Path]) -> None:
    """Tables and figures of an earlier call that this one did not make would be taken for ours."""
    kept = {path.resolve() for path in written}
    for path in (p for folder in folders if folder.is_dir() for p in folder.iterdir()):
        if path.is_file() and path.suffix in SUFFIXES and path.resolve() not in kept:
            path.unlink()
