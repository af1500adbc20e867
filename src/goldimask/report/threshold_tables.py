"""Accuracy against steps and seconds: a table, a figure, reductions and AUP for each decoder.

Each decoder with a threshold has files of its own, so that several of them never overwrite each
other; backbones are panels of one figure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from goldimask.figures import Figure, steps_figure
from goldimask.records import Outcome
from goldimask.report.comparison import Choices, panels_of
from goldimask.report.sources import Source
from goldimask.tables import Cell, Table
from goldimask.thresholds import Point, parallelism, points, reductions, shared

SECONDS = "Seconds are wall clock per answer; they compare only on one machine."
AUP = (
    "Accuracy under parallelism (d3LLM, arXiv 2601.07568), alpha 3: tokens a call before the first "
    "end token; thresholds more than 5 points below the first are left out; y_max of all rows."
)


def threshold_points(sources: Sequence[Source], choices: Choices) -> dict[str, list[Point]]:
    """Decoder -> points of every row that was decoded with a threshold; seeds are pooled."""
    settled = choices.settled(sources)
    base = settled.base or ()
    others = (*(settled.baselines or ()), *base)
    found: dict[str, list[Point]] = {}
    for panel, members in panels_of([s for s in sources if s.outcomes]).items():
        for name, runs in by_row(members).items():
            answers = [o for run in runs.values() for o in run]
            for p in points(name, answers, name in others, panel, name in base):
                found.setdefault(p.decoder, []).append(p)
    return found


def by_row(members: Sequence[Source]) -> dict[str, dict[int | None, list[Outcome]]]:
    """Row -> seed -> answers to the problems that were judged at every threshold."""
    kept = {id(o) for o in shared([o for s in members for o in s.outcomes])}
    out: dict[str, dict[int | None, list[Outcome]]] = {}
    for s in members:
        mine = [o for o in s.outcomes if id(o) in kept]
        out.setdefault(s.name, {}).setdefault(s.seed, []).extend(mine)
    return out


def swept(found: Mapping[str, list[Point]]) -> dict[str, list[Point]]:
    """Decoders and rows with at least two thresholds."""
    out: dict[str, list[Point]] = {}
    for decoder, some in found.items():
        taus: dict[tuple[str, str], set[float]] = {}
        for p in some:
            taus.setdefault((p.panel, p.run), set()).add(p.tau)
        kept = [p for p in some if len(taus[p.panel, p.run]) > 1]
        out |= {decoder: kept} if kept else {}
    return out


def threshold_figures(found: dict[str, list[Point]], sources: Sequence[Source]) -> list[Figure]:
    """The paper's Figures 2 and 3, one per decoder."""
    families = {s.name: s.method for s in sources if s.run}
    return [
        steps_figure(some, f"steps{suffix(found, decoder)}", families)
        for decoder, some in found.items()
    ]


def threshold_tables(found: dict[str, list[Point]], kinds: Collection[str]) -> list[Table]:
    """All settings, the steps saved against the best baseline, and AUP; per decoder."""
    out = []
    for decoder, some in found.items():
        last = suffix(found, decoder)
        panels = len({p.panel for p in some}) > 1

        def place(p: Point, panels: bool = panels) -> tuple[Cell, ...]:
            return (*([p.panel] if panels else []), p.run, p.task, p.length)

        head = (*(["panel"] if panels else []), "method", "task", "length")
        left = len(head) - 1
        rows = tuple(
            (*place(p), p.tau, round(100 * p.accuracy, 1), round(p.steps, 2), *cost(p), p.n)
            for p in some
        )
        columns = (*head, "tau", "accuracy %", "steps", "seconds", "tokens/call", "n")
        title = f"Accuracy and decoding steps, {decoder}"
        if "thresholds" in kinds:
            out.append(Table(f"thresholds{last}", title, columns, rows, left, SECONDS))
        saved = tuple(
            (
                *(*place(r.point), r.point.tau, round(r.point.steps, 2)),
                *(round(100 * r.reduction, 1), round(r.accuracy_difference, 1), r.against.run),
                *(round(r.against.steps, 2), cost(r.point)[0], cost(r.against)[0]),
            )
            for r in reductions(some)
        )
        columns = (*head, "tau", "steps", "saved %", "points", "against", "its steps")
        columns += ("seconds", "its seconds")
        title = f"Steps against the most accurate baseline at each threshold, {decoder}"
        if saved and "reductions" in kinds:
            out.append(Table(f"reductions{last}", title, columns, saved, left, SECONDS))
        areas = tuple(
            (*place(x.point), round(x.aup, 1), f"{x.kept} of {x.of}") for x in parallelism(some)
        )
        if areas and "aup" in kinds:
            title = f"Accuracy under parallelism, {decoder}"
            out.append(Table(f"aup{last}", title, (*head, "AUP", "points"), areas, left, AUP))
    return out


def cost(p: Point) -> tuple[float, float | None]:
    tokens = None if p.tokens_a_call is None else round(p.tokens_a_call, 2)
    return round(p.seconds, 3), tokens


def suffix(found: dict[str, list[Point]], decoder: str) -> str:
    return f"-{decoder}" if len(found) > 1 else ""
