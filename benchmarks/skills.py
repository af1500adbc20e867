"""What tuning taught and what it kept: campaigns of `goldimask compare skills`.

    python benchmarks/skills.py runs/skills [--to goldimask-d,random-floor]
    python benchmarks/skills.py 0=runs/skills-0 10=runs/skills 30=runs/skills-30 --figure figures

    taught, kept   mean over the tasks of a role (`goldimask/tiny/skills.py`), in points
    to the base, to Vanilla, to the strongest baseline by the mean over tasks and bases: differences
                   on the same problems, 95 % bootstrap over bases, seeds and problems
    share          of the targets that carry the loss, n_eff / n

With labels, the per cent of wrong results, the campaigns are the points of a curve over them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer

from goldimask.bootstrap import Difference
from goldimask.console import emit
from goldimask.figures import Bar, Chart, Figure, Intervals, Line, write
from goldimask.report.comparison import Choices, Comparison, compare_sources
from goldimask.report.pairs import aligned, interval, joined
from goldimask.report.sources import read_sources
from goldimask.tables import Cell, Table, markdown, terminal
from goldimask.tiny.skills import REPLAYED, ROLES, TAUGHT

BASE, VANILLA = "base", "vanilla"
TAU = 0.9  # the threshold of the campaign


def read(*words: str) -> list[Comparison]:
    """The finished cells of a campaign, or runs; a comparison for each base."""
    sources, _ = read_sources(words)
    if not sources:
        raise typer.BadParameter(f"{', '.join(words)}: no finished cell or run")
    return compare_sources(sources, Choices(allow_incomplete=True, tau=TAU))


def of_role(panel: Comparison, role: str) -> list[str]:
    """Its tasks; `-val` are the problems that settings are chosen on, the others later draws."""
    ends = ("", "-val", "-new", "-newer")
    names = {f"tiny-{n}{end}" for n in ROLES.get(role, TAUGHT + REPLAYED) for end in ends}
    return [t for t in panel.tasks if t in names]


def accuracy(panel: Comparison, row: str, role: str) -> float:
    """Mean over tasks, each over all answers of all seeds."""
    found = []
    for task in of_role(panel, role):
        credit = [o.credit for a in panel.rows[row] for o in a.at(task)]
        found.append(sum(hits for hits, _ in credit) / sum(of for _, of in credit))
    return 100 * mean(found)


def steps(panel: Comparison, row: str) -> float:
    found = ([o.steps for a in panel.rows[row] for o in a.at(t)] for t in of_role(panel, ""))
    return mean(map(mean, found))


def difference(
    panels: list[Comparison], first: str, second: str, role: str
) -> tuple[Difference, Difference] | None:
    """Second minus first: points of accuracy, and relative steps."""
    if first == second or any(x not in p.rows for p in panels for x in (first, second)):
        return None
    sides = [aligned(p.rows, first, second) for p in panels]
    pair = joined(sides, first, second, of_role(panels[0], role))
    return (pair.found.average, pair.found.steps) if pair else None


def share(panels: list[Comparison], row: str) -> float | None:
    """Mean n_eff / n of what the runs logged."""
    found = [
        x.values["n_eff_ratio"]
        for p in panels
        for a in p.rows[row]
        for x in a.source.metrics
        if "n_eff_ratio" in x.values
    ]
    return mean(found) if found else None


def summary(panels: list[Comparison], to: Sequence[str] = ()) -> dict[str, Any]:
    """Every row of all bases together; `to` names more rows to hold them against."""
    rows = [r for r in panels[0].rows if all(r in p.rows for p in panels)]
    level = {r: mean(accuracy(p, r, "") for p in panels) for r in rows}
    rivals = [r for r in rows if r in panels[0].baselines and r != VANILLA]
    strongest = max(rivals, key=lambda r: level[r], default=VANILLA)
    out: dict[str, Any] = {"strongest": strongest, "to": list(to), "rows": {}}
    for row in rows:
        line: dict[str, Any] = {"mean": level[row], "share": share(panels, row)}
        line |= {role: mean(accuracy(p, row, role) for p in panels) for role in ROLES}
        line["steps"] = mean(steps(p, row) for p in panels)
        line["bases"] = {p.panel: accuracy(p, row, "") for p in panels}
        for other in (BASE, VANILLA, strongest, *to):
            for role in ("mean", *ROLES):
                found = difference(panels, other, row, role)
                if found:
                    line[f"{role} to {other}"] = found[0]
                    line.setdefault(f"steps to {other}", found[1])  # of all tasks, which are first
        out["rows"][row] = line
    return out


def table_of(found: dict[str, Any]) -> Table:
    """One line a row."""
    others = (VANILLA, found["strongest"], *found["to"])
    pairs = [f"{role} to {BASE}" for role in ROLES]
    pairs += [*dict.fromkeys(f"mean to {other}" for other in others), f"steps to {VANILLA}"]
    rows: list[tuple[Cell, ...]] = []
    for name, line in found["rows"].items():
        plain = (f"{line[key]:.1f}" for key in ("taught", "kept", "mean", "steps"))
        apart = (interval(line[key]) if key in line else None for key in pairs)
        rows.append((name, *plain, *apart, f"{line['share']:.2f}" if line["share"] else None))
    columns = ("method", "taught", "kept", "mean", "steps", *pairs, "share")
    return Table("skills", "What was taught and what was kept", columns, tuple(rows))


def bars(found: dict[str, Any]) -> Figure:
    """Gains over the base by role, and steps to Vanilla's."""
    wanted = {
        f"taught to {BASE}": "what is taught: points to the base",
        f"kept to {BASE}": "what is kept: points to the base",
        f"steps to {VANILLA}": "decoding steps: % to Vanilla's",
    }
    charts = []
    names = [row for row in found["rows"] if row != BASE]
    for key, title in wanted.items():
        lines = {row: found["rows"][row].get(key, Difference(0.0, 0.0, 0.0)) for row in names}
        values = (Bar(r, 100 * d.value, 100 * d.low, 100 * d.high) for r, d in lines.items())
        charts.append(Intervals(title, tuple(values)))
    return Figure("skills", "Gains over the base, and decoding steps", tuple(charts))


