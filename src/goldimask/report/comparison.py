"""Evaluated runs against each other: the paper's results tables.

Answers of different ways of decoding are never mixed, nor are backbones and corpora: each pair of
these is a panel, with its own strongest baseline. What may stand in one table at all is said in
`agreement`; code and AIME have tables of their own (`family`). Of a decoder that was run at several
thresholds, the results at the one that was asked for are shown, at all of them where nothing else
was evaluated.

    LIFT*       the better of LIFT with H = 2 and H = 3 by the average over tasks, as one row in
                their place; chosen on the test data, as in the paper, and the note says so
    pass@k      of a task that is published so (AIME); in pairs, a problem counts as solved when any
                of its k samples is right
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from goldimask.backbones.lookup import BACKBONES
from goldimask.errors import GoldimaskError, nearest
from goldimask.eval.tasks import own_length, own_samples
from goldimask.report.agreement import FAMILIES, Cells, agree, family, incomplete
from goldimask.report.pairs import Answers, Pair, Rows, known_names, pairs_of
from goldimask.report.results import Results, results
from goldimask.report.sources import Source
from goldimask.stats import FIXED, SELECTED, aggregate, chosen_lengths
from goldimask.thresholds import threshold

LIFT, STAR = ("lift-2", "lift-3"), "LIFT*"
Panels = dict[str, list[Source]]


@dataclass(frozen=True)
class Choices:
    """How runs are compared.

    Without names, the baselines are the runs of other methods than GoldiMask and its controls, and
    the base models those that were not trained here.
    """

    length: str = "fixed"  # or best (selected on test), a number, or both: fixed, then best
    baselines: tuple[str, ...] | None = None
    base: tuple[str, ...] | None = None
    allow_incomplete: bool = False  # show unfinished evaluations, marked
    rows: tuple[str, ...] | None = None  # of the results tables; None: all
    tau: float | None = None  # the threshold of a sweep that results tables show

    def settled(self, sources: Sequence[Source]) -> Choices:
        """With names that all occur."""
        names = dict.fromkeys(s.name for s in sources)
        for name in (*(self.baselines or ()), *(self.base or ()), *(self.rows or ())):
            if name not in names:
                raise GoldimaskError(
                    f"--baselines/--base/--rows: no run named '{name}'; {nearest(name, names)}"
                )
        baselines, base = self.baselines, self.base or ()
        if baselines is None:
            trained = dict.fromkeys(s.name for s in sources if s.baseline)
            baselines = tuple(name for name in trained if name not in base)
            if self.base is None:
                base = tuple(dict.fromkeys(s.name for s in sources if s.run is None))
        return replace(self, baselines=baselines, base=base)


@dataclass(frozen=True)
class Comparison:
    """All methods of one panel under one way of decoding, at lengths chosen in one way."""

    family: str
    decoding: str
    note: str
    results: Results
    pairs: tuple[Pair, ...]
    rows: Rows
    baselines: tuple[str, ...]
    base: tuple[str, ...]
    partial: frozenset[tuple[str, str]]
    panel: str = ""  # backbone and corpus
    length: str = "fixed"
    several: bool = False  # lengths were evaluated of a task
    hidden: Rows = field(default_factory=dict)  # rows that another one stands for

    @property
    def way(self) -> str:
        """The decoding, and which lengths are shown where there is a choice."""
        lengths = {"best": ", best lengths", "fixed": ", fixed lengths"}
        return self.decoding + (lengths.get(self.length, "") if self.several else "")

    @property
    def known(self) -> dict[str, str]:
        """Known rows of the paper -> their names here."""
        return known_names(self.rows)

    def only(self, names: Mapping[str, str], plain: bool = False) -> Results:
        """The results of some rows under other names; `plain`: without relative changes."""
        values = {shown: scores(self.rows[m]) for m, shown in names.items()}
        rivals = [
            () if plain else [names.get(m, m) for m in x] for x in (self.baselines, self.base)
        ]
        partial = {(names[m], t) for m, t in self.partial if m in names}
        return results(values, rivals[0], rivals[1], partial, self.tasks)

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(t for t in self.results.columns if t != "average")

    def as_dict(self) -> dict[str, Any]:
        columns = self.results.columns
        return {
            "family": self.family,
            "decoding": self.decoding,
            "panel": self.panel,
            "length": self.length,
            "note": self.note,
            "strongest_baseline": self.results.strongest,
            "methods": {
                line.method: {
                    "scores": {c: asdict(line.cells[c]) for c in columns if c in line.cells},
                    "change": line.change,
                    "incomplete": sorted(line.partial),
                }
                for line in self.results.lines
            },
            "paired": [record for pair in self.pairs for record in pair.as_dicts()],
        }


def compare_sources(sources: Sequence[Source], choices: Choices) -> list[Comparison]:
    """One comparison for each family of tasks, way of decoding, choice of lengths and panel."""
    evaluated = [s for s in sources if s.outcomes]
    settled = choices.settled(sources)
    agree(evaluated, choices.allow_incomplete, choices.length in ("best", "both"))
    both = ("fixed", "best") if choices.length == "both" else (choices.length,)
    cells = {length: incomplete(evaluated, length == "best")[0] for length in both}
    panels = panels_of([s for s in evaluated if choices.rows is None or s.name in choices.rows])
    found = []
    for kind in ("main", *FAMILIES):
        for way in shown_ways(evaluated, kind, choices.tau):
            for length in both:
                for panel, members in panels.items():
                    chosen = replace(settled, length=length)
                    made = compare_panel(kind, way, panel, members, chosen, cells[length])
                    if made and (length == both[0] or made.several):
                        found.append(made)
    return found


def shown_ways(sources: Sequence[Source], kind: str, tau: float | None) -> list[str]:
    """Ways of decoding of a family's tasks; of a sweep over thresholds one, or all if need be."""
    ways = {o.decoding: None for s in sources for o in s.outcomes if family(o.task) == kind}
    swept: dict[str, set[float]] = {}
    for at in filter(None, map(threshold, ways)):
        swept.setdefault(at[0], set()).add(at[1])
    single = [w for w in ways if (at := threshold(w)) is None or len(swept[at[0]]) == 1]
    asked = [w for w in ways if w not in single and (at := threshold(w)) and at[1] == tau]
    return list(dict.fromkeys(w.label for w in [*single, *asked] or ways))


