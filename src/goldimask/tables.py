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
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from goldimask.errors import GoldimaskError
from goldimask.files import write_text
from goldimask.stats import Spread, seed_spreads

Runs = Mapping[str, Mapping[int, Mapping[str, float]]]  # method -> seed -> task -> share
FORMULA = ("=", "+", "-", "@", "\t", "\r")
PIPE = re.compile(r"(\\*)\|")
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
    "†": r"$^\dagger$",
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
    partial: bool = False  # of an evaluation that is not complete: marked


@dataclass(frozen=True)
class Change:
    """A relative change; None where there is nothing to compare with."""

    value: float | None


@dataclass(frozen=True)
class Panel:
    """The head of a part of a table; the other cells of its row are empty texts."""

    title: str


Cell = str | int | float | None | Share | Change | Panel


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
        return f"{100 * cell.value.mean:.1f}{sd}{' †' if cell.partial else ''}"
    if isinstance(cell, Panel):
        return cell.title
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
        text = PIPE.sub(lambda m: f"{m[1] * 2}\\|", shown(value))
        text = text.replace("](", "]\\(").replace("<", "&lt;")  # neither links nor tags
        strong = isinstance(value, Panel) or (isinstance(value, Share) and value.best)
        return f"**{text}**" if strong else text

    rule = ["---" if i < table.left else "---:" for i in range(len(table.columns))]
    rows = [[cell(x) for x in row] for row in (table.columns, *table.rows)]
    lines = ["| " + " | ".join(row) + " |" for row in (rows[0], rule, *rows[1:])]
    return "\n".join([*lines, *(["", table.note] if table.note else [])]) + "\n"


def latex(table: Table) -> str:
    """A `table` environment; needs the booktabs package."""

    def cell(value: Cell) -> str:
        if isinstance(value, Share):
            mean, _, sd = shown(replace(value, partial=False)).partition(" ± ")
            mean = rf"\textbf{{{mean}}}" if value.best else mean
            mean += r"$^\dagger$" if value.partial else ""
            return rf"{mean}{{\scriptsize\,$\pm$\,{sd}}}" if sd else mean
        text = tex(shown(value))
        return rf"{{\scriptsize {text}}}" if isinstance(value, Change) else text

    def line(cells: Sequence[Cell]) -> str:
        if isinstance(cells[0], Panel):
            head = rf"\multicolumn{{{len(cells)}}}{{c}}{{\textbf{{{tex(cells[0].title)}}}}} \\"
            return "\n".join((r"\midrule", head, r"\midrule"))
        return " & ".join(cell(c) for c in cells) + r" \\"

    form = "l" * table.left + "r" * (len(table.columns) - table.left)
    caption = table.title + (f". {table.note}" if table.note else "")
    parts = [
        *(r"\begin{table}", r"\centering", rf"\caption{{{tex(caption)}}}"),
        *(rf"\label{{tab:{file_name(table.name)}}}", rf"\begin{{tabular}}{{{form}}}", r"\toprule"),
        line(table.columns),
        *(() if table.rows and isinstance(table.rows[0][0], Panel) else (r"\midrule",)),
        *(line(row) for row in table.rows),
        *(r"\bottomrule", r"\end{tabular}", r"\end{table}"),
    ]
    return "\n".join(parts) + "\n"


def tex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in text)


def csv(table: Table) -> str:
    """Comma-separated, numbers in full precision, None empty.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    out = io.StringIO()
    writer = csv_files.writer(out, lineterminator="\n")
    for row in table.plain or (table.columns, *table.rows):
        writer.writerow(["" if x is None else _number(x) for x in row])
    return out.getvalue()


def _number(cell: Cell) -> object:
    if isinstance(cell, Share):
        return cell.value.mean
    if isinstance(cell, Panel):
        return _number(cell.title)
    if isinstance(cell, str) and cell.startswith(FORMULA):
        return f"'{cell}"
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
) -> Results:
    """`baselines` are fine-tuned; `base` are untuned models, never the strongest baseline.

    Every seed of every method must have every task, unless `partial` names the (method, task)
    whose cells are incomplete: then what is missing stays empty, and such a row has no average.
    """
    if not runs:
        raise GoldimaskError("a results table needs at least one method")
    tasks = tuple(dict.fromkeys(t for seeds in runs.values() for r in seeds.values() for t in r))
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


def results_table(found: Results, name: str, title: str, note: str = "") -> Table:
    """The paper's form; as CSV one line per method and task."""
    return panels_table({"": found}, name, title, note)


def panels_table(panels: Mapping[str, Results], name: str, title: str, note: str = "") -> Table:
    """The paper's form with a part for each of several panels (backbone and corpus)."""
    columns = tuple(dict.fromkeys(c for found in panels.values() for c in found.columns))
    columns = tuple(sorted(columns, key=lambda c: c == "average"))
    rows: list[tuple[Cell, ...]] = []
    head = ("method", "task", "mean", "sd", "seeds", "change", "against")
    several = len(panels) > 1
    plain: list[tuple[Cell, ...]] = [("panel", *head) if several else head]
    for panel, found in panels.items():
        if several:
            rows.append((Panel(panel), *("" for _ in columns)))
        for line in found.lines:
            shares = (
                Share(line.cells[c], c in line.best, c in line.partial) if c in line.cells else None
                for c in columns
            )
            rows.append((line.method, *shares))
            changes = line.change or {}
            if line.change is not None:
                ratios = (Change(changes.get(c)) for c in columns)
                rows.append((f"vs. {found.strongest}", *ratios))
            for c in (c for c in found.columns if c in line.cells):
                cell, change = line.cells[c], changes.get(c)
                against = found.strongest if change is not None else None
                one = (line.method, c, cell.mean, cell.sd, cell.n, change, against)
                plain.append((panel, *one) if several else one)
    return Table(name, title, ("method", *columns), tuple(rows), 1, note, tuple(plain))