def curve(named: dict[str, dict[str, Any]], rows: list[str]) -> Figure:
    """Gain over the base, by role, over the per cent of wrong results."""
    charts = []
    for role in ("mean", *ROLES):
        key = f"{role} to {BASE}"
        lines = []
        for row in rows:
            at = [(float(x), f["rows"][row][key]) for x, f in named.items() if row in f["rows"]]
            points = tuple((x, 100 * d.value) for x, d in at)
            within = tuple((100 * d.low, 100 * d.high) for _, d in at)
            lines.append(Line(row, points, look="both", within=within, dashed=row == VANILLA))
        title = {"mean": "all four tasks", "taught": "what is taught", "kept": "what is kept"}[role]
        axes = ("wrong results (%)", "points above the base")
        charts.append(Chart(title, *axes, tuple(lines), zero=True))
    return Figure("skills-noise", "Gain over the base by the share of wrong results", tuple(charts))


def main(
    campaigns: Annotated[list[str], typer.Argument(help="FOLDER, or PER_CENT=FOLDER for a curve")],
    rows: Annotated[str, typer.Option(help="of a curve, by commas")] = "",
    to: Annotated[str, typer.Option(help="further rows to hold the others against")] = "",
    figure: Annotated[Path | None, typer.Option(help="folder of the figure")] = None,
    as_markdown: Annotated[bool, typer.Option("--markdown")] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """What tuning taught and what it kept."""
    split = [word.rpartition("=") for word in campaigns]
    named = {label or folder: summary(read(folder), named_rows(to)) for label, _, folder in split}
    plain = {
        label: found
        | {"rows": {r: {k: whole(v) for k, v in x.items()} for r, x in found["rows"].items()}}
        for label, found in named.items()
    }
    text = []
    for label, found in named.items():
        made = table_of(found)
        head = f"{label}; strongest baseline {found['strongest']}"
        text.append(f"{head}\n{markdown(made) if as_markdown else terminal(made)}")
    if as_markdown:
        typer.echo("\n".join(text))  # whole lines, whatever the terminal's width
    else:
        emit(plain, as_json, "\n".join(text))
    if figure and len(named) == 1:
        write(bars(*named.values()), figure)
    elif figure:
        shared = [r for r in next(iter(named.values()))["rows"] if r != BASE]
        wanted = named_rows(rows) or shared
        write(curve(named, [r for r in wanted if r in shared]), figure)


def named_rows(text: str) -> list[str]:
    return text.split(",") if text else []


def whole(value: Any) -> Any:
    """For JSON."""
    return [value.value, value.low, value.high] if isinstance(value, Difference) else value


if __name__ == "__main__":
    typer.run(main)
