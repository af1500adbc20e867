"""Evaluated runs against each other: the paper's results tables and paired tests.

Answers of different ways of decoding are never mixed, nor are backbones and corpora: each pair of
these is a panel, with its own strongest baseline. What may stand in one table at all is said in
`agreement`. Within a panel, every method is shown at the length asked for and compared with the
strongest baseline (without baselines: with the first method) on the answers both gave.

    LIFT*       the better of LIFT with H = 2 and H = 3 by the average over tasks, as one row in
                their place; chosen on the test data, as in the paper, and the note says so
    pass@k      of a task that is published so (AIME); in pairs, a problem counts as solved when any
                of its k samples is right
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from goldimask.backbones.lookup import BACKBONES
from goldimask.bootstrap import Paired, paired
from goldimask.errors import GoldimaskError, nearest
from goldimask.eval.tasks import own_length, own_samples
from goldimask.records import Outcome
from goldimask.report.agreement import Cells, agree, incomplete
from goldimask.report.sources import Source
from goldimask.stats import FIXED, SELECTED, TaskResult, aggregate, chosen_lengths
from goldimask.tables import Results, Table, panels_table, results

LIFT, STAR = ("lift-2", "lift-3"), "LIFT*"
Panels = dict[str, list[Source]]


@dataclass(frozen=True)
class Choices:
    """How runs are compared.

    Without names, the baselines are the runs of other methods than GoldiMask, and the base models
    those that were not trained here.
    """

    length: str = "fixed"  # or best (selected on test), a number, or both: fixed, then best
    baselines: tuple[str, ...] | None = None
    base: tuple[str, ...] | None = None
    allow_incomplete: bool = False  # show unfinished evaluations, marked

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
        return replace(self, baselines=baselines, base=base)


@dataclass(frozen=True)
class Answers:
    """What one run answered under one way of decoding."""

    source: Source
    seed: int
    outcomes: list[Outcome]
    results: tuple[TaskResult, ...]
    chosen: dict[str, tuple[int, float]]  # task -> length, score


Rows = dict[str, list[Answers]]  # method -> its runs, by seed


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
    """All methods of one panel under one way of decoding, at lengths chosen in one way."""

    decoding: str
    note: str
    results: Results
    pairs: tuple[Pair, ...]
    panel: str = ""  # backbone and corpus
    length: str = "fixed"
    suffix: str = ""  # of the name of its table of pairs, where there are several comparisons

    def as_dict(self) -> dict[str, Any]:
        columns = self.results.columns
        return {
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
            "paired": [
                {"task": p.task, "length": p.length, "first_name": p.first, "second_name": p.second}
                | asdict(p.found)
                for p in self.pairs
            ],
        }


def compare_sources(sources: Sequence[Source], choices: Choices) -> list[Comparison]:
    """One comparison for each way of decoding, choice of lengths and panel."""
    evaluated = [s for s in sources if s.outcomes]
    settled = choices.settled(sources)
    agree(evaluated, choices.allow_incomplete, choices.length in ("best", "both"))
    ways = dict.fromkeys(o.decoding.label for s in evaluated for o in s.outcomes)
    both = ("fixed", "best") if choices.length == "both" else (choices.length,)
    cells = {length: incomplete(evaluated, length == "best")[0] for length in both}
    found = []
    for way in ways:
        for length in both:
            for panel, members in panels_of(evaluated).items():
                chosen = replace(settled, length=length)
                made = compare_panel(way, panel, members, chosen, cells[length])
                if made and (length == both[0] or several_lengths(members, way)):
                    found.append(made)
    return found if len(found) < 2 else [replace(c, suffix=f"-{i}") for i, c in enumerate(found, 1)]


def several_lengths(sources: Sequence[Source], way: str) -> bool:
    asked = {(o.task, o.length) for s in sources for o in s.outcomes if o.decoding.label == way}
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
    taken = [id(s) for members in out.values() for s in members]
    for s in sources:
        if id(s) not in taken:
            out.setdefault(s.backbone if s.backbone in BACKBONES else "", []).append(s)
    return out


def compare_panel(
    way: str, panel: str, sources: Sequence[Source], choices: Choices, cells: Cells
) -> Comparison | None:
    """The methods that were evaluated this way; None where nothing was at the length asked for."""
    rows = rows_of(way, sources, choices.length)
    tasks = list(dict.fromkeys(t for many in rows.values() for a in many for t in a.chosen))
    if not tasks:
        return None
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
    partial = {
        (m, t)
        for m, many in rows.items()
        for a in many
        for t in tasks
        if t not in a.chosen or (a.source.label, way, t) in cells
    }
    values = {
        m: {a.seed: {t: a.chosen[t][1] for t in tasks if t in a.chosen} for a in many}
        for m, many in rows.items()
    }
    names = tuple(STAR if star and b == star[0] else b for b in choices.baselines or ())
    found = results(values, names, choices.base or (), partial)
    mixed = [
        t
        for t in tasks
        if len({a.chosen[t][0] for r in rows.values() for a in r if t in a.chosen}) > 1
    ]
    if mixed and choices.length == "fixed":
        note.append(f"not all at the same length: {', '.join(mixed)}")
    note = [protocol_note(rows, tasks), *note]
    if partial:
        note.append("† not all answers are there")
    pairs = pairs_of(rows, found.strongest or next(iter(rows)))
    return Comparison(way, "; ".join(note), found, tuple(pairs), panel, choices.length)


def rows_of(way: str, sources: Sequence[Source], length: str) -> Rows:
    rows: Rows = {}
    for i, source in enumerate(sources):
        mine = [o for o in source.outcomes if o.decoding.label == way]
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
    """`protocol lift; n: gsm8k 1,319, aime24 30 (pass@16)`, and the versions of tasks."""
    found = [r for many in rows.values() for a in many for r in a.results if r.task in tasks]
    first = {r.task: r for r in sorted(found, key=lambda r: -r.n)}
    protocols = ", ".join(dict.fromkeys(r.protocol for r in found))
    counts = ", ".join(
        f"{t} {r.n:,}" + (f" ({r.metric})" if r.samples > 1 else "") for t, r in first.items()
    )
    versions = dict.fromkeys(
        f"{t} {r.version}" for t, r in first.items() if r.version not in ("", "1")
    )
    return f"protocol {protocols}; n: {counts}" + (
        f"; versions: {', '.join(versions)}" if versions else ""
    )


def pairs_of(rows: Rows, first: str) -> list[Pair]:
    """Every method against the first, on every task at its length, seed by seed if they match."""
    pairs = []
    for second in rows:
        if second == first:
            continue
        seeds = {a.seed for a in rows[first]} & {a.seed for a in rows[second]}
        sides = [[a for a in rows[m] if not seeds or a.seed in seeds] for m in (first, second)]
        for task, (length, _) in sides[1][0].chosen.items():
            both = [[solved(a.outcomes, task, length) for a in side] for side in sides]
            try:
                pairs.append(Pair(first, second, task, length, paired(both[0], both[1])))
            except GoldimaskError:  # no answer to the same problem
                continue
    return pairs


def solved(outcomes: Sequence[Outcome], task: str, length: int) -> list[Outcome]:
    """The answers at a length; of a task published as pass@k, one for k samples of a problem."""
    mine = [o for o in outcomes if (o.task, o.length) == (task, length)]
    k = own_samples(task)
    if k == 1:
        return mine
    problems: dict[str, list[Outcome]] = {}
    for o in sorted(mine, key=lambda o: o.seed):
        problems.setdefault(o.item, []).append(o)
    one = {"seed": 0}
    return [
        many[0].model_copy(update={**one, "correct": any(o.correct for o in many[:k])})
        for many in problems.values()
    ]


# --- tables --------------------------------------------------------------------------------------


def result_tables(found: Sequence[Comparison]) -> list[Table]:
    """The paper's results tables, a panel for each backbone and corpus."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for c in found:
        groups.setdefault((c.decoding, c.length), []).append(c)
    out = []
    for i, ((way, _), many) in enumerate(groups.items(), 1):
        title = f"Accuracy (%), {way}"
        title += f", {many[0].panel}" if len(many) == 1 and many[0].panel else ""
        notes = dict.fromkeys(c.note for c in many)
        note = ". ".join(notes if len(notes) == 1 else (f"{c.panel}: {c.note}" for c in many))
        name = f"results-{i}" if len(groups) > 1 else "results"
        out.append(panels_table({c.panel: c.results for c in many}, name, title, note))
    return out


def pair_tables(found: Sequence[Comparison]) -> list[Table]:
    return [
        pairs_table(c.pairs, f"paired{c.suffix}", ", ".join(filter(None, (c.decoding, c.panel))))
        for c in found
        if c.pairs
    ]


def long_table(found: Sequence[Comparison]) -> Table:
    """All comparisons as records: a line per decoding, length, panel, method and task."""
    tables = [panels_table({c.panel: c.results}, "", "") for c in found]
    head = tables[0].plain[0] if tables else ()
    rows = [
        (c.decoding, c.length, c.panel, *row)
        for c, t in zip(found, tables, strict=True)
        for row in t.plain[1:]
    ]
    columns = tuple(str(x) for x in ("decoding", "length", "panel", *head))
    return Table("results", "Accuracy", columns, tuple(rows), left=5)


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
