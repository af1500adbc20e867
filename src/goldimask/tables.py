"""A table once, written four ways: Markdown, LaTeX (booktabs), CSV, terminal.

Cells are texts, whole numbers, floats (four significant digits), None (a dash), a `Share` (mean ±
SD over seeds in per cent, bold where it is the best) or a `Change` (relative, with an arrow).

`results_table` is the paper's (main results): methods by tasks; the average is over tasks; bold
marks the best mean of a column; below each method that is not a baseline stands its relative
change, value / strongest baseline - 1; the strongest baseline is that of the highest average.
"""

from __future__ import annotations

import csv as csv_files
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError
from goldimask.files import write_text
from goldimask.stats import Spread, seed_spreads

Runs = Mapping[str, Mapping[int, Mapping[str, float]]]  # method -> seed -> task -> share
LATEX = {
    **{c: f"\\{c}" for c in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "−": "$-$",
    "±": r"$\pm$",
    "≥": r"$\ge$",
    "Δ": r"$\Delta$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
}


@dataclass(frozen=True)
class Share:
    """A mean over seeds, shown in per cent."""

    value: Spread
    best: bool = False


@dataclass(frozen=True)
class Change:
    """A relative change; None where there is nothing to compare with."""

    value: float | None


Cell = str | int | float | None | Share | Change


@dataclass(frozen=True)
class Table:
    """Columns and rows with a name (of its files) and a title."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left: int = 1  # leading columns of text; the others are right-aligned
    note: str = ""
    plain: tuple[tuple[Cell, ...], ...] = ()  # CSV instead, head first, where cells say more


# --- writers -------------------------------------------------------------------------------------


def shown(cell: Cell) -> str:
    """A cell as text; line breaks and invisible characters become marks."""
    if cell is None or (isinstance(cell, Change) and cell.value is None):
        return "–"
    if isinstance(cell, Share):
        sd = "" if cell.value.sd is None else f" ± {100 * cell.value.sd:.1f}"
        return f"{100 * cell.value.mean:.1f}{sd}"
    if isinstance(cell, Change):
        value = cell.value or 0.0
        return f"{'↑' if value >= 0 else '↓'} {abs(100 * value):.1f}%"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return "".join(c if c.isprintable() else _mark(c) for c in str(cell))


def _mark(char: str) -> str:
    return "⏎" if char == "\n" else f"U+{ord(char):04X}"


def markdown(table: Table) -> str:
    def cell(value: Cell) -> str:
        text = shown(value).replace("|", "\\|").replace("<", "&lt;")
        return f"**{text}**" if isinstance(value, Share) and value.best else text

    rule = ["---" if i < table.left else "---:" for i in range(len(table.columns))]
    rows = [[cell(x) for x in row] for row in (table.columns, *table.rows)]
    lines = ["| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:])]
    return "\n".join([*lines, *(["", table.note] if table.note else [])]) + "\n"


def latex(table: Table) -> str:
    """A `table` environment; needs the booktabs package."""

    def cell(value: Cell) -> str:
        if isinstance(value, Share):
            mean, _, sd = shown(value).partition(" ± ")
            mean = rf"\textbf{{{mean}}}" if value.best else mean
            return rf"{mean}{{\scriptsize\,$\pm$\,{sd}}}" if sd else mean
        text = tex(shown(value))
        return rf"{{\scriptsize {text}}}" if isinstance(value, Change) else text

    line = lambda cells: " & ".join(cell(c) for c in cells) + r" \\"  # noqa: E731
    form = "l" * table.left + "r" * (len(table.columns) - table.left)
    caption = table.title + (f". {table.note}" if table.note else "")
    parts = [
        *(r"\begin{table}", r"\centering", rf"\caption{{{tex(caption)}}}"),
        *(rf"\label{{tab:{file_name(table.name)}}}", rf"\begin{{tabular}}{{{form}}}", r"\toprule"),
        *(line(table.columns), r"\midrule", *(line(row) for row in table.rows)),
        *(r"\bottomrule", r"\end{tabular}", r"\end{table}"),
    ]
    return "\n".join(parts) + "\n"


def tex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in text)


def csv(table: Table) -> str:
    """Comma-separated, numbers in full precision, None empty."""
    out = io.StringIO()
    writer = csv_files.writer(out, lineterminator="\n")
    for row in table.plain or (table.columns, *table.rows):
        writer.writerow(["" if x is None else _number(x) for x in row])
    return out.getvalue()


def _number(cell: Cell) -> object:
    if isinstance(cell, Share):
        return cell.value.mean
    return cell.value if isinstance(cell, Change) else cell


def terminal(table: Table) -> str:
    """Aligned text, never folded."""
    rows = [[shown(x) for x in row] for row in (table.columns, *table.rows)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(table.columns))]
    lines = [
        "  ".join(
            x.ljust(w) if i < table.left else x.rjust(w)
            for i, (x, w) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * w for w in widths))
    head = [table.title, ""] if table.title else []
    return "\n".join([*head, *lines, *(["", table.note] if table.note else [])]) + "\n"


WRITERS: dict[str, tuple[str, Callable[[Table], str]]] = {  # format -> (suffix, writer)
    "terminal": ("txt", terminal),
    "markdown": ("md", markdown),
    "latex": ("tex", latex),
    "csv": ("csv", csv),
}


def write(
    table: Table, folder: Path, forms: Sequence[str] = ("csv", "markdown", "latex")
) -> list[Path]:
    """`NAME.csv`, `NAME.md`, `NAME.tex`."""
    made = []
    for form in forms:
        suffix, writer = WRITERS[form]
        made.append(write_text(folder / f"{file_name(table.name)}.{suffix}", writer(table)))
    return made


def file_name(name: str) -> str:
    """A name that is a file name everywhere."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in name)
    return kept or "unnamed"


# --- the paper's results table -------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """A method's row; `change` is relative to the strongest baseline, None for baselines."""

    method: str
    cells: dict[str, Spread]
    best: frozenset[str]
    change: dict[str, float | None] | None = None


@dataclass(frozen=True)
class Results:
    """What the table shows, as numbers."""

    columns: tuple[str, ...]  # tasks, and the average of several
    lines: tuple[Line, ...]
    strongest: str | None = None


def results(runs: Runs, baselines: Sequence[str] = (), base: Sequence[str] = ()) -> Results:
    """`baselines` are fine-tuned; `base` are untuned models, never the strongest baseline."""
    if not runs:
        raise GoldimaskError("a results table needs at least one method")
    tasks = tuple(dict.fromkeys(t for seeds in runs.values() for r in seeds.values() for t in r))
    for method, seeds in runs.items():
        for seed, row in seeds.items():
            if missing := [t for t in tasks if t not in row]:
                raise GoldimaskError(f"{method}, seed {seed}: no score for {', '.join(missing)}")
    cells = {m: seed_spreads(seeds, tasks) for m, seeds in runs.items()}
    known = [m for m in baselines if m in cells]
    strongest = max(known, key=lambda m: cells[m]["average"].mean, default=None)
    columns = (*tasks, "average") if len(tasks) > 1 else tasks
    top = {c: max(s[c].mean for s in cells.values()) for c in columns}
    lines = []
    for method, row in cells.items():
        best = frozenset(c for c in columns if len(cells) > 1 and row[c].mean == top[c])
        change = None
        if strongest is not None and method not in (*baselines, *base):
            rival = cells[strongest]
            change = {
                c: row[c].mean / rival[c].mean - 1 if rival[c].mean else None for c in columns
            }
        lines.append(Line(method, row, best, change))
    return Results(columns, tuple(lines), strongest)


def results_table(found: Results, name: str, title: str, note: str = "") -> Table:
    """The paper's form; as CSV one line per method and task."""
    rows: list[tuple[Cell, ...]] = []
    plain: list[tuple[Cell, ...]] = [("method", "task", "mean", "sd", "seeds", "change", "against")]
    for line in found.lines:
        shares = (Share(line.cells[c], c in line.best) for c in found.columns)
        rows.append((line.method, *shares))
        changes = line.change or {}
        if line.change is not None:
            rows.append((f"vs. {found.strongest}", *(Change(changes[c]) for c in found.columns)))
        for c in found.columns:
            cell, against = line.cells[c], found.strongest if changes.get(c) is not None else None
            plain.append((line.method, c, cell.mean, cell.sd, cell.n, changes.get(c), against))
    return Table(name, title, ("method", *found.columns), tuple(rows), 1, note, tuple(plain))


# --- any JSON as tables --------------------------------------------------------------------------


def tables_of(name: str, title: str, value: Any) -> list[Table]:
    """Scalars together, each list or mapping of records by itself."""
    if not isinstance(value, Mapping):
        return []
    scalars = {k: v for k, v in value.items() if isinstance(v, str | int | float | None)}
    found = []
    if scalars:
        found.append(Table(name, title, ("", "value"), tuple(scalars.items())))
    for key, inner in value.items():
        named, records = records_of(inner)
        if records:
            columns = tuple(dict.fromkeys(c for _, r in records for c in r))
            rows = tuple(
                (*([n] if named else []), *(r.get(c) for c in columns)) for n, r in records
            )
            head = ("", *columns) if named else columns
            found.append(Table(f"{name}-{key}", f"{title}: {key}", head, rows))
    return found


def records_of(value: Any) -> tuple[bool, list[tuple[str, dict[str, Cell]]]]:
    """Whether the records of a value have names, and (name, record) in order.

    A list of records has none; a mapping holds one record, or a list of them, under each name.
    """
    if isinstance(value, Sequence) and not isinstance(value, str):
        return False, [("", flat(v)) for v in value if isinstance(v, Mapping)]
    found = []
    for name, inner in value.items() if isinstance(value, Mapping) else ():
        if isinstance(inner, Mapping):
            found.append((name, flat(inner)))
        elif isinstance(inner, Sequence) and not isinstance(inner, str):
            found += [(name, flat(v)) for v in inner if isinstance(v, Mapping)]
    return True, found


def flat(record: Mapping[str, Any], at: str = "") -> dict[str, Cell]:
    """Nested mappings with dotted names; lists are left to the JSON."""
    out: dict[str, Cell] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            out |= flat(value, f"{at}{key}.")
        elif isinstance(value, str | int | float | None):
            out[f"{at}{key}"] = value
    return out
