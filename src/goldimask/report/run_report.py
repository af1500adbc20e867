"""The report of one or many runs: tables, figures, samples, links.

    Report = tables + figures + samples + links  ->  HTML, PDF/PNG/CSV/LaTeX files, Markdown, LaTeX

The first run is the one the others are compared with. Every number comes from the runs' own files.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from goldimask.files import write_text
from goldimask.report.figures import Figure, Line, figures_section, write_figure
from goldimask.report.page import section, write_page
from goldimask.report.runs import RunData, differences
from goldimask.report.tables import Table, table_section, tables_of, to_csv, to_latex, to_markdown

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
TEXT = 1500  # characters of a sample


@dataclass(frozen=True)
class Report:
    """Everything a report shows, before any format."""

    title: str
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...]
    samples: tuple[Mapping[str, Any], ...] = ()
    pages: tuple[Path, ...] = ()
    notes: tuple[str, ...] = ()


def make_report(runs: Sequence[RunData], extras: Mapping[str, Any], title: str = "Runs") -> Report:
    """Collect the tables and figures of some runs and of sweep or study results."""
    tables = [t for t in (overview(runs), recipe_table(runs), results_table(runs)) if t]
    tables += paired_tables(runs)
    tables += [t for t in (cost_table(runs),) if t]
    figures = metric_figures(runs)
    points, saved = threshold_parts(runs)
    figures += points
    tables += saved
    for name, value in extras.items():
        if isinstance(value.get("points"), list):
            figures += sweep_figures(name, value["points"])
        figures += eligibility_figures(name, value)
        tables += tables_of(name, name, value)
    notes = [f"{r.name}: {r.torn} unreadable lines of metrics left out" for r in runs if r.torn]
    pages = tuple(page for r in runs for page in r.pages)
    chosen, left = sample_rows(runs)
    if left:
        notes.append(f"{left} more samples are in the runs' eval folders")
    return Report(title, tuple(tables), tuple(figures), chosen, pages, tuple(notes))


def overview(runs: Sequence[RunData]) -> Table | None:
    """One row per run."""
    if not runs:
        return None
    keys = ("steps", "examples", "eval_loss_first", "eval_loss_best", "eval_loss_last")
    rows = tuple(
        (r.name, r.method, r.manifest.get("seed", r.recipe.get("seed")), *map(r.manifest.get, keys))
        for r in runs
    )
    columns = ("run", "method", "seed", "steps", "examples", "held-out first", "best", "last")
    return Table("runs", "Runs", columns, rows, left=2)


def recipe_table(runs: Sequence[RunData]) -> Table | None:
    """Keys in which the recipes differ."""
    if len(runs) < 2:
        return None
    rows, equal = differences(runs)
    columns = ("key", *(r.name for r in runs))
    note = f"{equal} other keys are equal."
    return Table("recipes", "Recipe differences", columns, tuple(rows), len(columns), note)


def results_table(runs: Sequence[RunData]) -> Table | None:
    """Accuracy and steps per task, length, sampling seed and way of decoding."""
    from goldimask.eval.summary import shown_names

    rows = [
        (
            *(r.name, names[x.task, x.decoding], x.length, x.n, percent(x.accuracy)),
            f"{percent(x.low)}–{percent(x.high)}",
            *(percent(x.solved), x.unparsable, round(x.steps, 2)),
        )
        for r in runs
        for names in (shown_names(r.results),)
        for x in r.results
    ]
    if not rows:
        return None
    columns = ("run", "task", "length", "n", "accuracy %", "95 %", "solved %", "unparsable")
    return Table("results", "Evaluation", (*columns, "mean steps"), tuple(rows), left=2)


def percent(x: float) -> float:
    return round(100 * x, 1)


def paired_tables(runs: Sequence[RunData]) -> list[Table]:
    """Every evaluated run against the first one, on the problems both hold."""
    evaluated = [r for r in runs if r.results]
    if len(evaluated) < 2:
        return []
    from goldimask.errors import GoldimaskError
    from goldimask.eval.summary import compare_pair, shown_names

    base, rows = evaluated[0], []
    for other in evaluated[1:]:
        names = shown_names(other.results)
        for task, length in dict.fromkeys(
            (names[x.task, x.decoding], x.length) for x in other.results
        ):
            try:
                found, _ = compare_pair(base.samples, other.samples, task, length)
            except GoldimaskError:  # a task that only one of them was evaluated on
                continue
            interval = f"{100 * found.low:+.1f} to {100 * found.high:+.1f}"
            rows.append(
                (
                    *(other.name, task, length, found.n, round(100 * found.difference, 1)),
                    *(interval, found.only_first, found.only_second, float(f"{found.p:.3g}")),
                )
            )
    columns = ("run", "task", "length", "n", "points", "95 %", "lost", "won", "p (McNemar)")
    title = f"Paired against {base.name}"
    return [Table("paired", title, columns, tuple(rows), left=2)] if rows else []


def cost_table(runs: Sequence[RunData]) -> Table | None:
    """Mean seconds of each phase of a micro-batch, and their sum against the first run's."""
    means = [{p: mean(r, f"seconds/{p}") for p in PHASES} for r in runs]
    totals = [sum(x for x in m.values() if x is not None) for m in means]
    if not any(totals):
        return None
    rows = tuple(
        (r.name, *(m[p] for p in PHASES), total or None, total / totals[0] if totals[0] else None)
        for r, m, total in zip(runs, means, totals, strict=True)
    )
    columns = ("run", *PHASES, "sum", f"against {runs[0].name}")
    note = (
        "Seconds per micro-batch, mean over the log; without the backward pass and the optimiser."
    )
    return Table("cost", "Cost per phase", columns, rows, note=note)


