"""The paper's results and ablation tables from comparisons: one table, a panel for each setting."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from goldimask.report.comparison import Comparison
from goldimask.report.paper import ABLATIONS, MAXIMISERS, OWN
from goldimask.report.results import Results, panels_table
from goldimask.tables import Table

TITLES = {
    "main": "Accuracy (%)",
    "code": "Code generation, pass@1 (%)",
    "aime": "AIME, pass@16 (%)",
}


def grouped(found: Sequence[Comparison]) -> Iterator[tuple[str, str, list[Comparison]]]:
    """(kind, suffix of names, the panels of one table), in the order of the comparisons.

    Results at the best of several lengths are the kind `main`, with those at fixed lengths beside
    them as `fixed`; where there is only one choice of lengths, it is `main`.
    """
    groups: dict[tuple[str, str, str], list[Comparison]] = {}
    for c in found:
        groups.setdefault((c.family, c.decoding, c.length), []).append(c)
    selected = {(kind, way) for kind, way, length in groups if length == "best"}
    kinds: dict[str, list[list[Comparison]]] = {"main": []}
    for (kind, way, length), many in groups.items():
        if length == "fixed" and (kind, way) in selected:
            kind = "fixed" if kind == "main" else f"{kind}-fixed"
        kinds.setdefault(kind, []).append(many)
    for kind, several in kinds.items():
        for i, many in enumerate(several, 1):
            yield kind, f"-{i}" if len(several) > 1 else "", many


def result_tables(found: Sequence[Comparison]) -> list[Table]:
    """The paper's results tables, a panel for each backbone and corpus."""
    out = []
    for kind, suffix, many in grouped(found):
        panels = {c.panel: c.results for c in many}
        title = TITLES[many[0].family]
        wide = many[0].family != "main"
        out.append(one_table(panels, many, f"{kind}{suffix}", title, wide))
    return out


def one_table(
    panels: Mapping[str, Results],
    many: Sequence[Comparison],
    name: str,
    title: str,
    wide: bool = False,
) -> Table:
    title = f"{title}, {many[0].way}"
    title += f", {many[0].panel}" if len(panels) == 1 and many[0].panel else ""
    said = [c for c in many if c.panel in panels]
    notes = dict.fromkeys(c.note for c in said)
    note = ". ".join(notes if len(notes) == 1 else (f"{c.panel}: {c.note}" for c in said))
    return panels_table(panels, name, title, note, wide)


def ablation_tables(found: Sequence[Comparison], kinds: Collection[str]) -> list[Table]:
    """The paper's ablations: rows that differ in one part, under the names of that part."""
    out = []
    for kind, suffix, many in grouped(found):
        if many[0].family != "main":
            continue
        last = f"{'' if kind == 'main' else '-fixed'}{suffix}"
        for name, (title, rows) in ABLATIONS.items():
            panels = {}
            for c in many:
                names = {c.known[row]: shown for row, shown in rows.items() if row in c.known}
                if set(rows) & set(c.known) - {OWN, "vanilla"} and len(names) > 1:
                    panels[c.panel] = c.only(names, plain=True)
            if panels and name in kinds:
                out.append(one_table(panels, many, f"{name}{last}", title))
        panels = {}
        for c in many:
            own = [c.known[row] for row in MAXIMISERS if row in c.known]
            names = [*filter(None, [c.results.strongest]), *own]
            if len(own) > 1:
                panels[c.panel] = c.only({m: m for m in names})
        if panels and "maximisers" in kinds:
            out.append(one_table(panels, many, f"maximisers{last}", "Maximisers"))
    return out