def several_lengths(rows: Rows) -> bool:
    asked = {(r.task, r.length) for many in rows.values() for a in many for r in a.results}
    return len(asked) > len({task for task, _ in asked})


def panels_of(sources: Sequence[Source]) -> Panels:
    """Backbone and corpus -> its runs, with the untuned models of that backbone before them.

    A model that is no known backbone's name (a merged folder, say) joins the only panel there is.
    """
    trained = dict.fromkeys(s.panel for s in sources if s.run)
    out: Panels = {}
    for panel in trained:
        mine = [s for s in sources if s.run and s.panel == panel]
        base = [s for s in sources if not s.run and s.backbone == mine[0].backbone]
        if len(trained) == 1:
            base = [s for s in sources if not s.run and (s in base or s.backbone not in BACKBONES)]
        out[panel] = [*base, *mine]
    taken = {id(s) for members in out.values() for s in members}
    for s in sources:
        if id(s) not in taken:
            out.setdefault(s.backbone if s.backbone in BACKBONES else "", []).append(s)
    return out


def compare_panel(
    kind: str, way: str, panel: str, sources: Sequence[Source], choices: Choices, cells: Cells
) -> Comparison | None:
    """The methods that were evaluated this way; None where nothing was at the length asked for."""
    rows = rows_of(kind, way, sources, choices.length)
    judged = [a for many in rows.values() for a in many]
    trained = [a for a in judged if a.source.run]
    tasks = list(dict.fromkeys(t for a in trained or judged for t in a.chosen))
    if not tasks or (not trained and any(s.run for s in sources)):
        return None
    rows = {m: many for m, many in rows.items() if any(t in a.chosen for a in many for t in tasks)}
    every = rows
    note = [{"best": SELECTED, "fixed": FIXED}.get(choices.length, f"length {choices.length}")]
    if star := best_lift(rows, tasks):
        winner, averages = star
        rows = {
            STAR if m == winner else m: r
            for m, r in rows.items()
            if m == winner or m not in averages
        }
        shown = ", ".join(f"{m} {100 * x:.1f}" for m, x in averages.items())
        note.append(f"{STAR} is {winner}, the better by average ({shown}), chosen on the test data")
    partial = frozenset(
        (m, t)
        for m, many in rows.items()
        for a in many
        for t in tasks
        if t not in a.chosen or (a.source.label, way, t) in cells
    )
    names = tuple(STAR if star and b == star[0] else b for b in choices.baselines or ())
    base = tuple(choices.base or ())
    values = {m: scores(many) for m, many in rows.items()}
    found = results(values, names, base, partial, tuple(tasks))
    mixed = [
        t
        for t in tasks
        if len({a.chosen[t][0] for r in rows.values() for a in r if t in a.chosen}) > 1
    ]
    if mixed and choices.length == "fixed":
        note.append(f"not all at the same length: {', '.join(mixed)}")
    note = [protocol_note(rows, tasks), seeds_note(rows), *note]
    if partial:
        note.append("† not all answers are there")
    pairs = tuple(pairs_of(rows, tasks, found.strongest, (*names, *base)))
    text = "; ".join(filter(None, note))
    hidden = {m: r for m, r in every.items() if all(r is not kept for kept in rows.values())}
    lists = (rows, names, base, partial, panel, choices.length, several_lengths(every), hidden)
    return Comparison(kind, way, text, found, pairs, *lists)