def mean(run: RunData, key: str) -> float | None:
    found = [float(m[key]) for m in run.metrics if isinstance(m.get(key), int | float)]
    return sum(found) / len(found) if found else None


def metric_figures(runs: Sequence[RunData]) -> list[Figure]:
    """One figure per logged measure that any run has."""
    figures = []
    for key, title in CURVES.items():
        lines = []
        for place, run in enumerate(runs):
            logged = [m for m in run.metrics if isinstance(m.get(key), int | float)]
            if logged:
                points = tuple((m["step"], float(m[key])) for m in logged)
                lines.append(Line(run.name, points, place))
        if lines:
            figures.append(Figure(key, title, "step", title, tuple(lines)))
    return figures


def threshold_parts(runs: Sequence[RunData]) -> tuple[list[Figure], list[Table]]:
    """Accuracy against steps where runs were decoded at several thresholds, and steps saved."""
    from dataclasses import asdict, astuple

    from goldimask.eval.thresholds import is_baseline, reductions, sweep_points

    points = sweep_points(
        {r.name: r.samples for r in runs}, [r.name for r in runs if is_baseline(r.folder)]
    )
    if len({p.tau for p in points}) < 2:
        return [], []
    columns = ("run", "task", "length", "tau", "against", "steps", "its steps", "saved", "points")
    rows = tuple(
        (*astuple(r)[:5], *(round(x, 3) for x in astuple(r)[5:9]), r.n) for r in reductions(points)
    )
    note = "Share of decoding steps saved against the most accurate baseline at each threshold."
    tables = [Table("steps-saved", "Steps saved", (*columns, "n"), rows, 2, note)] if rows else []
    return sweep_figures("sweep", [asdict(p) for p in points]), tables


def sweep_figures(name: str, points: Sequence[Mapping[str, Any]]) -> list[Figure]:
    """Accuracy against decoding steps, one figure per task and length."""
    figures = []
    for task, length in dict.fromkeys((p["task"], p["length"]) for p in points):
        mine = [p for p in points if (p["task"], p["length"]) == (task, length)]
        lines = tuple(
            Line(
                run,
                tuple(
                    (p["steps"], 100 * p["accuracy"])
                    for p in sorted(mine, key=lambda p: p["tau"])
                    if p["run"] == run
                ),
            )
            for run in dict.fromkeys(p["run"] for p in mine)
        )
        title = f"{task}, length {length}: accuracy against steps"
        figures.append(
            Figure(
                f"{name}-{task}-{length}", title, "mean steps", "accuracy %", lines, markers=True
            )
        )
    return figures


def eligibility_figures(name: str, value: Mapping[str, Any]) -> list[Figure]:
    """Threshold precision and oracle-safe parallelism against the threshold, per model."""
    models = value.get("models")
    if not isinstance(models, Mapping):
        return []
    figures = []
    for key, title in (("precision", "threshold precision"), ("oracle_safe", "oracle-safe tokens")):
        lines = tuple(
            Line(model, points)
            for model, rows in models.items()
            if isinstance(rows, list)
            and (points := tuple((r["tau"], r[key]) for r in rows if r.get(key) is not None))
        )
        if lines:
            figures.append(Figure(f"{name}-{key}", title, "threshold", title, lines, markers=True))
    return figures


