"""The report of some runs: tables, figures, notes, links; `runs_page` writes it.

The first run is the one whose cost the others are measured by. Every number comes from the runs'
own files. Which kinds of tables there are is said in `paper`; without names, all that the folders
allow, of many runs only those that do not grow with their number.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from goldimask.errors import GoldimaskError, nearest
from goldimask.eval.published import beside
from goldimask.eval.published import sources as published_sources
from goldimask.eval.tasks import own_samples
from goldimask.figures import Chart, Figure, Line
from goldimask.report.agreement import said, unfinished_trials
from goldimask.report.comparison import Choices, Comparison, compare_sources
from goldimask.report.json_tables import flat, tables_of
from goldimask.report.lab_tables import (
    decoding_tables,
    frontier_tables,
    rates_table,
    supervision_table,
)
from goldimask.report.pairs import (
    Parts,
    ablation_parts,
    mcnemar_table,
    paired_figure,
    paired_table,
    parts_of,
)
from goldimask.report.paper import ALL, FIGURES, PER_RUN, TABLES
from goldimask.report.result_tables import ablation_tables, grouped, result_tables
from goldimask.report.sources import Source, listed
from goldimask.report.threshold_tables import (
    swept,
    threshold_figures,
    threshold_points,
    threshold_tables,
)
from goldimask.report.training_time import training_time
from goldimask.stats import aggregate
from goldimask.tables import Table

CURVES = {
    "loss": "training loss",
    "eval_loss": "held-out loss",
    "ce": "unweighted cross-entropy",
    "n_eff_ratio": "effective share of targets",
    "gain_positive": "share of targets the reveal helped",
    "value_vs_random": "F against a random reveal",
    "reveal_fraction": "revealed share of candidates",
}
PHASES = ("corrupt", "probe", "select", "train", "weigh")
MANY = 40  # runs, beyond which tables and figures with a line for each run are made only if named


@dataclass(frozen=True)
class Report:
    """Everything a report shows, before any format."""

    title: str
    sources: tuple[Source, ...]
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    notes: tuple[str, ...] = ()


def make_report(
    sources: Sequence[Source],
    studies: Mapping[str, Any],
    title: str = "Runs",
    choices: Choices | None = None,
    kinds: Sequence[str] = (ALL,),
    drawn: Sequence[str] = (ALL,),
) -> Report:
    """Collect the tables and figures of some runs and of results of studies."""
    choices = choices or Choices()
    many = len(sources) > MANY
    named = wanted("--tables", kinds, TABLES, PER_RUN if many else ())
    shown = wanted("--figures", drawn, FIGURES, ("training",) if many else ())
    found = compare_sources(sources, choices)
    points = threshold_points(sources, choices)
    timed = training_time([s.run for s in sources if s.run])
    tables = [
        *(
            t
            for kind, make in (("runs", overview), ("recipes", recipe_table))
            if kind in named
            for t in make(sources)
        ),
        *(t for t in result_tables(found) if base_kind(t.name) in named),
        *ablation_tables(found, named),
    ]
    figures: list[Figure] = list(metric_figures(sources)) if "training" in shown else []
    for kind, suffix, panels in grouped(found):
        last = f"{'' if kind == 'main' else f'-{kind}'}{suffix}"
        parts = parts_of(panels)
        made: list[Table | None] = []
        if "paired" in named:
            made.append(paired_table(parts, f"paired{last}", "Paired differences", panels[0].way))
        if "mcnemar" in named:
            made.append(mcnemar_table(against_strongest(panels), f"mcnemar{last}", panels[0].way))
        if "ablations" in named:
            title_ = "Ablations against GoldiMask-D"
            some = ablation_parts(panels)
            made.append(paired_table(some, f"ablations{last}", title_, panels[0].way))
        tables += [t for t in made if t]
        figure = paired_figure(parts, f"paired{last}") if "paired" in shown else None
        figures += [figure] if figure else []
    tables += rates_table(found) if "rates" in named else []
    tables += threshold_tables(swept(points), named)
    if "decoding" in named:
        tables += decoding_tables(sources, points)
    if "frontier" in named:
        tables += frontier_tables(sources, swept(points))
    for kind, make in (
        ("supervision", supervision_table),
        ("evaluation", evaluation_table),
        ("published", published_table),
        ("cost", cost_table),
    ):
        tables += make(sources) if kind in named else []
    tables += [timed] if timed.rows and "time" in named else []
    figures += threshold_figures(swept(points), sources) if "steps" in shown else []
    for name, value in studies.items():
        figures += eligibility_figures(name, value)
        tables += tables_of(name, name, value)
    return Report(
        title=title,
        sources=tuple(sources),
        tables=tuple(tables),
        figures=tuple(figures),
        comparisons=tuple(found),
        notes=tuple(notes_of(sources)),
    )


def notes_of(sources: Sequence[Source]) -> Iterator[str]:
    """What is missing."""
    for s in sources:
        if torn := s.torn:
            yield f"{s.label}: {torn} unreadable lines of metrics left out"
    for found in unfinished_trials([s for s in sources if s.outcomes]):
        yield said(*found)


def wanted(
    option: str, given: Sequence[str], known: Mapping[str, str], not_all: Collection[str]
) -> list[str]:
    """The kinds that are named; `all` stands for all but those that are too long here."""
    for name in given:
        if name not in (ALL, *known):
            raise GoldimaskError(f"{option}: '{name}'; {nearest(name, [ALL, *known])}")
    every = [k for k in known if k not in not_all] if ALL in given else []
    return [*every, *(k for k in given if k != ALL)]


def base_kind(name: str) -> str:
    """The kind of a results table: `main-2` -> `main`, `code-fixed` -> `code`."""
    return name.split("-")[0]


def against_strongest(panels: Sequence[Comparison]) -> Parts:
    """Only the pairs with the strongest baseline, or with what all were set against."""
    return {
        c.panel: [p for p in c.pairs if p.first == (c.results.strongest or c.pairs[0].first)]
        for c in panels
        if c.pairs
    }


# --- tables ---------------------------------------------------------------------------------------


def overview(sources: Sequence[Source]) -> Iterator[Table]:
    """One row per training."""
    keys = ("steps", "examples", "eval_loss_first", "eval_loss_best", "eval_loss_last")
    rows = tuple(
        (s.label, s.method, s.run.seed, *(with_error(s.facts, k) for k in keys))
        for s in sources
        if s.run
    )
    columns = ("run", "method", "seed", "steps", "examples", "held-out first", "best", "last")
    if rows:
        yield Table("runs", "Runs", columns, rows, left=2)


def with_error(facts: Mapping[str, Any], key: str) -> Any:
    """A fact, with its standard error where it has one."""
    error = facts.get(f"{key}_se")
    return facts.get(key) if error is None else f"{facts[key]:.4g} ± {error:.2g}"


def recipe_table(sources: Sequence[Source]) -> Iterator[Table]:
    """Keys in which the recipes differ."""
    trained = [s for s in sources if s.run]
    recipes = [flat(listed(s.run.recipe)) for s in trained if s.run]
    if len(recipes) < 2:
        return
    keys = list(dict.fromkeys(k for r in recipes for k in r))
    rows = [(k, *("–" if k not in r else str(r[k]) for r in recipes)) for k in keys]
    changed = tuple(row for row in rows if len(set(row[1:])) > 1)
    columns = ("key", *(s.label for s in trained))
    note = f"{len(rows) - len(changed)} other keys are equal."
    yield Table("recipes", "Recipe differences", columns, changed, len(columns), note)


def evaluation_table(sources: Sequence[Source]) -> Iterator[Table]:
    """Every task, length, sampling seed and way of decoding; a column says what differs."""
    found = [(s, x) for s in sources for x in aggregate(s.outcomes, samples=own_samples)]
    ways, seeds = {x.decoding for _, x in found}, {x.seed for _, x in found}
    rows = tuple(
        (
            *(s.label, x.task, *([x.decoding.label] if len(ways) > 1 else []), x.length),
            *([x.seed] if len(seeds) > 1 else []),
            *(x.n, percent(x.accuracy), f"{percent(x.low)}–{percent(x.high)}", percent(x.solved)),
            *(x.metric, x.unparsable, round(x.steps, 2), round(x.seconds, 3)),
        )
        for s, x in found
    )
    columns = (
        *("run", "task", *(["decoding"] if len(ways) > 1 else []), "length"),
        *(["seed"] if len(seeds) > 1 else []),
        *("n", "accuracy %", "95 %", "solved %"),
        *("metric", "unparsable", "mean steps", "seconds"),
    )
    if rows:
        note = "" if len(ways) > 1 else found[0][1].decoding.label
        yield Table("evaluation", "Evaluation", columns, rows, 3 if len(ways) > 1 else 2, note)


def published_table(sources: Sequence[Source]) -> Iterator[Table]:
    """Published scores of the untuned models beside the measured ones."""
    rows = []
    for s in (s for s in sources if s.run is None):
        for b in beside(s.backbone, aggregate(s.outcomes, samples=own_samples)):
            measured = f"{percent(b.measured)} ({percent(b.low)}–{percent(b.high)})"
            where = "inside" if b.inside else "outside"
            what = "; ".join(b.differs) or "nothing"
            cells = (b.row.task, b.length, b.row.source, b.row.score, measured, where, what)
            rows.append((s.label, *cells))
    used = dict.fromkeys(row[3] for row in rows)
    note = ". ".join(f"{x}: {published_sources()[x]}" for x in used)
    columns = (
        "model",
        "task",
        "length",
        "source",
        "published %",
        "measured % (95 %)",
        "",
        "differs",
    )
    if rows:
        yield Table("published", "Published scores beside ours", columns, tuple(rows), 2, note)


def percent(x: float) -> float:
    return round(100 * x, 1)


def cost_table(sources: Sequence[Source]) -> Iterator[Table]:
    """Mean seconds of each phase of a micro-batch, and their sum against the first run's."""
    trained = [s for s in sources if s.run]
    means = [{p: logged_mean(s, f"seconds/{p}") for p in PHASES} for s in trained]
    totals = [sum(x for x in m.values() if x is not None) for m in means]
    if not any(totals):
        return
    rows = tuple(
        (s.label, *(m[p] for p in PHASES), total or None, total / totals[0] if totals[0] else None)
        for s, m, total in zip(trained, means, totals, strict=True)
    )
    columns = ("run", *PHASES, "sum", f"against {trained[0].label}")
    note = (
        "Seconds per micro-batch, mean over the log; without the backward pass and the optimiser."
    )
    yield Table("cost", "Cost per phase", columns, rows, note=note)


