"""The runs of a report to explore on a page: cells, curves, answers side by side.

    cells     one line a run: what it is, how far it got, what it scored; filtered and sorted there
    curves    logged values; steps that several runs share are stored once, long lines are thinned
    answers   what the rows of a panel answered to one problem, with one seed

A page stays below about 5 MB however many runs there are: curves and answers have a budget each,
lines get fewer points, and the page says how many answers it holds of how many there are. Problems
on which the rows disagree come first. Texts come from models: what has no shape of its own, or
changes its neighbours, is written as its code point.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from goldimask.records import Outcome
from goldimask.report.comparison import Comparison
from goldimask.report.page import section
from goldimask.report.page import significant as sig
from goldimask.report.runs_report import CURVES, Report, logged
from goldimask.report.sources import Source
from goldimask.report.text import visible

CURVE_BYTES, ANSWER_BYTES = 1_500_000, 2_000_000
POINTS = 400  # of one line
TEXT = 1500  # characters of an answer
TASKS = 6  # columns of scores
PAGES = 4  # links of one cell
BYTES_A_POINT = 8


@dataclass(frozen=True)
class Entry:
    """A cell as a campaign knows it; a run alone is an entry without a state."""

    row: str
    backbone: str = ""
    corpus: str = ""
    seed: int | None = None
    state: str = ""
    error: str = ""
    progress: str = ""
    source: Source | None = None


def entries_of(sources: Sequence[Source]) -> list[Entry]:
    """Runs as entries, with what their folders say of them."""
    out = []
    for s in sources:
        state = "evaluated" if s.outcomes else "trained" if s.facts else "unfinished"
        out.append(Entry(s.name, s.backbone, s.corpus, s.seed, state, source=s))
    return out


def cells_section(report: Report, entries: Sequence[Entry], page: Path) -> dict[str, Any]:
    """The table of cells."""
    scores = scores_of(report.comparisons)
    tasks = list(dict.fromkeys(t for found in scores.values() for t in found["tasks"]))[:TASKS]
    cells = []
    for e in entries:
        s = e.source
        mine = scores.get(s.label, {}) if s else {}
        facts = s.facts if s else {}
        seconds = facts.get("seconds")
        hours = seconds["training"] / 3600 if isinstance(seconds, Mapping) else None
        cells.append(
            {
                **{"row": e.row, "backbone": e.backbone, "corpus": e.corpus, "seed": e.seed},
                **{"state": e.state, "error": visible(e.error), "progress": e.progress},
                "label": s.label if s else e.row,
                "scores": [rounded(mine.get("tasks", {}).get(t)) for t in tasks],
                "average": rounded(mine.get("average")),
                "calls": rounded(mine.get("calls")),
                "loss": rounded(facts.get("eval_loss_last")),
                "hours": rounded(hours),
                "pages": [link(p, page) for p in (s.pages if s else ())[:PAGES]],
            }
        )
    done = sum(e.state in ("done", "evaluated") for e in entries)
    note = f"{len(entries)} cells, {done} of them done. The lists filter cells and curves."
    return section("cells", "Cells", {"tasks": tasks, "cells": cells}, note)


def scores_of(found: Sequence[Comparison]) -> dict[str, dict[str, Any]]:
    """Label of a run -> scores in per cent; their mean and mean calls in its first comparison."""
    out: dict[str, dict[str, Any]] = {}
    for c in found:
        for a in (a for many in (*c.rows.values(), *c.hidden.values()) for a in many):
            mine = {t: 100 * a.chosen[t][1] for t in c.tasks if t in a.chosen}
            if mine and a.source.label not in out:
                steps = [r.steps for r in a.results if r.length == a.chosen.get(r.task, (0,))[0]]
                average = sum(mine.values()) / len(mine)
                calls = sum(steps) / len(steps)
                out[a.source.label] = {"tasks": mine, "average": average, "calls": calls}
            elif mine:
                out[a.source.label]["tasks"] = {**mine, **out[a.source.label]["tasks"]}
    return out


def rounded(value: Any) -> float | None:
    return sig(float(value)) if isinstance(value, int | float) else None


def curves_section(entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Every logged measure of `CURVES`, each line thinned to its share of the budget."""
    found = {
        (i, key): points
        for i, e in enumerate(entries)
        if e.source
        for key in CURVES
        if (points := logged(e.source, key))
    }
    if not found:
        return None
    most = max(20, min(POINTS, CURVE_BYTES // BYTES_A_POINT // len(found)))
    grids: dict[tuple[float, ...], int] = {}
    lines = []
    for (i, key), points in found.items():
        kept = thinned(points, most)
        steps = tuple(sig(float(x), 6) for x, _ in kept)
        place = grids.setdefault(steps, len(grids))
        lines.append([i, key, place, [sig(float(y)) for _, y in kept]])
    keys = dict.fromkeys(key for _, key in found)
    data = {"measures": {k: CURVES[k] for k in keys}, "grids": list(grids), "lines": lines}
    return section("overlay", "Training", data)


def thinned(points: Sequence[tuple[float, float]], most: int = POINTS) -> list[tuple[float, float]]:
    """At most about `most` points, the first and the last among them."""
    step = max(1, -(-len(points) // most))
    kept = list(points[::step])
    return kept if kept[-1] == points[-1] else [*kept, points[-1]]


def answers_section(report: Report, entries: Sequence[Entry]) -> dict[str, Any] | None:
    """Problems with the answers of all rows of a panel, as many as the budget holds."""
    places = {e.source.label: i for i, e in enumerate(entries) if e.source}
    queues = [problems for c in first_of_each(report.comparisons) for problems in disagreements(c)]
    total = sum(len(q) for q in queues)
    shown, spent, count = [], 0, 0
    for depth in range(max(map(len, queues), default=0)):
        for queue in queues:
            if depth < len(queue) and spent < ANSWER_BYTES:
                panel, task, item, answers = queue[depth]
                texts = [(places[s.label], o, cut(o.output)) for s, o in answers]
                spent += sum(len(text.encode("utf-8", "replace")) + 60 for _, _, text in texts)
                count += len(texts)
                lines = [[i, o.correct, short(o.extracted), o.steps, t] for i, o, t in texts]
                shown.append({"panel": panel, "task": task, "item": visible(item), "rows": lines})
    if not shown:
        return None
    every = sum(len(s.outcomes) for s in report.sources)
    note = (
        f"{len(shown):,} of {total:,} problems with {count:,} of {every:,} answers, one seed of a "
        "row; problems on which the rows disagree come first. All answers are in the eval folders."
    )
    first = report.comparisons[0]
    rivals = (*first.baselines, *first.base)
    own = [m for m in first.rows if m not in rivals][:1]
    both = [*filter(None, [first.results.strongest]), *own] or list(first.rows)[:2]
    start = [first.rows[m][0].source.name for m in both]
    shown.sort(key=lambda p: (p["panel"], p["task"]))
    return section("answers", "Answers side by side", {"problems": shown, "start": start}, note)


def first_of_each(found: Sequence[Comparison]) -> Iterator[Comparison]:
    """One comparison of each family and panel."""
    taken = set()
    for c in found:
        if (c.family, c.panel) not in taken:
            taken.add((c.family, c.panel))
            yield c


Problem = tuple[str, str, str, list[tuple[Source, Outcome]]]


def disagreements(c: Comparison) -> Iterator[list[Problem]]:
    """For each task its problems with the answers of the rows, those that tell rows apart first."""
    for task in c.tasks:
        found: dict[str, list[tuple[Source, Outcome]]] = {}
        for many in c.rows.values():
            for a in [a for a in many if task in a.chosen][:1]:
                for o in a.outcomes:
                    mine = found.setdefault(o.item, []) if o.task == task else []
                    if o.length == a.chosen[task][0] and all(s is not a.source for s, _ in mine):
                        mine.append((a.source, o))  # one sample of each row

        def order(item: str, found: dict[str, list[tuple[Source, Outcome]]] = found) -> Any:
            answers = found[item]
            right = sum(o.correct for _, o in answers)
            return (-len(answers), not 0 < right < len(answers), answers[0][1].index)

        yield [(c.panel, task, item, found[item]) for item in sorted(found, key=order)]


def cut(text: str) -> str:
    more = f"\n… {len(text) - TEXT} more characters" if len(text) > TEXT else ""
    return visible(text[:TEXT]) + more


def short(text: str | None) -> str | None:
    return None if text is None else visible(text if len(text) <= 80 else f"{text[:79]}…")


def link(target: Path, page: Path) -> dict[str, str]:
    """A relative address, so that a moved folder keeps working."""
    relative = os.path.relpath(target.resolve(), page.resolve().parent)
    return {"href": quote(Path(relative).as_posix()), "text": relative}
