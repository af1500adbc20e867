"""Evaluated runs against each other: the paper's results table and paired tests, per decoding.

Answers of different ways of decoding are never mixed. Within one, every method is shown at the
length asked for on the tasks that all of them were evaluated on, and compared with the strongest
baseline (without baselines: with the first method) on the answers both gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from goldimask.bootstrap import Paired, paired
from goldimask.errors import GoldimaskError, nearest
from goldimask.eval.tasks import own_length
from goldimask.records import Outcome
from goldimask.report.sources import Source
from goldimask.stats import (
    FIXED,
    SELECTED,
    Point,
    aggregate,
    by_decoding,
    chosen_lengths,
    points,
    reductions,
)
from goldimask.tables import Results, Table, results, results_table

Runs = dict[str, list[list[Outcome]]]  # method -> answers of each of its runs
Chosen = dict[str, list[dict[str, tuple[int, float]]]]  # method -> per run, task -> length, score


@dataclass(frozen=True)
class Choices:
    """How runs are compared.

    Without names, the baselines are the runs of other methods than GoldiMask, and the base models
    those that were not trained here.
    """

    length: str = "fixed"  # or best (selected on test), or a number
    baselines: tuple[str, ...] | None = None
    base: tuple[str, ...] | None = None

    def settled(self, sources: Sequence[Source]) -> Choices:
        """With names that all occur."""
        names = dict.fromkeys(s.name for s in sources)
        for name in (*(self.baselines or ()), *(self.base or ())):
            if name not in names:
                raise GoldimaskError(
                    f"--baselines/--base: no run named '{name}'; {nearest(name, names)}"
                )
        baselines, base = self.baselines, self.base or ()
        if baselines is None:
            trained = dict.fromkeys(s.name for s in sources if s.baseline)
            baselines = tuple(name for name in trained if name not in base)
            if self.base is None:
                base = tuple(dict.fromkeys(s.name for s in sources if s.run is None))
        return Choices(self.length, baselines, base)


@dataclass(frozen=True)
class Pair:
    """A method against the one it is compared with, on one task."""

    first: str
    second: str
    task: str
    length: int
    found: Paired


@dataclass(frozen=True)
class Comparison:
    """All methods under one way of decoding."""

    decoding: str
    note: str
    results: Results
    pairs: tuple[Pair, ...]
    suffix: str = ""  # of the names of its tables, where there are several comparisons

    def table(self) -> Table:
        """The paper's results table."""
        title = f"Accuracy (%), {self.decoding}"
        return results_table(self.results, f"results{self.suffix}", title, self.note)

    def tables(self) -> list[Table]:
        """The results table, and the pairs where there are any."""
        paired = f"paired{self.suffix}"
        pairs = [pairs_table(self.pairs, paired, self.decoding)] if self.pairs else []
        return [self.table(), *pairs]

    def as_dict(self) -> dict[str, Any]:
        columns = self.results.columns
        return {
            "decoding": self.decoding,
            "note": self.note,
            "strongest_baseline": self.results.strongest,
            "methods": {
                line.method: {
                    "scores": {c: asdict(line.cells[c]) for c in columns},
                    "change": line.change,
                }
                for line in self.results.lines
            },
            "paired": [
                {"task": p.task, "length": p.length, "first_name": p.first, "second_name": p.second}
                | asdict(p.found)
                for p in self.pairs
            ],
        }


def compare_sources(sources: Sequence[Source], choices: Choices) -> list[Comparison]:
    """One comparison for each way of decoding that any source was evaluated with."""
    settled = choices.settled(sources)
    ways: dict[str, Runs] = {}
    for source in sources:
        for way, outcomes in by_decoding(source.outcomes).items():
            ways.setdefault(way, {}).setdefault(source.name, []).append(outcomes)
    found = [c for way, runs in ways.items() if (c := compare_way(way, runs, settled))]
    return found if len(found) < 2 else [replace(c, suffix=f"-{i}") for i, c in enumerate(found, 1)]


