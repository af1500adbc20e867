"""What the paper's tables do not show: averages by threshold, equal steps, supervised tokens.

decoding      accuracy and calls at every threshold, averages over tasks; the run's own held-out
              loss after its last step; effective share of the targets; targets kept over K
frontier      fewer steps at one threshold can mean a better model or only a more confident one:
              accuracy against Vanilla's at the same number of steps (`bootstrap.frontier`)
rates         rows that a campaign tried at several learning rates, `METHOD@RATE`
supervision   shares of the classes of tokens, from `facts.classes` of the runs' manifests
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from goldimask.bootstrap import Scored, frontier, problems_of, scored
from goldimask.eval.tasks import own_length
from goldimask.records import Outcome
from goldimask.report.comparison import Comparison, panels_of
from goldimask.report.pairs import interval, with_panels
from goldimask.report.sources import Source
from goldimask.report.threshold_tables import by_row, suffix
from goldimask.stats import Spread, spread
from goldimask.tables import Cell, Share, Table
from goldimask.thresholds import Point, threshold

Run = list[Outcome]
Sides = tuple[list[Run], list[Run]]  # of two rows, by seed


def decoding_tables(sources: Sequence[Source], found: dict[str, list[Point]]) -> list[Table]:
    """One per decoder that has a threshold."""
    panels = panels_of([s for s in sources if s.outcomes])
    out = []
    for decoder, some in found.items():
        taus = sorted({p.tau for p in some})
        columns = ("method", *(x for t in taus for x in (f"acc. {t:g}", f"steps {t:g}")))
        columns += ("held-out loss", "n_eff/n", "kept/K")
        parts = {
            panel: [
                (run, [p for p in some if (p.panel, p.run) == (panel, run)], members)
                for run in dict.fromkeys(p.run for p in some if p.panel == panel)
            ]
            for panel, members in panels.items()
        }
        parts = {panel: rows for panel, rows in parts.items() if rows}

        def line(
            row: tuple[str, list[Point], list[Source]], taus: Sequence[float] = tuple(taus)
        ) -> tuple[Cell, ...]:
            run, mine, members = row
            cells: list[Cell] = [run]
            for tau in taus:
                here = [p for p in mine if p.tau == tau]
                cells.append(f"{100 * mean([p.accuracy for p in here]):.1f}" if here else None)
                cells.append(f"{mean([p.steps for p in here]):.2f}" if here else None)
            runs = [s for s in members if s.name == run]
            cells.append(plus_minus(held_out(runs, members), 4))
            cells += [plus_minus(logged(runs, k)) for k in ("n_eff_ratio", "kept_ratio")]
            return tuple(cells)

        n = ", ".join(f"{t} {max(p.n for p in some if p.task == t):,}" for t in tasks_of(some))
        note = (
            "Accuracy (%) and calls of the model by threshold, averages over tasks, on problems "
            f"judged at every threshold (n over seeds: {n}); denoising loss of the held-out "
            "examples after the last step (± SD over seeds); effective share of the targets; "
            "targets kept over K."
        )
        title = f"Decoding and held-out loss, {decoder}"
        rows = with_panels(parts, line, len(columns))
        out.append(Table(f"decoding{suffix(found, decoder)}", title, columns, rows, note=note))
    return out


def rates_table(found: Sequence[Comparison]) -> list[Table]:
    """Average accuracy of every row at its rates, the mean over panels; the best is bold."""
    averages: dict[str, dict[str, list[float]]] = {}
    for line in (line for c in found if c.family == "main" for line in c.results.lines):
        name, at, rate = line.method.partition("@")
        if at and (cell := line.cells.get("average") or next(iter(line.cells.values()), None)):
            averages.setdefault(name, {}).setdefault(rate, []).append(cell.mean)
    rates = sorted({rate for row in averages.values() for rate in row}, key=float)
    rows: list[tuple[Cell, ...]] = []
    for name, tried in averages.items():
        means = {rate: mean(values) for rate, values in tried.items()}
        most = max(map(len, tried.values()))  # a rate that some panel lacks cannot be the best
        best = max((r for r in means if len(tried[r]) == most), key=lambda r: means[r])
        shares = [
            Share(Spread(means[r], None, len(tried[r])), r == best) if r in means else None
            for r in rates
        ]
        rows.append((name, *shares, best))
    note = (
        "Accuracy (%), the mean over tasks and over backbones. The best rate is chosen on the "
        "problems that are judged here: report it on others."
    )
    columns = ("method", *rates, "best")
    return [Table("rates", "Learning rates", columns, tuple(rows), note=note)] if rows else []


def tasks_of(some: Sequence[Point]) -> list[str]:
    return list(dict.fromkeys(p.task for p in some))


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def held_out(runs: Sequence[Source], members: Sequence[Source]) -> list[float]:
    """The held-out loss per run; of the untuned backbone, what the trainings began with."""
    trained = [s for s in runs if s.run]
    if trained:
        return [x for s in trained if (x := s.facts.get("eval_loss_last")) is not None]
    first = [x for s in members if (x := s.facts.get("eval_loss_first")) is not None]
    return first[:1]


def logged(runs: Sequence[Source], key: str) -> list[float]:
    """The mean of a logged quantity over each run."""
    found = [[float(m.values[key]) for m in s.metrics if key in m.values] for s in runs]
    return [mean(values) for values in found if values]


def plus_minus(values: Sequence[float], digits: int = 2) -> str | None:
    if not values:
        return None
    found = spread(values)
    text = f"{found.mean:.{digits}f}"
    return text if found.sd is None or digits < 3 else f"{text} ± {found.sd:.{digits}f}"


def frontier_tables(sources: Sequence[Source], found: dict[str, list[Point]]) -> list[Table]:
    """One per decoder with several thresholds, of panels that have Vanilla."""
    panels = panels_of([s for s in sources if s.outcomes])
    out = []
    for decoder, some in found.items():
        taus = sorted({p.tau for p in some})
        sides: dict[str, dict[str, Sides]] = {}  # panel -> row -> Vanilla's answers and its own
        for panel, members in panels.items():
            names = dict.fromkeys(p.run for p in some if p.panel == panel)
            rival = next((s.name for s in members if s.row == "vanilla" and s.name in names), None)
            rows = by_row(members)
            if rival:
                shown = {n: same_seeds(rows[rival], rows[n]) for n in names if n != rival}
                sides |= {panel: shown} if shown else {}
        parts = {
            panel: [(name, *at_equal_steps([one], decoder, taus)) for name, one in shown.items()]
            for panel, shown in sides.items()
        }
        together = [  # rows with as many seeds in every panel
            (name, *at_equal_steps(many, decoder, taus))
            for name in next(iter(sides.values()), {})
            if len(many := [x[name] for x in sides.values() if name in x]) == len(sides) > 1
            and len({len(first) for first, _ in many}) == 1
        ]
        parts |= {"all": together} if together else {}
        if parts and len(taus) > 1:
            columns = ("method", *(f"at {tau:g}" for tau in taus))
            note = (
                "Accuracy minus Vanilla's at the same mean number of steps, with Vanilla's "
                "threshold chosen for it (linear between measured thresholds); points, 95 % "
                "bootstrap over problems and seeds, and backbones over all, on the problems judged "
                "at every threshold. "
                "outside: Vanilla does not reach that number of steps."
            )
            title = f"Against Vanilla at equal steps, {decoder}"
            rows = with_panels(parts, lambda row: row, len(columns))
            out.append(Table(f"frontier{suffix(found, decoder)}", title, columns, rows, note=note))
    return out


def same_seeds(first: Mapping[int | None, Run], second: Mapping[int | None, Run]) -> Sides:
    """The runs of the seeds of both; an untuned model has none and stands beside every one."""
    seeds = sorted(s for s in first if s is not None and (s in second or None in second))
    return [first[s] for s in seeds], [second.get(s, second.get(None, [])) for s in seeds]


def at_equal_steps(sides: Sequence[Sides], decoder: str, taus: Sequence[float]) -> list[str]:
    """A cell per threshold of the second row; several panels are backbones to draw from."""
    first, second = ([run for both in sides for run in both[i]] for i in (0, 1))
    at = [at_threshold(first, decoder, tau, first, len(sides)) for tau in taus]
    rivals = [row for row in at if row is not None]
    cells = []
    for tau in taus:
        own = at_threshold(second, decoder, tau, first, len(sides))
        gap = frontier(rivals, own) if own and rivals else None
        cells.append("outside" if gap is None else interval(gap))
    return cells


def at_threshold(
    runs: list[Run], decoder: str, tau: float, like: list[Run], backbones: int = 1
) -> Scored | None:
    """A row at one threshold, each task at its own length where there are several."""
    lengths: dict[str, set[int]] = {}
    for o in (o for run in like for o in run):
        lengths.setdefault(o.task, set()).add(o.length)
    fixed = {t: own_length(t) if len(found) > 1 else min(found) for t, found in lengths.items()}
    mine = [
        [
            o
            for o in run
            if threshold(o.decoding) == (decoder, tau) and fixed.get(o.task) == o.length
        ]
        for run in runs
    ]
    problems = problems_of(*mine)
    return scored(mine, problems, backbones) if problems and all(mine) else None


def supervision_table(sources: Sequence[Source]) -> list[Table]:
    """Which tokens are targets, and which carry the weight."""
    parts: dict[str, list[tuple[str, list[Mapping[str, Any]]]]] = {}
    for panel, members in panels_of([s for s in sources if s.facts.get("classes")]).items():
        for name in dict.fromkeys(s.name for s in members):
            found = [s.facts["classes"] for s in members if s.name == name]
            parts.setdefault(panel, []).append((name, found))
    if not parts:
        return []
    rows = [row for many in parts.values() for row in many]
    classes = list(dict.fromkeys(k for _, found in rows for x in found for k in x))
    kinds = ("targets", "weight")

    def share(found: Sequence[Mapping[str, Any]], kind: str, what: str) -> str | None:
        values = [x[kind][what] for x in found if x.get(kind, {}).get(what) is not None]
        return f"{100 * mean(values):.1f}" if values else None

    columns = ("method", *(f"{k}: {w}" for k in classes for w in kinds))
    masked = ", ".join(f"{k} {share(rows[0][1], k, 'candidates')}" for k in classes)
    note = (
        "Shares (%) of the targets and of the loss weight by class of token, mean over seeds; of "
        f"the masked tokens ({rows[0][0]}): {masked}."
    )
    cells = with_panels(
        parts,
        lambda row: (row[0], *(share(row[1], k, w) for k in classes for w in kinds)),
        len(columns),
    )
    return [Table("supervision", "What is supervised", columns, cells, note=note)]
