"""The paper's results table: methods by tasks, mean and sample SD over seeds, in four formats.

Conventions (paper, tables of the main results): accuracy in per cent; the average is over tasks;
bold marks the best mean of a column; below each method that is not a baseline stands its relative
change, (value / strongest baseline - 1), where the strongest baseline is the one with the highest
average.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from goldimask.errors import GoldimaskError
from goldimask.eval.stats import Spread, seed_spreads

Format = Literal["terminal", "markdown", "latex", "csv"]
Scores = Mapping[str, Mapping[int, Mapping[str, float]]]  # method -> seed -> task -> share


@dataclass(frozen=True)
class Line:
    """A method's row; `change` is relative to the strongest baseline, None for baselines."""

    method: str
    cells: dict[str, Spread]
    best: frozenset[str]
    change: dict[str, float | None] | None = None


@dataclass(frozen=True)
class ResultsTable:
    """What a table shows, before any formatting."""

    tasks: tuple[str, ...]
    lines: tuple[Line, ...]
    strongest: str | None = None
    note: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.tasks, "average") if len(self.tasks) > 1 else self.tasks


def results_table(
    scores: Scores,
    baselines: Sequence[str] = (),
    base: Sequence[str] = (),
    note: str = "",
) -> ResultsTable:
    """`baselines` are fine-tuned; `base` are untuned models, never the strongest baseline."""
    if not scores:
        raise GoldimaskError("a results table needs at least one method")
    tasks = tuple(dict.fromkeys(t for runs in scores.values() for r in runs.values() for t in r))
    for method, runs in scores.items():
        for seed, row in runs.items():
            if missing := [t for t in tasks if t not in row]:
                raise GoldimaskError(f"{method}, seed {seed}: no score for {', '.join(missing)}")
    cells = {m: seed_spreads(runs, tasks) for m, runs in scores.items()}
    known = [m for m in baselines if m in cells]
    strongest = max(known, key=lambda m: cells[m]["average"].mean, default=None)
    columns = (*tasks, "average")
    top = {c: max(s[c].mean for s in cells.values()) for c in columns}
    lines = []
    for method, row in cells.items():
        best = frozenset(c for c in columns if len(cells) > 1 and row[c].mean == top[c])
        compared = strongest is not None and method not in (*baselines, *base)
        change = None
        if compared and strongest is not None:
            reference = cells[strongest]
            change = {
                c: row[c].mean / reference[c].mean - 1 if reference[c].mean else None
                for c in columns
            }
        lines.append(Line(method, row, best, change))
    return ResultsTable(tasks, tuple(lines), strongest, note)


def render(table: ResultsTable, form: Format) -> str:
    """The table as text."""
    if form == "csv":
        return _csv(table)
    if form == "latex":
        return _latex(table)
    rows = list(_rows(table, bold="**" if form == "markdown" else ""))
    if form == "markdown":
        head = ["method", *table.columns]
        lines = [head, ["---", *["---:"] * len(table.columns)], *rows]
        text = "\n".join("| " + " | ".join(line) + " |" for line in lines)
    else:
        text = _grid([["method", *table.columns], *rows])
    return text + (f"\n\n{table.note}" if table.note else "") + "\n"


def percent(cell: Spread, sd: bool = True) -> str:
    """79.1 ± 0.8, or 79.1 for one seed."""
    text = f"{100 * cell.mean:.1f}"
    return f"{text} ± {100 * cell.sd:.1f}" if sd and cell.sd is not None else text


def change_text(value: float | None, up: str = "↑", down: str = "↓") -> str:
    if value is None:
        return "-"
    return f"{up if value >= 0 else down} {abs(100 * value):.1f}%"


def _rows(table: ResultsTable, bold: str) -> Any:
    for line in table.lines:
        marks = [bold if c in line.best else "" for c in table.columns]
        cells = [
            f"{m}{percent(line.cells[c])}{m}" for c, m in zip(table.columns, marks, strict=True)
        ]
        yield [line.method, *cells]
        if line.change is not None:
            yield [f"vs. {table.strongest}", *(change_text(line.change[c]) for c in table.columns)]


def _grid(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            x.ljust(w) if i == 0 else x.rjust(w)
            for i, (x, w) in enumerate(zip(r, widths, strict=True))
        )
        for r in rows
    ]
    return "\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]])


def _csv(table: ResultsTable) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["method", "task", "mean", "sd", "seeds", "change", "against"])
    for line in table.lines:
        for column in table.columns:
            cell = line.cells[column]
            change = None if line.change is None else line.change[column]
            writer.writerow(
                [
                    line.method,
                    column,
                    f"{cell.mean:.6f}",
                    "" if cell.sd is None else f"{cell.sd:.6f}",
                    cell.n,
                    "" if change is None else f"{change:.6f}",
                    table.strongest if change is not None else "",
                ]
            )
    return out.getvalue()


def _latex(table: ResultsTable) -> str:
    def cell(line: Line, column: str) -> str:
        value = line.cells[column]
        mean = f"{100 * value.mean:.1f}"
        mean = f"\\textbf{{{mean}}}" if column in line.best else mean
        return (
            mean if value.sd is None else f"{mean}{{\\scriptsize\\,$\\pm$\\,{100 * value.sd:.1f}}}"
        )

    def change(value: float | None) -> str:
        text = change_text(value, "$\\uparrow$\\,", "$\\downarrow$\\,")
        return f"{{\\scriptsize {text.replace('%', chr(92) + '%')}}}"

    body = []
    for line in table.lines:
        cells = [cell(line, c) for c in table.columns]
        body.append(" & ".join([_tex(line.method), *cells]) + " \\\\")
        if line.change is not None:
            changes = [change(line.change[c]) for c in table.columns]
            against = f"{{\\scriptsize vs.\\ {_tex(table.strongest or '')}}}"
            body.append(" & ".join([against, *changes]) + " \\\\")
    head = " & ".join(["Method", *(_tex(c) for c in table.columns)]) + " \\\\"
    lines = [
        "\\begin{tabular}{l" + "c" * len(table.columns) + "}",
        *("\\toprule", head, "\\midrule", *body, "\\bottomrule", "\\end{tabular}"),
    ]
    return "\n".join(lines + ([f"% {table.note}"] if table.note else [])) + "\n"


def _tex(text: str) -> str:
    for char in "&%$#_{}":
        text = text.replace(char, "\\" + char)
    return text