def compare_way(way: str, runs: Runs, choices: Choices) -> Comparison | None:
    """The methods that were evaluated this way; None where no task is common to them."""
    chosen = {
        name: [chosen_lengths(aggregate(o), choices.length, own_length) for o in many]
        for name, many in runs.items()
    }
    everywhere = [row for rows in chosen.values() for row in rows]
    tasks = list(dict.fromkeys(task for row in everywhere for task in row))
    common = [task for task in tasks if all(task in row for row in everywhere)]
    if not common:
        return None
    values = {
        name: {i: {t: row[t][1] for t in common} for i, row in enumerate(rows)}
        for name, rows in chosen.items()
    }
    found = results(values, choices.baselines or (), choices.base or ())
    note = {"best": SELECTED, "fixed": FIXED}.get(choices.length, f"length {choices.length}")
    if missing := [task for task in tasks if task not in common]:
        note += f"; not evaluated by all, and left out: {', '.join(missing)}"
    mixed = [t for t in common if len({row[t][0] for row in everywhere}) > 1]
    if mixed and choices.length == "fixed":
        note += f"; not all at the same length: {', '.join(mixed)}"
    reference = found.strongest or next(iter(runs))
    pairs = tuple(
        pair
        for name in runs
        if name != reference
        for pair in pairs_of(runs, chosen, reference, name)
    )
    return Comparison(way, note, found, pairs)


def pairs_of(runs: Runs, chosen: Chosen, first: str, second: str) -> list[Pair]:
    """Every task of the second method at its length, where the first was evaluated too."""
    pairs = []
    for task, (length, _) in chosen[second][0].items():
        both = [
            [[o for o in run if (o.task, o.length) == (task, length)] for run in runs[name]]
            for name in (first, second)
        ]
        try:
            pairs.append(Pair(first, second, task, length, paired(both[0], both[1])))
        except GoldimaskError:  # no answer to the same problem
            continue
    return pairs


def long_table(found: Sequence[Comparison]) -> Table:
    """All comparisons as records: a line per decoding, method and task."""
    tables = [c.table() for c in found]
    head = tables[0].plain[0] if tables else ()
    rows = [(c.decoding, *row) for c, t in zip(found, tables, strict=True) for row in t.plain[1:]]
    columns = tuple(str(x) for x in ("decoding", *head))
    return Table("results", "Accuracy", columns, tuple(rows), left=3)


def pairs_table(pairs: Sequence[Pair], name: str, way: str) -> Table:
    """Differences in points, with what was lost and won."""
    rows = [
        (
            *(p.second, p.task, p.length, p.found.n, round(100 * p.found.difference, 1)),
            f"{100 * p.found.low:+.1f} to {100 * p.found.high:+.1f}",
            *(p.found.only_first, p.found.only_second),
            None if p.found.p is None else float(f"{p.found.p:.3g}"),
        )
        for p in pairs
    ]
    columns = ("method", "task", "length", "n", "points", "95 %", "lost", "won", "p (McNemar)")
    note = "Bootstrap over problems and seeds; exact McNemar where each problem has one answer."
    if unpaired := sum(p.found.unpaired for p in pairs):
        note += f" {unpaired} answers of only one side are left out."
    return Table(name, f"Paired against {pairs[0].first}, {way}", columns, tuple(rows), 2, note)


# --- accuracy against steps -----------------------------------------------------------------------


def threshold_points(sources: Sequence[Source], choices: Choices) -> list[Point]:
    """Points of every method with at least two thresholds; seeds are pooled."""
    settled = choices.settled(sources)
    others = (*(settled.baselines or ()), *(settled.base or ()))
    found = []
    for name in dict.fromkeys(s.name for s in sources):
        outcomes = [o for s in sources if s.name == name for o in s.outcomes]
        mine = points(name, outcomes, name in others)
        if len({p.tau for p in mine}) > 1:
            found += mine
    return found


def threshold_tables(found: Sequence[Point]) -> list[Table]:
    """Accuracy and steps of all settings, and the steps saved against the best baseline."""
    rows = tuple(
        (p.run, p.task, p.length, p.tau, round(100 * p.accuracy, 1), round(p.steps, 2), p.n)
        for p in found
    )
    columns = ("method", "task", "length", "tau", "accuracy %", "steps", "n")
    made = [Table("steps", "Accuracy and decoding steps", columns, rows, left=2)] if rows else []
    saved = tuple(
        (
            *(r.run, r.task, r.length, r.tau, round(r.steps, 2), round(100 * r.reduction, 1)),
            *(round(r.accuracy_difference, 1), r.against, round(r.steps_baseline, 2)),
        )
        for r in reductions(found)
    )
    columns = (
        "method",
        "task",
        "length",
        "tau",
        "steps",
        "saved %",
        "points",
        "against",
        "its steps",
    )
    title = "Steps against the most accurate baseline at each threshold"
    return made + ([Table("reductions", title, columns, saved, left=2)] if saved else [])