def logged(source: Source, key: str) -> list[tuple[float, float]]:
    """(step, value) of a logged measure."""
    return [
        (m.step, float(value))
        for m in source.metrics
        if isinstance(value := m.values.get(key), int | float)
    ]


def logged_mean(source: Source, key: str) -> float | None:
    values = [value for _, value in logged(source, key)]
    return sum(values) / len(values) if values else None


# --- figures ------------------------------------------------------------------------------------


def metric_figures(sources: Sequence[Source]) -> Iterator[Figure]:
    """One figure per logged measure that any run has."""
    for key, title in CURVES.items():
        lines = tuple(
            Line(s.label, tuple(points), s.method) for s in sources if (points := logged(s, key))
        )
        if lines:
            yield Figure(key, title, (Chart(title, "step", title, lines),))


def eligibility_figures(name: str, value: Mapping[str, Any]) -> Iterator[Figure]:
    """Threshold precision and oracle-safe parallelism against the threshold, per model."""
    models = value.get("models")
    if not isinstance(models, Mapping):
        return
    for key, title in (("precision", "threshold precision"), ("oracle_safe", "oracle-safe tokens")):
        lines = tuple(
            Line(model, points, look="both")
            for model, rows in models.items()
            if isinstance(rows, list)
            and (points := tuple((r["tau"], r[key]) for r in rows if r.get(key) is not None))
        )
        if lines:
            yield Figure(f"{name}-{key}", title, (Chart(title, "threshold", title, lines),))
