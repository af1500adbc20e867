"""Results of the studies as tables: (title, columns, rows of texts, note)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

Table = tuple[str, tuple[str, ...], list[tuple[str, ...]], str]
Result = dict[str, Any]


def study_tables(results: Sequence[Result]) -> list[Table]:
    """One table per backbone, with what is common to them."""
    makers: dict[str, Callable[[Result], list[Table]]] = {
        "budget": budget_tables,
        "response": response_tables,
        "support": support_tables,
        "quality": quality_tables,
    }
    return [table for r in results for table in makers[r["study"]](r)]


FITS = (
    "A p^a (1-p)^b, fitted to the profile. edge: the fitted curve has no interior peak. interior: "
    "the best bin is above the first and the last one, 95 % intervals without zero."
)


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
        f"{r['examples']} examples, {r['tuning']['steps']} steps of {r['tuning']['batch_size']}, "
        f"{r['k']} supervised positions each; {r['heldout']} held-out examples, {r['targets']} "
        f"targets; {len(r['seeds'])} seeds (mean ± SD); 95 % intervals over examples and seeds."
    )
    return [(title, columns, rows, note)]


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
    return [
        (title, columns, rows, note),
        (f"Study 2: fits, {r['backbone']} on {r['corpus']}", fit_columns, fits, FITS),
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
    return [(title, columns, rows, note)]


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
    return [(title, columns, rows, note)]
