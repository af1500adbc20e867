"""Two rows on the same problems with the same seeds: differences, intervals, McNemar.

    references  every row against Vanilla (without it: the strongest baseline, else the first row);
                rows that are no baselines against the strongest one; what selects its reveals
                against the control that draws them
    pooled      the pairs that every panel has, over all of them: backbones are drawn like seeds

An untuned model has no seed: its one run is set against every run of the other row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from goldimask.bootstrap import Difference, Pairing, paired
from goldimask.errors import GoldimaskError
from goldimask.eval.tasks import own_samples
from goldimask.figures import Bar, Figure, Intervals
from goldimask.records import Outcome
from goldimask.report.paper import CONTROLS, OWN, one_part_away
from goldimask.report.sources import Source
from goldimask.stats import TaskResult
from goldimask.tables import Cell, Panel, Table

if TYPE_CHECKING:
    from goldimask.report.comparison import Comparison

METHOD = "95 % bootstrap over problems and seeds"
DRAWN = 4  # panels in one figure


@dataclass(frozen=True)
class Answers:
    """What one run answered under one way of decoding."""

    source: Source
    seed: int
    outcomes: list[Outcome]
    results: tuple[TaskResult, ...]
    chosen: dict[str, tuple[int, float]]  # task -> length, score

    def at(self, task: str) -> list[Outcome]:
        """At the chosen length; of a task published as pass@k, one for k samples of a problem."""
        length, k = self.chosen[task][0], own_samples(task)
        mine = [o for o in self.outcomes if (o.task, o.length) == (task, length)]
        if k == 1:
            return mine
        problems: dict[str, list[Outcome]] = {}
        for o in sorted(mine, key=lambda o: o.seed):
            problems.setdefault(o.item, []).append(o)
        return [
            many[0].model_copy(update={"seed": 0, "correct": any(o.correct for o in many[:k])})
            for many in problems.values()
        ]


Rows = dict[str, list[Answers]]  # method -> its runs, by seed
Sides = tuple[list[Answers], list[Answers]]


@dataclass(frozen=True)
class Pair:
    """A row against the one it is compared with."""

    first: str
    second: str
    lengths: dict[str, int]
    found: Pairing

    @property
    def name(self) -> str:
        return f"{self.second} - {self.first}"

    def as_dicts(self) -> list[dict[str, Any]]:
        """One record per task."""
        names = {"first_name": self.first, "second_name": self.second, "seeds": self.found.seeds}
        return [
            {"task": task, "length": self.lengths[task], **names, **asdict(one)}
            for task, one in self.found.tasks.items()
        ]


def pairs_of(
    rows: Rows, tasks: Sequence[str], strongest: str | None, rivals: Sequence[str]
) -> Iterator[Pair]:
    """All pairs of `references`; `rivals` are baselines and untuned models."""
    known = known_names(rows)
    first = known.get("vanilla") or strongest or next(iter(rows))
    wanted = [(first, m) for m in rows]
    wanted += [(strongest, m) for m in rows if strongest and m not in rivals]
    wanted += [(known[c], known[m]) for m, c in CONTROLS.items() if m in known and c in known]
    for one, two in dict.fromkeys(wanted):
        if one != two and (pair := pair_of(rows, one, two, tasks)):
            yield pair


def known_names(rows: Rows) -> dict[str, str]:
    """Known rows -> their names here; one that only shares the preset stands for a missing one."""
    found = [(many[0].source, m) for m, many in rows.items() if many[0].source.run]
    near = {s.row: m for s, m in reversed(found)}
    return near | {s.exact: m for s, m in reversed(found) if s.exact}


def pair_of(rows: Rows, first: str, second: str, tasks: Sequence[str]) -> Pair | None:
    """Two rows at the lengths of the second; None where they answered no problem in common."""
    return joined([aligned(rows, first, second)], first, second, tasks)


def aligned(rows: Rows, first: str, second: str) -> Sides:
    """Runs of the same seeds; of an untuned model, its only run once for each of the other's."""
    one, two = rows[first], rows[second]
    if len(one) == 1 and not one[0].source.run:
        return one * len(two), two
    if len(two) == 1 and not two[0].source.run:
        return one, two * len(one)
    seeds = {a.seed for a in one} & {a.seed for a in two}
    if not seeds:
        return one, two
    return [a for a in one if a.seed in seeds], [a for a in two if a.seed in seeds]


