"""What the studies found, as tables and figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from goldimask.figures import Chart, Figure, Line
from goldimask.tables import Table

Result = dict[str, Any]


def study_tables(result: Result) -> list[Table]:
    """The tables of one study."""
    makers: dict[str, Callable[[Result], list[Table]]] = {
        "budget": budget_tables,
        "response": response_tables,
        "support": support_tables,
        "quality": quality_tables,
        "benefit": benefit_tables,
        "eligibility": eligibility_tables,
    }
    return makers[result["study"]](result)


def study_figure(result: Result) -> Figure:
    """The figure of one study."""
    makers: dict[str, Callable[[Result], list[Chart]]] = {
        "budget": budget_charts,
        "response": response_charts,
        "support": support_charts,
        "quality": quality_charts,
        "benefit": benefit_charts,
        "eligibility": eligibility_charts,
    }
    name = result["study"]
    return Figure(name, name, tuple(makers[name](result)))


FITS = (
    "A p^a (1-p)^b, fitted to the profile. edge: the fitted curve has no interior peak. interior: "
    "the best bin is above the first and the last one, 95 % intervals without zero."
)

CHANGES = "net: gained - lost, with a 95 % interval over references."


def signed(x: float | None, digits: int = 3) -> str:
    return "-" if x is None else f"{x:+.{digits}f}"


def within(found: Sequence[float | None], digits: int = 3) -> str:
    """value [low, high]"""
    value, low, high = found
    return f"{signed(value, digits)} [{signed(low, digits)}, {signed(high, digits)}]"


def budget_tables(r: Result) -> list[Table]:
    rows = []
    for rule, found in r["rules"].items():
        cells = [rule]
        for name in ("delta_nll", "delta_p"):
            x = found[name]
            sd = "" if x["sd"] is None else f" ± {x['sd']:.3f}"
            cells.append(f"{x['mean']:+.3f}{sd}")
        for name in ("delta_nll", "delta_p"):
            p = r["paired"].get(rule, {}).get(name)
            cells.append("-" if p is None else within((p["value"], p["low"], p["high"])))
        rows.append(tuple(cells))
    title = f"Study 1: learning under a fixed supervision budget, {r['backbone']} on {r['corpus']}"
    columns = ("rule", "ΔNLL", "Δp", "ΔNLL - uniform", "Δp - uniform")
    note = (
        f"Rows [{r['rows'][0]}, {r['rows'][1]}), {r['steps'][-1]} steps of {r['batch_size']}, "
        f"{r['k']} supervised positions each; {r['heldout']} held-out examples, {r['targets']} "
        f"targets; {len(r['seeds'])} seeds (mean ± SD); 95 % intervals over examples and seeds."
    )
    found = [Table(r["study"], title, columns, tuple(rows), note=note)]
    if len(r["steps"]) > 1:
        course = tuple(
            (rule, str(step), signed(nll), signed(p))
            for rule, line in r["course"].items()
            for step, nll, p in [(0, 0.0, 0.0), *line]
        )
        columns = ("rule", "step", "ΔNLL", "Δp")
        found.append(Table("budget-steps", f"{title}, on the way", columns, course))
    return found


def response_tables(r: Result) -> list[Table]:
    bins = r["pooled"]["bins"]
    rows = [
        (
            f"{b['from']:g}-{b['to']:g}",
            str(b["targets"]),
            signed(b["dp"]),
            "-" if b["interval"] is None else "[{:+.3f}, {:+.3f}]".format(*b["interval"]),
            *(signed(s["bins"][i]["dp"]) for s in r["seeds"].values()),
        )
        for i, b in enumerate(bins)
    ]
    columns = ("p1", "targets", "Δp", "95 %", *(f"seed {s}" for s in r["seeds"]))
    title = f"Study 2: context response, {r['backbone']} on {r['corpus']}"
    note = f"{r['examples']} examples, {r['draws']} draws of nested masks per example and seed."
    fits = [
        (
            name,
            "-" if found["peak"] is None else f"{found['peak']:.3f}" + " (edge)" * found["edge"],
            "-"
            if found["peak_interval"] is None
            else "[{:.3f}, {:.3f}]".format(*found["peak_interval"]),
            "-" if found["fit"] is None else f"{found['fit']['a']:.2f}, {found['fit']['b']:.2f}",
            "-" if found["heldout_r2"] is None else f"{found['heldout_r2']:.3f}",
            "yes" if found["interior"]["holds"] else "no",
        )
        for name, found in (
            ("all", r["pooled"]),
            *((f"seed {s}", x) for s, x in r["seeds"].items()),
        )
    ]
    fit_columns = ("draws", "fitted peak", "95 %", "a, b", "held-out R2", "interior")
    fit_title = f"Study 2: fits, {r['backbone']} on {r['corpus']}"
    return [
        Table("response", title, columns, tuple(rows), note=note),
        Table("response-fits", fit_title, fit_columns, tuple(fits), note=FITS),
    ]


def support_tables(r: Result) -> list[Table]:
    rows = [
        (
            x["measured"] if x["measured"] == "distance" else f"block {x['measured']}",
            x["when"],
            f"{x['from']:g}-{x['to']:g}",
            str(x["targets"]),
            f"{x['linear']:.3f}",
            f"{x['saturating']:.3f}",
            within(x["difference"]),
            f"{x['best_s0']:g}",
        )
        for x in r["rows"]
    ]
    columns = (
        *("attention of", "reveal", "t", "targets", "R2 linear", f"R2 s0 = {r['s0']:g}"),
        *("saturating - linear", "best s0"),
    )
    title = f"Study 3: support, {r['backbone']} on {r['corpus']}"
    note = f"{r['examples']} examples, {r['sets']} reveal sets, held-out within-target R2."
    return [Table(r["study"], title, columns, tuple(rows), note=note)]


def against(row: Result, name: str) -> str:
    """Difference to the random reveal, which has none to itself."""
    return "-" if row["selector"] == "random" else within(row[f"{name}_over_random"])


def quality_tables(r: Result) -> list[Table]:
    rows = [
        (
            f"block {x['layer']}",
            x["selector"],
            f"{x['value']:.3f}",
            f"{x['kept']:.2f}",
            f"{x['gain']:.3f}",
            against(x, "gain"),
            f"{x['dp']:.3f}",
            against(x, "dp"),
            f"{x['priority']:.4f}",
        )
        for x in r["rows"]
    ]
    columns = (
        *("attention of", "selector", "F", "kept/K", "gain", "gain - random"),
        *("Δp", "Δp - random", "priority"),
    )
    title = f"Selection quality, {r['backbone']} on {r['corpus']}"
    note = (
        f"{r['examples']} examples, frozen model; realised gain [Δ log p]+, Δp and priority are "
        "means over the kept targets; 95 % intervals over examples."
    )
    return [Table(r["study"], title, columns, tuple(rows), note=note)]


def benefit_tables(r: Result) -> list[Table]:
    def shown(found: Sequence[float] | None) -> str:
        return "-" if found is None else within(found, 2)

    rows = [(x["predictor"], *map(shown, (x["pairs"], x["tokens"], x["held"]))) for x in r["rows"]]
    where = f"{r['backbone']} on {r['corpus']}"
    note = (
        f"{r['examples']} examples, {r['revealed']} tokens shown alone; rank correlations within "
        "an example, share of the benefit in the best quarter; 95 % intervals over examples."
    )
    columns = ("known before", "pairs", "tokens", "of the best")
    title = f"Benefit of single tokens, {where}"
    r2 = tuple((x["from"], shown(x["r2"])) for x in r["r2"])
    return [
        Table("benefit", title, columns, tuple(rows), note=note),
        Table("benefit-r2", f"Benefit explained, held-out R2, {where}", ("from", "R2"), r2),
    ]


def eligibility_tables(r: Result) -> list[Table]:
    rows = tuple(
        (name, x["tau"], x["masked"], x["eligible"], x["oracle_safe"], x["precision"])
        for name, lines in r["models"].items()
        for x in lines
    )
    columns = ("model", "tau", "masked", "eligible", "oracle-safe", "precision")
    title = f"Per state, {r['states']} shared states of {r['references']} references"
    found = [Table("eligibility", title, columns, rows)]
    changes = tuple(
        (name, x["tau"], x["gained"], x["lost"], within((x["net"], x["low"], x["high"])))
        for name, lines in r["changes"].items()
        for x in lines
    )
    if changes:
        columns = ("model", "tau", "gained", "lost", "net")
        title = f"Correct eligibility against {next(iter(r['models']))}, per state"
        found.append(Table("eligibility-changes", title, columns, changes, note=CHANGES))
    return found


def budget_charts(r: Result) -> list[Chart]:
    """dNLL against dp, a marker per seed and a cross for the mean; upper left is better."""
    lines = []
    for rule, found in r["rules"].items():
        x, y = found["delta_nll"], found["delta_p"]
        seeds = tuple(zip(x["seeds"], y["seeds"], strict=True))
        lines.append(Line(rule, seeds, look="dots"))
        if len(seeds) > 1:
            lines += cross(rule, seeds, (x["mean"], y["mean"]))
    return [Chart(r["backbone"], "ΔNLL (lower is better)", "Δp (higher is better)", tuple(lines))]


def cross(name: str, seeds: Sequence[tuple[float, float]], at: tuple[float, float]) -> list[Line]:
    """Through the mean, from the least to the greatest of the seeds."""
    xs, ys = zip(*seeds, strict=True)
    return [
        Line(name, ((min(xs), at[1]), (max(xs), at[1])), dashed=False),
        Line(name, ((at[0], min(ys)), (at[0], max(ys))), dashed=False),
    ]


def response_charts(r: Result) -> list[Chart]:
    """The profile with intervals, the fitted curve, and the priority scaled to it."""
    found = r["pooled"]
    bins = [b for b in found["bins"] if b["interval"] is not None]
    measured = tuple((b["p"], b["dp"]) for b in bins)
    within = tuple((min(b["interval"][0], b["dp"]), max(b["interval"][1], b["dp"])) for b in bins)
    lines = [Line("measured", measured, look="dots", within=within)]
    p = np.linspace(0.001, 0.999, 300)
    if found["fit"]:
        f = found["fit"]
        lines.append(Line("fit", curve(p, f["scale"] * p ** f["a"] * (1 - p) ** f["b"])))
    top = max((y for _, y in measured), default=1.0) * 256 / 27
    lines.append(Line("p(1-p)^3, scaled", curve(p, top * p * (1 - p) ** 3), "base", dashed=True))
    peak = "" if found["peak"] is None else f", fitted peak {found['peak']:.2f}"
    title = f"{r['backbone']}{peak}"
    return [Chart(title, "initial confidence p1", "Δp after the reveal", tuple(lines))]


def curve(x: np.ndarray, y: np.ndarray) -> tuple[tuple[float, float], ...]:
    return tuple(zip(x.tolist(), y.tolist(), strict=True))


def support_charts(r: Result) -> list[Chart]:
    """R2 by block, before and after the reveal, linear dashed and saturating solid."""
    lines = []
    for when in ("before", "after"):
        for kind in ("saturating", "linear"):
            name = f"{when} the reveal, {kind}"
            points = by_layer(r["rows"], when, kind)
            lines.append(Line(name, points, when, look="both", dashed=kind == "linear"))
    y = "held-out within-target R2, t ≥ 0.5"
    return [Chart(r["backbone"], "block", y, tuple(lines), zero=True)]


def by_layer(rows: list[Result], when: str, kind: str) -> tuple[tuple[float, float], ...]:
    """Mean over the noise intervals from 0.5 on, weighted by targets."""
    points = []
    for layer in sorted({int(x["measured"]) for x in rows if x["when"] == when}):
        mine = [x for x in rows if x["measured"] == str(layer) and x["when"] == when]
        high = [x for x in mine if x["from"] >= 0.5] or mine
        total = sum(x["targets"] for x in high)
        points.append((layer, sum(x[kind] * x["targets"] for x in high) / total))
    return tuple(points)


def quality_charts(r: Result) -> list[Chart]:
    """Realised gain of the kept targets by block, one line per selector."""
    lines = []
    for name in dict.fromkeys(x["selector"] for x in r["rows"]):
        points = tuple((x["layer"], x["gain"]) for x in r["rows"] if x["selector"] == name)
        lines.append(Line(name, points, look="both", dashed=name == "random"))
    y = "mean [Δ log p]+ of kept targets"
    return [Chart(r["backbone"], "attention of block", y, tuple(lines))]


def benefit_charts(r: Result) -> list[Chart]:
    """Rank correlation with the pairs' benefit by block, F's beside it."""
    found = {x["predictor"]: x["pairs"] for x in r["rows"]}
    blocks = [(n, v) for n, v in found.items() if n.startswith("attention")]
    points = tuple((float(n.split()[-1]), v[0]) for n, v in blocks)
    spread = tuple((v[1], v[2]) for _, v in blocks)
    lines = [Line("attention", points, "goldimask", "both", within=spread)]
    ends = (points[0][0], points[-1][0])
    for name in ("F", "near"):
        lines.append(Line(name, tuple((x, found[name][0]) for x in ends), dashed=True))
    y = "rank correlation with the benefit"
    return [Chart(r["backbone"], "block", y, tuple(lines), zero=True)]


def eligibility_charts(r: Result) -> list[Chart]:
    """Oracle-safe parallelism and threshold precision against the threshold, per model."""
    charts = []
    for key, title in (("oracle_safe", "oracle-safe per state"), ("precision", "precision")):
        lines = []
        for name, rows in r["models"].items():
            points = tuple((x["tau"], x[key]) for x in rows if x[key] is not None)
            lines.append(Line(name, points, look="both"))
        charts.append(Chart(title, "threshold", title, tuple(lines)))
    return charts