def scores(many: Sequence[Answers]) -> dict[int, dict[str, float]]:
    """Seed -> task -> score."""
    return {a.seed: {t: score for t, (_, score) in a.chosen.items()} for a in many}


def rows_of(kind: str, way: str, sources: Sequence[Source], length: str) -> Rows:
    rows: Rows = {}
    for i, source in enumerate(sources):
        mine = [o for o in source.outcomes if o.decoding.label == way and family(o.task) == kind]
        if mine:
            found = aggregate(mine, samples=own_samples)
            chosen = chosen_lengths(found, length, own_length)
            seed = i if source.seed is None else source.seed
            rows.setdefault(source.name, []).append(Answers(source, seed, mine, found, chosen))
    return {name: sorted(many, key=lambda a: a.seed) for name, many in rows.items()}


def best_lift(rows: Rows, tasks: Sequence[str]) -> tuple[str, dict[str, float]] | None:
    """The row of LIFT with the higher average over all tasks, and the averages of both."""
    methods = {m: {a.source.method for a in many} for m, many in rows.items()}
    lifts = [m for m in rows if methods[m] <= set(LIFT)]
    if {method for m in lifts for method in methods[m]} != set(LIFT) or len(lifts) != len(LIFT):
        return None
    if any(t not in a.chosen for m in lifts for a in rows[m] for t in tasks):
        return None
    averages = {
        m: sum(a.chosen[t][1] for a in rows[m] for t in tasks) / (len(rows[m]) * len(tasks))
        for m in lifts
    }
    return max(averages, key=lambda m: averages[m]), averages


def protocol_note(rows: Rows, tasks: Sequence[str]) -> str:
    """`protocol lift; n: gsm8k 1,319, aime24 30 (pass@16)`, and the versions of tasks.

    Of problems that are divided over the seeds, n counts all of them.
    """
    found = [r for many in rows.values() for a in many for r in a.results if r.task in tasks]
    first = {r.task: r for r in sorted(found, key=lambda r: -r.n)}
    asked: dict[str, set[str]] = {t: set() for t in first}
    for o in (o for many in rows.values() for a in many for o in a.outcomes if o.task in asked):
        asked[o.task].add(o.item)
    protocols = ", ".join(dict.fromkeys(r.protocol for r in found))
    counts = ", ".join(
        f"{t} {len(asked[t]):,}" + (f" ({r.metric})" if r.samples > 1 else "")
        for t, r in first.items()
    )
    versions = dict.fromkeys(
        f"{t} {r.version}" for t, r in first.items() if r.version not in ("", "1")
    )
    return f"protocol {protocols}; n: {counts}" + (
        f"; versions: {', '.join(versions)}" if versions else ""
    )


def seeds_note(rows: Rows) -> str:
    """`3 seeds (goldimask-t 2)`: how many runs the means are over."""
    counts = {m: len(many) for m, many in rows.items() if many[0].source.run}
    if not counts:
        return ""
    most = max(counts.values())
    fewer = ", ".join(f"{m} {n}" for m, n in counts.items() if n < most)
    return f"{most} seed{'s' if most > 1 else ''}" + (f" ({fewer})" if fewer else "")
