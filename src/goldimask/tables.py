"""A table once, written five ways: Markdown, LaTeX (booktabs), CSV, JSON, terminal.

Cells are texts, whole numbers, floats (four significant digits), None (a dash), a `Share` (mean ±
SD over seeds in per cent, bold where it is the best) or a `Change` (relative, with an arrow).
"""

from __future__ import annotations

import csv as csv_files
import io
import json as json_files
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from goldimask.files import write_text
from goldimask.stats import Spread, finite

PAGE = 40  # rows of a page in LaTeX
FIT = r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%"
FORMULA = ("=", "+", "-", "@", "\t", "\r")
PIPE = re.compile(r"(\\*)\|")
NAMES = {  # as the paper writes them; LaTeX only
    **{"vanilla": "Vanilla", "cart": "CART", "gift": "GIFT", "agdo": "AGDO", "method": "Method"},
    **{"lift-2": "LIFT (H = 2)", "lift-3": "LIFT (H = 3)", "average": "Average"},
    **{f"goldimask-{x}": f"GoldiMask-{x.upper()}" for x in "drtpa"},
    **{"gsm8k": "GSM8K", "math500": "MATH", "countdown": "Countdown", "sudoku": "Sudoku"},
    **{"humaneval": "HE", "mbpp": "MBPP", "aime24": "AIME24", "aime25": "AIME25"},
}
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
    "λ": r"$\lambda$",
    "∝": r"$\propto$",
    "²": "$^2$",
    "³": "$^3$",
    "τ": r"$\tau$",
    "⏎": r"\textbackslash{}n",
    "…": r"\dots{}",
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
    plain: tuple[tuple[Cell, ...], ...] = ()  # CSV and JSON instead, where cells say more
    groups: tuple[tuple[str, int], ...] = ()  # panels side by side: title, columns of each

    @property
    def records(self) -> tuple[tuple[Cell, ...], ...]:
        """Head and rows without parts: the part's title is the first cell of each row."""
        if self.plain or not any(isinstance(row[0], Panel) for row in self.rows):
            return self.plain or (self.columns, *self.rows)
        out: list[tuple[Cell, ...]] = [("panel", *self.columns)]
        panel = ""
        for row in self.rows:
            if isinstance(row[0], Panel):
                panel = row[0].title
            else:
                out.append((panel, *row))
        return tuple(out)


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
    """A `table` environment, several where one would be longer than a page.

    Needs booktabs and graphicx; what is wider than a line is made smaller, as in the paper.
    """

    def cell(value: Cell) -> str:
        if isinstance(value, Share):
            mean, _, sd = shown(replace(value, partial=False)).partition(" ± ")
            mean = rf"\textbf{{{mean}}}" if value.best else mean
            mean += r"$^\dagger$" if value.partial else ""
            return rf"{mean}{{\scriptsize\,$\pm$\,{sd}}}" if sd else mean
        text = tex(paper_name(shown(value)))
        return rf"{{\scriptsize {text}}}" if isinstance(value, Change) else text

    def line(cells: Sequence[Cell]) -> str:
        if isinstance(cells[0], Panel):
            head = rf"\multicolumn{{{len(cells)}}}{{c}}{{\textbf{{{tex(cells[0].title)}}}}} \\"
            return "\n".join((r"\midrule", head, r"\midrule"))
        return " & ".join(cell(c) for c in cells) + r" \\"

    form = "l" * table.left + "r" * (len(table.columns) - table.left)
    heads, above, at = table.columns, [], table.left
    for title, count in table.groups:
        above.append((rf"\multicolumn{{{count}}}{{c}}{{{tex(title)}}}", (at + 1, at + count)))
        at += count
    if above:
        heads = tuple(c.rpartition(": ")[2] for c in heads)
    top = " & ".join([" & " * (table.left - 1), *(cells for cells, _ in above)]) + r" \\"
    rules = "".join(rf"\cmidrule(lr){{{a}-{b}}}" for _, (a, b) in above)
    caption = table.title + (f". {table.note}" if table.note else "")
    out = []
    for first in range(0, len(table.rows), PAGE) or (0,):
        rows, label = table.rows[first : first + PAGE], f"tab:{file_name(table.name)}"
        if first:
            caption, label = f"{table.title}, continued", f"{label}-{first}"
        out += [
            *(r"\begin{table}", r"\centering\small", rf"\caption{{{tex(caption)}}}"),
            *(rf"\label{{{label}}}", FIT, rf"\begin{{tabular}}{{{form}}}", r"\toprule"),
            *((top, rules) if above else ()),
            line(heads),
            *(() if rows and isinstance(rows[0][0], Panel) else (r"\midrule",)),
            *(line(row) for row in rows),
            *(r"\bottomrule", r"\end{tabular}}", r"\end{table}"),
        ]
    return "\n".join(out) + "\n"


def paper_name(text: str) -> str:
    """`goldimask-d` -> `GoldiMask-D`, also behind `vs. `."""
    first, _, rest = text.partition("vs. ")
    return f"vs. {NAMES.get(rest, rest)}" if not first and rest else NAMES.get(text, text)


def tex(text: str) -> str:
    return "".join(LATEX.get(c, c) for c in text)


def csv(table: Table) -> str:
    """Comma-separated, numbers in full precision, None empty.

    A text that a spreadsheet would take for a formula begins with an apostrophe.
    """
    out = io.StringIO()
    writer = csv_files.writer(out, lineterminator="\n")
    for row in table.records:
        writer.writerow(["" if x is None else _cell(x) for x in row])
    return out.getvalue()


def json(table: Table) -> str:
    """Title, note and records with numbers in full."""
    head, *rows = table.records
    records = [dict(zip(map(str, head), map(_number, row), strict=True)) for row in rows]
    found = {"name": table.name, "title": table.title, "note": table.note, "rows": records}
    return json_files.dumps(finite(found), ensure_ascii=False, indent=1) + "\n"


def _cell(cell: Cell) -> object:
    value = _number(cell)
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def _number(cell: Cell) -> object:
    if isinstance(cell, Share):
        return cell.value.mean
    if isinstance(cell, Panel):
        return cell.title
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
    "json": ("json", json),
}


def write(
    table: Table, folder: Path, forms: Sequence[str] = ("csv", "markdown", "latex", "json")
) -> list[Path]:
    """`NAME.csv`, `NAME.md`, `NAME.tex`, `NAME.json`."""
    made = []
    for form in forms:
        suffix, writer = WRITERS[form]
        made.append(write_text(folder / f"{file_name(table.name)}.{suffix}", writer(table)))
    return made


def file_name(name: str) -> str:
    """A name that is a file name everywhere."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in name)
    return kept or "unnamed"
