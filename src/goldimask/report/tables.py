"""A table once, written four ways: page, CSV, LaTeX (booktabs), Markdown.

Cells are text, whole numbers, floats (four significant digits) or None (a dash).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goldimask.report.page import section
from goldimask.report.text import plain, runs

Cell = str | int | float | None
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
}


@dataclass(frozen=True)
class Table:
    """Columns and rows with a name (of its files) and a title."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    left: int = 1  # leading columns of text
    note: str = ""


def shown(cell: Cell) -> str:
    """A cell as text; line breaks and invisible characters become marks."""
    if cell is None:
        return "–"
    if isinstance(cell, float):
        return f"{cell:.4g}"
    return plain(runs(cell)) if isinstance(cell, str) and cell else str(cell)


def to_csv(table: Table) -> str:
    """Comma-separated, numbers in full precision, None empty."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([["" if x is None else x for x in row] for row in table.rows])
    return out.getvalue()


def to_markdown(table: Table) -> str:
    line = lambda cells: "| " + " | ".join(cells) + " |"  # noqa: E731
    rule = [":---" if i < table.left else "---:" for i in range(len(table.columns))]
    cell = lambda x: shown(x).replace("|", "\\|").replace("<", "&lt;")  # noqa: E731
    parts = [f"### {table.title}", "", line([cell(c) for c in table.columns]), line(rule)]
    parts += [line([cell(x) for x in row]) for row in table.rows]
    return "\n".join([*parts, *(["", table.note] if table.note else [])]) + "\n"


def to_latex(table: Table) -> str:
    """A `table` environment; needs the booktabs package."""
    line = lambda cells: " & ".join(latex(shown(c)) for c in cells) + r" \\"  # noqa: E731
    form = "l" * table.left + "r" * (len(table.columns) - table.left)
    caption = table.title + (f". {table.note}" if table.note else "")
    return "\n".join(
        [
            *(r"\begin{table}", r"\centering", rf"\caption{{{latex(caption)}}}"),
            *(rf"\label{{tab:{table.name}}}", rf"\begin{{tabular}}{{{form}}}", r"\toprule"),
            line(table.columns),
            r"\midrule",
            *(line(row) for row in table.rows),
            *(r"\bottomrule", r"\end{tabular}", r"\end{table}"),
        ]
    )


def latex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in text)


def table_section(table: Table) -> dict[str, Any]:
    rows = [[float(f"{x:.6g}") if isinstance(x, float) else x for x in row] for row in table.rows]
    data = {"caption": "", "columns": list(table.columns), "rows": rows, "left": table.left}
    return section("table", table.title, data, table.note)


def tables_of(name: str, title: str, value: Any) -> list[Table]:
    """Any JSON result as tables: scalars together, each list or mapping of records by itself."""
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
