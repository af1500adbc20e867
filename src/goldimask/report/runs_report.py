"""The report of some runs: tables, figures, samples, links; `runs_page` writes it.

The first run is the one whose cost the others are measured by. Every number comes from the runs'
own files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldimask.eval.published import beside
from goldimask.eval.published import sources as published_sources
from goldimask.eval.tasks import own_samples
from goldimask.figures import Chart, Figure, Line
from goldimask.report.comparison import (
    Choices,
    Comparison,
    compare_sources,
    pair_tables,
    result_tables,
)
from goldimask.report.json_tables import flat, tables_of
from goldimask.report.sources import Source, listed
from goldimask.report.threshold_tables import threshold_figures, threshold_points, threshold_tables
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
SAMPLES = 4  # per run, task and verdict
MOST = 60  # samples of a report
TEXT = 1500  # characters of a sample


@dataclass(frozen=True)
class Report:
    """Everything a report shows, before any format."""

    title: str
    tables: tuple[Table, ...]
    training: tuple[Figure, ...] = ()  # logged values by step
    figures: tuple[Figure, ...] = ()  # of evaluations and studies
    comparisons: tuple[Comparison, ...] = ()
    samples: tuple[Mapping[str, Any], ...] = ()
    unshown: int = 0  # further samples
    pages: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def make_report(
    sources: Sequence[Source],
    studies: Mapping[str, Any],
    title: str = "Runs",
    choices: Choices | None = None,
) -> Report:
    """Collect the tables and figures of some runs and of results of studies."""
    choices = choices or Choices()
    found = compare_sources(sources, choices)
    points = threshold_points(sources, choices)
    tables = [*overview(sources), *recipe_table(sources)]
    tables += [*result_tables(found), *pair_tables(found)]
    tables += [
        *evaluation_table(sources),
        *published_table(sources),
        *threshold_tables(points),
        *cost_table(sources),
    ]
    timed = training_time([s.run for s in sources if s.run])
    tables += [timed] if timed.rows else []
    figures = threshold_figures(points, sources)
    for name, value in studies.items():
        figures += eligibility_figures(name, value)
        tables += tables_of(name, name, value)
    samples, unshown = sample_rows(sources)
    return Report(
        title=title,
        tables=tuple(tables),
        training=tuple(metric_figures(sources)),
        figures=tuple(figures),
        comparisons=tuple(found),
        samples=samples,
        unshown=unshown,
        pages=tuple(page for s in sources for page in s.pages),
        notes=tuple(note for s in sources for note in s.notes()),
    )


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


# --- figures and samples --------------------------------------------------------------------------


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


def sample_rows(sources: Sequence[Source]) -> tuple[tuple[dict[str, Any], ...], int]:
    """The first correct and wrong samples of every run and task; and how many are not shown."""
    rows, counts, total = [], {}, 0
    for source in sources:
        for o in sorted(source.outcomes, key=lambda o: (o.task, o.length, o.index)):
            total += 1
            key = (source.label, o.task, o.correct)
            counts[key] = counts.get(key, 0) + 1
            if counts[key] > SAMPLES or len(rows) >= MOST:
                continue
            cut = f"\n… {len(o.output) - TEXT} more characters" if len(o.output) > TEXT else ""
            rows.append(
                {
                    **{"run": source.label, "task": o.task, "id": o.item, "correct": o.correct},
                    **{"extracted": o.extracted, "steps": o.steps},
                    "output": o.output[:TEXT] + cut,
                }
            )
    return tuple(rows), total - len(rows)