def sample_rows(runs: Sequence[RunData]) -> tuple[tuple[dict[str, Any], ...], int]:
    """The first correct and wrong samples of every run and task; and how many are not shown."""
    rows, counts, total = [], {}, 0
    for run in runs:
        for s in sorted(run.samples, key=lambda s: (s.task, s.length, s.index)):
            total += 1
            key = (run.name, s.task, s.correct)
            counts[key] = counts.get(key, 0) + 1
            if counts[key] > SAMPLES or len(rows) >= 60:
                continue
            cut = f"\n… {len(s.output) - TEXT} more characters" if len(s.output) > TEXT else ""
            rows.append(
                {
                    **{"run": run.name, "task": s.task, "id": s.item, "correct": s.correct},
                    **{"extracted": s.extracted, "steps": s.steps},
                    "output": s.output[:TEXT] + cut,
                }
            )
    return tuple(rows), total - len(rows)


def write_files(report: Report, folder: Path) -> list[Path]:
    """Each figure as PDF and PNG, each table as CSV and LaTeX."""
    files = [path for figure in report.figures for path in write_figure(safe(figure), folder)]
    for table in map(safe, report.tables):
        files.append(write_text(folder / f"{table.name}.csv", to_csv(table)))
        files.append(write_text(folder / f"{table.name}.tex", to_latex(table) + "\n"))
    return files


def safe(part: Any) -> Any:
    """The same figure or table under a name that is a file name everywhere."""
    from dataclasses import replace

    name = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "-" for c in part.name)
    return replace(part, name=name or "unnamed")


def write_html(report: Report, path: Path, files: Sequence[Path] = ()) -> Path:
    """The page, with links to the files beside it and to the runs' own pages."""
    parts = [table_section(t) for t in report.tables[:1]]
    curves = [f for f in report.figures if not f.markers]
    sweeps = [f for f in report.figures if f.markers]
    rest = [table_section(t) for t in report.tables[1:]]
    if curves:
        parts.append(figures_section("Training", curves))
    parts += rest
    if sweeps:
        parts.append(figures_section("Sweeps and studies", sweeps))
    if report.samples:
        data = {"samples": list(report.samples)}
        note = "The first correct and wrong answers of every run and task."
        parts.append(section("samples", "Samples", data, note))
    if report.notes:
        parts.append(section("prose", "Notes", {"paragraphs": list(report.notes)}))
    for title, paths in (("Pages", report.pages), ("Files", files)):
        if paths:
            parts.append(section("links", title, {"links": [link(p, path) for p in paths]}))
    return write_page(path, report.title, parts)


def link(target: Path, page: Path) -> dict[str, str]:
    """A relative address, so that a moved folder keeps working."""
    relative = os.path.relpath(target.resolve(), page.resolve().parent)
    return {"href": quote(Path(relative).as_posix()), "text": relative}


def markdown(report: Report, files: Sequence[Path], path: Path) -> str:
    """Tables in full, figures as images."""
    images = [f for f in files if f.suffix == ".png"]
    shown = [f"![{f.stem}]({link(f, path)['href']})" for f in images]
    parts = [f"# {report.title}", *map(to_markdown, report.tables), *shown, *report.notes]
    return "\n\n".join(p.strip() for p in parts) + "\n"


def latex_document(report: Report, files: Sequence[Path], path: Path) -> str:
    """A document that compiles: every table, every figure."""
    from goldimask.report.tables import latex

    images = [link(f, path)["href"] for f in files if f.suffix == ".pdf"]
    figures = [rf"\includegraphics[width=.7\linewidth]{{{i}}}\par\medskip" for i in images]
    return "\n".join(
        [
            *(r"\documentclass{article}", r"\usepackage{booktabs,graphicx}"),
            *(rf"\title{{{latex(report.title)}}}", r"\begin{document}", r"\maketitle"),
            *(to_latex(safe(t)) for t in report.tables),
            *(r"\begin{center}", *figures, r"\end{center}", r"\end{document}", ""),
        ]
    )
