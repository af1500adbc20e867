"""A table as data, written as CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

from goldimask.files import write_text


@dataclass(frozen=True)
class Sheet:
    """Texts in rows; the first column is left-aligned, the others hold figures."""

    name: str  # of its files
    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    # ready-made texts of a table that has its own renderer
    ready: tuple[tuple[str, str], ...] = ()  # (suffix, text)

    def text(self, suffix: str) -> str:
        given = dict(self.ready)
        if suffix in given:
            return given[suffix]
        return {"csv": as_csv, "md": as_markdown, "tex": as_latex, "txt": as_text}[suffix](self)


def write_sheet(sheet: Sheet, folder: Path) -> list[Path]:
    """`NAME.csv`, `NAME.md`, `NAME.tex`."""
    return [
        write_text(folder / f"{sheet.name}.{suffix}", sheet.text(suffix))
        for suffix in ("csv", "md", "tex")
    ]


def as_csv(sheet: Sheet) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([sheet.columns, *sheet.rows])
    return out.getvalue()


def as_markdown(sheet: Sheet) -> str:
    head = [sheet.columns, ("---", *["---:"] * (len(sheet.columns) - 1))]
    lines = ["| " + " | ".join(row) + " |" for row in (*head, *sheet.rows)]
    return "\n".join(lines) + (f"\n\n{sheet.note}" if sheet.note else "") + "\n"


def as_text(sheet: Sheet) -> str:
    """Aligned for a terminal, never folded."""
    lines = (sheet.columns, *sheet.rows)
    widths = [max(len(row[i]) for row in lines) for i in range(len(sheet.columns))]
    rows = [
        "  ".join(
            x.ljust(w) if i == 0 else x.rjust(w)
            for i, (x, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in lines
    ]
    rows.insert(1, "  ".join("-" * w for w in widths))
    return "\n".join([sheet.title, "", *rows]) + (f"\n\n{sheet.note}" if sheet.note else "") + "\n"


def as_latex(sheet: Sheet) -> str:
    body = [" & ".join(map(tex, row)) + " \\\\" for row in sheet.rows]
    lines = [
        "\\begin{tabular}{l" + "r" * (len(sheet.columns) - 1) + "}",
        "\\toprule",
        " & ".join(map(tex, sheet.columns)) + " \\\\",
        "\\midrule",
        *body,
        "\\bottomrule",
        "\\end{tabular}",
    ]
    return "\n".join(lines + ([f"% {sheet.note}"] if sheet.note else [])) + "\n"


def tex(text: str) -> str:
    for char in "&%$#_{}":
        text = text.replace(char, "\\" + char)
    return text.replace("±", "$\\pm$").replace("≥", "$\\ge$")
