"""The figure of the paper's priorities and supports."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from goldimask.figures import Chart, Figure, Line
from goldimask.objective import Support, priority_curve
from goldimask.studies.output import curve


def curves_figure(measured: Sequence[tuple[str, str, Sequence[float], Sequence[float]]]) -> Figure:
    """The paper's priorities, to unit maximum, and supports; `measured` tables beside them.

    A table is (curve, name, x, y) with the curve "priority" or "support".
    """
    ends = {"priority": 1.0, "support": 0.6}
    p, s = np.linspace(0, ends["priority"], 151), np.linspace(0, ends["support"], 121)
    lines: dict[str, list[Line]] = {"priority": [], "support": []}

    def add(kind: str, name: str, x: np.ndarray, y: np.ndarray, own: bool) -> None:
        family, dashed = ("goldimask", False) if own else ("base", None)
        lines[kind].append(Line(name, curve(x, y), family, dashed=dashed))

    for spec in ("p(1-p)^3", "p(1-p)", "1-p"):
        priority = priority_curve(spec)
        y = priority(p) / priority(np.array(priority.peak))
        add("priority", spec, p, y, spec == "p(1-p)^3")
    for s0 in (0.05, 0.1, 0.2):
        add("support", f"s0 = {s0:g}", s, Support("saturating", s0)(s), s0 == 0.05)
    for kind, name, x, y in measured:
        at = np.array([v for v in x if v < ends[kind]] + [ends[kind]])
        points = curve(at, np.interp(at, x, y) / max(y))
        lines[kind].append(Line(name, points, "vanilla", "both", dashed=False))
    charts = (
        Chart(
            "Priority λ(p), to unit maximum",
            "gold-token probability p",
            "λ",
            tuple(lines["priority"]),
        ),
        Chart("Support φ(s)", "attention support s", "φ", tuple(lines["support"])),
    )
    return Figure("curves", "Priority and support", charts)
