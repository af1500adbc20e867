"""The form of the paper's main results.

Methods by tasks; the average is over tasks; bold
marks the best mean of a column; below each method that is not a baseline stands its relative
change, value / strongest baseline - 1; the strongest baseline is that of the highest average.
Panels (backbone and corpus) stand below each other or, as in the paper's tables of code and AIME,
side by side.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from goldimask.errors import GoldimaskError
from goldimask.stats import Spread, seed_spreads
from goldimask.tables import Cell, Change, Panel, Share, Table

Runs = Mapping[str, Mapping[int, Mapping[str, float]]]  # method -> seed -> task -> share


@dataclass(frozen=True)
class Line:
    """A method's row; `change` is relative to the strongest baseline, None for baselines."""

    method: str
    cells: dict[str, Spread]  # what was not evaluated is missing
    best: frozenset[str]
    change: dict[str, float | None] | None = None
    partial: frozenset[str] = frozenset()  # columns of incomplete evaluations


@dataclass(frozen=True)
class Results:
    """What the table shows, as numbers."""

    columns: tuple[str, ...]  # tasks, and the average of several
    lines: tuple[Line, ...]
    strongest: str | None = None


def results(
    runs: Runs,
    baselines: Sequence[str] = (),
    base: Sequence[str] = (),
    partial: Collection[tuple[str, str]] | None = None,
    tasks: tuple[str, ...] = (),
) -> Results:
    """`baselines` are fine-tuned; `base` are untuned models, never the strongest baseline.

    Every seed of every method must have every task, unless `partial` names the (method, task)
    whose cells are incomplete: then what is missing stays empty, and such a row has no average.
    `tasks` are those to show; all, unless named.
    """
    if not runs:
        raise GoldimaskError("a results table needs at least one method")
    every = dict.fromkeys(t for seeds in runs.values() for r in seeds.values() for t in r)
    tasks = tasks or tuple(every)
    cells: dict[str, dict[str, Spread]] = {}
    for method, seeds in runs.items():
        for seed, row in seeds.items():
            missing = [t for t in tasks if t not in row]
            if missing and partial is None:
                raise GoldimaskError(f"{method}, seed {seed}: no score for {', '.join(missing)}")
        cells[method] = seed_spreads(seeds, tasks)
    columns = (*tasks, "average") if len(tasks) > 1 else tasks
    known = [m for m in baselines if "average" in cells.get(m, {})]
    strongest = max(known, key=lambda m: cells[m]["average"].mean, default=None)
    top = {c: max((s[c].mean for s in cells.values() if c in s), default=0.0) for c in columns}
    lines = []
    for method, row in cells.items():
        best = frozenset(c for c in row if c in top and len(cells) > 1 and row[c].mean == top[c])
        change = None
        if strongest is not None and method not in (*baselines, *base):
            rival = cells[strongest]
            change = {
                c: row[c].mean / rival[c].mean - 1
                if c in row and c in rival and rival[c].mean
                else None
                for c in columns
            }
        marked = frozenset(c for c in columns if (method, c) in (partial or ()))
        marked |= {"average"} if marked else frozenset()
        lines.append(Line(method, row, best, change, marked))
    return Results(columns, tuple(lines), strongest)


def panels_table(
    panels: Mapping[str, Results], name: str, title: str, note: str = "", wide: bool = False
) -> Table:
    """The paper's form with a part for each panel (backbone and corpus); `wide`: side by side.

    As CSV and JSON, one line per method and task.
    """
    several = len(panels) > 1
    head = ("method", "task", "mean", "sd", "seeds", "change", "against")
    plain: list[tuple[Cell, ...]] = [("panel", *head) if several else head]
    for panel, found in panels.items():
        for line in found.lines:
            for c in (c for c in found.columns if c in line.cells):
                cell, change = line.cells[c], (line.change or {}).get(c)
                against = found.strongest if change is not None else None
                one = (line.method, c, cell.mean, cell.sd, cell.n, change, against)
                plain.append((panel, *one) if several else one)
    columns = tuple(dict.fromkeys(c for found in panels.values() for c in found.columns))
    columns = tuple(sorted(columns, key=lambda c: c == "average"))
    rows: list[tuple[Cell, ...]] = []
    groups: tuple[tuple[str, int], ...] = ()
    if several and wide:
        single = len(columns) == 1
        groups = () if single else tuple((p, len(found.columns)) for p, found in panels.items())
        places = [(p, c) for p, found in panels.items() for c in found.columns]
        lines = {(p, x.method): x for p, found in panels.items() for x in found.lines}
        for method in dict.fromkeys(m for _, m in lines):
            mine = [(lines.get((p, method)), c) for p, c in places]
            rows.append((method, *(share(line, c) for line, c in mine)))
            if any(line and line.change is not None for line, _ in mine):
                changes = (Change((line.change or {}).get(c) if line else None) for line, c in mine)
                rows.append(("vs. best baseline", *changes))
        columns = tuple(p if single else f"{p}: {c}" for p, c in places)
    else:
        for panel, found in panels.items():
            if several:
                rows.append((Panel(panel), *("" for _ in columns)))
            for line in found.lines:
                rows.append((line.method, *(share(line, c) for c in columns)))
                if line.change is not None:
                    ratios = (Change(line.change.get(c)) for c in columns)
                    rows.append((f"vs. {found.strongest}", *ratios))
    return Table(name, title, ("method", *columns), tuple(rows), 1, note, tuple(plain), groups)


def share(line: Line | None, column: str) -> Share | None:
    if line is None or column not in line.cells:
        return None
    return Share(line.cells[column], column in line.best, column in line.partial)