def joined(sides: Sequence[Sides], first: str, second: str, tasks: Sequence[str]) -> Pair | None:
    """Several panels as one, backbone by backbone."""
    shared = [t for t in tasks if all(t in a.chosen for both in sides for s in both for a in s)]
    lengths = {t: sides[0][1][0].chosen[t][0] for t in shared}
    runs = [
        [[o for t in shared for o in a.at(t)] for both in sides for a in both[i]] for i in (0, 1)
    ]
    kept = [[[o for o in run if o.length == lengths[o.task]] for run in side] for side in runs]
    try:
        return Pair(first, second, lengths, paired(kept[0], kept[1], len(sides)))
    except GoldimaskError:  # no answer to the same problem
        return None


def pooled(panels: Sequence[Comparison]) -> list[Pair]:
    """Pairs that every one of several panels has, with as many runs in each."""
    if len(panels) < 2:
        return []
    out = []
    for pair in panels[0].pairs:
        names = (pair.first, pair.second)
        if all(n in c.rows for c in panels for n in names):
            sides = [aligned(c.rows, *names) for c in panels]
            if len({len(one) for one, _ in sides}) == 1:
                out.append(joined(sides, *names, panels[0].tasks))
    return [pair for pair in out if pair]


# --- tables --------------------------------------------------------------------------------------

Parts = dict[str, Sequence[Pair]]  # panel -> pairs


def parts_of(many: Sequence[Comparison]) -> Parts:
    """The pairs of each panel, and those over all panels."""
    parts: Parts = {c.panel: c.pairs for c in many if c.pairs}
    if together := pooled(many):
        parts[f"all ({', '.join(parts)})"] = together
    return parts


def ablation_parts(many: Sequence[Comparison]) -> Parts:
    """Rows that are one part away from GoldiMask-D, against it."""
    out: Parts = {}
    for c in many:
        rows = [c.known[row] for row in one_part_away() if row in c.known]
        own = c.known.get(OWN)
        found = [pair_of(c.rows, own, row, c.tasks) for row in rows] if own else []
        out |= {c.panel: kept} if (kept := [p for p in found if p]) else {}
    return out


def paired_table(parts: Parts, name: str, title: str, decoding: str) -> Table | None:
    """Average, steps and tasks, a line for each pair; as CSV and JSON a line for each task."""
    pairs = [p for many in parts.values() for p in many]
    if not pairs:
        return None
    tasks = tuple(dict.fromkeys(t for p in pairs for t in p.found.tasks))

    def line(p: Pair) -> tuple[Cell, ...]:
        found = (p.found.tasks.get(t) for t in tasks)
        cells = (None if x is None else points(x.difference, x.low, x.high) for x in found)
        return (p.name, interval(p.found.average), interval(p.found.steps), *cells)

    note = (
        f"Points of accuracy, steps in per cent of the reference's calls; {METHOD}"
        f"{', and backbones over all' if any(x.startswith('all (') for x in parts) else ''}; "
        f"{said({p.found.seeds for p in pairs})} seeds; n: "
        + ", ".join(f"{t} {max_n(pairs, t):,}" for t in tasks)
        + " answers."
    )
    columns = ("pair", "average", "steps (%)", *tasks)
    rows = with_panels(parts, line, len(columns))
    head = ("panel", "pair", "what", "value", "low", "high")
    plain: list[tuple[Cell, ...]] = [head]
    for panel, many in parts.items():
        for p in many:
            both = {"average": p.found.average, "steps": p.found.steps}
            both |= {t: Difference(x.difference, x.low, x.high) for t, x in p.found.tasks.items()}
            plain += [(panel, p.name, k, d.value, d.low, d.high) for k, d in both.items()]
    return Table(name, f"{title}, {decoding}", columns, rows, 1, note, tuple(plain))


