"""The one-step viewer for a terminal: the same record, with rich.

States differ in brackets as well as in colour: a visible token stands bare, a `[revealed]` one in
square brackets, a `‹target›` in angle quotes, a candidate that is neither in braces.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from goldimask.report.text import plain

STYLES = {
    "prompt": "dim",
    "visible": "",
    "revealed": "bold blue",
    "target": "bold dark_orange",
    "candidate": "magenta",
}
BRACKETS = {"revealed": "[]", "target": "‹›", "candidate": "{}"}
SHOWN = 8


def states(record: Mapping[str, Any]) -> list[str]:
    """State of every token after the reveal."""
    out = ["visible"] * len(record["tokens"]["index"])
    out[: record["tokens"]["prompt"]] = ["prompt"] * record["tokens"]["prompt"]
    for name, positions in (("candidate", "masked"), ("revealed", "order"), ("target", "targets")):
        for i in record[positions]:
            out[i] = name
    return out


def token_text(record: Mapping[str, Any]) -> Text:
    """The example as coloured text, a line break after each newline token."""
    vocab, text = record["tokens"]["vocab"], Text()
    for v, state in zip(record["tokens"]["index"], states(record), strict=True):
        word = plain(vocab[v]["runs"])
        left, right = BRACKETS.get(state, ("", ""))
        text.append(f"{left}{word}{right}", style=STYLES[state])
        text.append("\n" if word.endswith("⏎") else " ")
    return text


def word(record: Mapping[str, Any], position: int) -> str:
    return plain(record["tokens"]["vocab"][record["tokens"]["index"][position]]["runs"])


def grid(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], left: int = 1) -> Table:
    """A table; cells are `Text`, so that a token cannot be read as markup."""
    table = Table(title=title, title_justify="left", header_style="bold")
    for i, column in enumerate(columns):
        text = i < left
        table.add_column(column, justify="left" if text else "right", overflow="fold", no_wrap=text)
    for row in rows:
        table.add_row(*(Text(cell(x)) for x in row))
    return table


def cell(x: Any) -> str:
    return "–" if x is None else f"{x:.4g}" if isinstance(x, float) else str(x)


def targets_table(record: Mapping[str, Any]) -> Table:
    """The heaviest targets with what supports them."""
    before = dict(zip(record["masked"], record["before"] or [None] * 10**6, strict=False))
    heaviest = sorted(range(len(record["targets"])), key=lambda j: -record["weight"][j])[:SHOWN]
    rows = []
    for j in heaviest:
        i = record["targets"][j]
        line = (record["supporters"] or [[]] * len(record["targets"]))[j]
        pairs = zip(line[::2], line[1::2], strict=True)
        by = ", ".join(f"{word(record, int(p))}@{int(p)} {a:.3g}" for p, a in list(pairs)[:2])
        mass = record["support"][j] if record["support"] else None
        rows.append(
            (i, word(record, i), before.get(i), record["after"][j], record["weight"][j], mass, by)
        )
    columns = ("position", "target", "p before", "p after", "weight", "S", "supported by")
    return grid(f"Heaviest targets of {record['method']}", columns, rows, left=2)


def order_table(record: Mapping[str, Any]) -> Table | None:
    """The first choices with their gains."""
    if not record["ordered"]:
        return None
    gains = record["gains"] or [None] * len(record["order"])
    rows = [(k + 1, word(record, i), i, gains[k]) for k, i in enumerate(record["order"][:SHOWN])]
    title = f"First choices of {record['method']} ({len(record['order'])} in all)"
    return grid(title, ("choice", "revealed", "position", "gain of F"), rows, left=2)


def compare_table(records: Sequence[Mapping[str, Any]]) -> Table:
    """All methods on the same draws."""
    columns = ("method", "|C|", "|R|", "|S|", "F(R)", "F random", "n_eff", "loss")
    rows = []
    for r in records:
        o = r["objective"]
        rows.append(
            (
                *(r["method"], len(r["masked"]), len(r["order"]), len(r["targets"])),
                *((o["value"], o["paths"]["mean"][-1]) if o else (None, None)),
                *(r["n_eff"], r["loss"]),
            )
        )
    return grid(f"Every method at t = {records[0]['t']:g}", columns, rows)


def step_view(records: Sequence[Mapping[str, Any]]) -> Group:
    """The first record in full, and its peers at the same noise level beside it."""
    first = records[0]
    legend = Text("prompt  ", style="dim")
    for state in ("visible", "revealed", "target", "candidate"):
        left, right = BRACKETS.get(state, ("", ""))
        legend.append(f"{left}{state}{right}  ", style=STYLES[state])
    head = Text(
        f"{first['method']}   t {first['t']:g}   rho {first['rho']:g}   L {first['length']}   "
        f"K {first['keep']}   loss {first['loss']:g}",
        style="bold",
    )
    parts: list[Any] = [head, legend, Text(), token_text(first), targets_table(first)]
    order = order_table(first)
    if order is not None:
        parts.append(order)
    elif not first["order"]:
        parts.append(
            Text(
                f"{first['method']} revealed nothing: it masked {len(first['masked'])} tokens and "
                f"keeps {first['keep']} as targets. --t, --epoch or another --example may.\n"
            )
        )
    parts.append(compare_table([r for r in records if r["t"] == first["t"]]))
    return Group(*parts)