def mcnemar_table(parts: Parts, name: str, decoding: str) -> Table | None:
    """Task by task: n, what was lost and won, and the exact test."""

    def lines(p: Pair) -> Iterator[tuple[Cell, ...]]:
        for task, x in p.found.tasks.items():
            yield (
                *(p.name, task, p.lengths[task], x.n, p.found.seeds),
                *(round(100 * x.difference, 1), points(x.low, x.high), x.only_first, x.only_second),
                None if x.p is None else float(f"{x.p:.3g}"),
            )

    columns = ("pair", "task", "length", "n", "seeds", "points", "95 %", "lost", "won")
    columns += ("p (McNemar)",)
    rows: list[tuple[Cell, ...]] = []
    for panel, many in parts.items():
        mine = [line for p in many for line in lines(p)]
        rows += [(Panel(panel), *("" for _ in columns[1:]))] if len(parts) > 1 and mine else []
        rows += mine
    if not rows:
        return None
    note = f"{METHOD}; exact McNemar where each problem has one answer."
    if unpaired := sum(
        x.unpaired for m in parts.values() for p in m for x in p.found.tasks.values()
    ):
        note += f" {unpaired} answers of only one side are left out."
    return Table(name, f"Paired tests, {decoding}", columns, tuple(rows), 2, note)


def paired_figure(parts: Parts, name: str) -> Figure | None:
    """Differences to the row that all others are set against, a pair of charts for each panel.

    Of many panels, only those over all of them.
    """
    charts = []
    some = {panel: many for panel, many in parts.items() if panel.startswith("all (")}
    for panel, many in (some if some and len(parts) > DRAWN else parts).items():
        bars = [p for p in many if p.first == many[0].first]
        place = f"{panel.split(' (')[0]}: " if len(parts) > 1 and panel else ""
        for kind, of in (
            ("accuracy (points)", lambda p: p.found.average),
            ("decoding steps (%)", lambda p: p.found.steps),
        ):
            shown = tuple(
                Bar(p.second, *(100 * x for x in (of(p).value, of(p).low, of(p).high)))
                for p in bars
            )
            charts.append(Intervals(f"{place}{kind}, against {many[0].first}", shown))
    if not charts:
        return None
    return Figure(name, "Paired differences", tuple(charts), wide=2)


def with_panels(
    parts: Mapping[str, Iterable[Any]], line: Callable[[Any], tuple[Cell, ...]], width: int
) -> tuple[tuple[Cell, ...], ...]:
    """Rows below the heads of their panels; a single panel needs no head."""
    rows: list[tuple[Cell, ...]] = []
    for panel, many in parts.items():
        if len(parts) > 1:
            rows.append((Panel(panel), *("" for _ in range(width - 1))))
        rows += [line(x) for x in many]
    return tuple(rows)


def interval(d: Difference) -> str:
    return points(d.value, d.low, d.high)


def points(*values: float) -> str:
    """`+1.0 [-0.5, +2.5]`, or the interval alone."""
    *value, low, high = (f"{100 * x:+.1f}" for x in values)
    return " ".join([*value, f"[{low}, {high}]"])


def said(counts: Iterable[int]) -> str:
    """`3`, or `2 to 3`."""
    low, high = min(found := set(counts)), max(found)
    return str(low) if low == high else f"{low} to {high}"


def max_n(pairs: Iterable[Pair], task: str) -> int:
    return max(p.found.tasks[task].n for p in pairs if task in p.found.tasks)
