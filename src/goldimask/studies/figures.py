"""Figures of the studies, as PDF and PNG; the same data gives the same bytes."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from goldimask.files import write_bytes

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a6d00", "#56b4e9", "#000000")
MARKERS = "osD^vPX"
FORMATS: dict[str, dict[str, Any]] = {
    "pdf": {"metadata": {"CreationDate": None, "ModDate": None}},
    "png": {"dpi": 160, "metadata": {"Software": None}},
}


def save(figure: Any, folder: Path, stem: str) -> list[Path]:
    """`STEM.pdf` and `STEM.png`."""
    out = []
    for suffix, options in FORMATS.items():
        buffer = io.BytesIO()
        figure.savefig(buffer, format=suffix, **options)
        out.append(write_bytes(folder / f"{stem}.{suffix}", buffer.getvalue()))
    return out


def write_study_figure(results: Sequence[dict[str, Any]], folder: Path) -> list[Path]:
    """One figure for a study, a panel (or line) for each backbone."""
    makers: dict[str, Callable[[Sequence[dict[str, Any]]], Any]] = {
        "budget": budget_figure,
        "response": response_figure,
        "support": support_figure,
        "quality": quality_figure,
    }
    study = results[0]["study"]
    return save(makers[study](results), folder, study)


def panels(count: int, width: float = 3.4, height: float = 2.8) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * count + 0.6, height), layout="constrained")
    axes = figure.subplots(1, count, squeeze=False)[0]
    for axis in axes:
        axis.tick_params(labelsize=7)
        axis.grid(alpha=0.25, linewidth=0.5)
    return figure, axes


def budget_figure(results: Sequence[dict[str, Any]]) -> Any:
    """dNLL against dp, one marker per seed and a large one for the mean; lower right is better."""
    figure, axes = panels(len(results))
    for axis, r in zip(axes, results, strict=True):
        for i, (rule, found) in enumerate(r["rules"].items()):
            x, y = found["delta_nll"], found["delta_p"]
            style = {"color": COLOURS[i % 7], "marker": MARKERS[i % 7], "linestyle": ""}
            axis.plot(x["seeds"], y["seeds"], markersize=3, alpha=0.5, **style)
            axis.plot([x["mean"]], [y["mean"]], markersize=7, label=rule, **style)
        axis.set_title(r["backbone"], fontsize=9)
        axis.set_xlabel("ΔNLL (lower is better)", fontsize=8)
        axis.legend(fontsize=7, frameon=False)
    axes[0].set_ylabel("Δp (higher is better)", fontsize=8)
    return figure


def response_figure(results: Sequence[dict[str, Any]]) -> Any:
    """Profiles with intervals, the fitted curve, and the priority scaled to it."""
    figure, axes = panels(len(results))
    p = np.linspace(0.001, 0.999, 300)
    for axis, r in zip(axes, results, strict=True):
        found = r["pooled"]
        bins = [b for b in found["bins"] if b["interval"] is not None]
        x, y = [b["p"] for b in bins], [b["dp"] for b in bins]
        low = [b["dp"] - b["interval"][0] for b in bins]
        high = [b["interval"][1] - b["dp"] for b in bins]
        error = [np.maximum(low, 0.0), np.maximum(high, 0.0)]
        axis.errorbar(x, y, yerr=error, fmt="o", color=COLOURS[0], markersize=4, label="measured")
        if found["fit"]:
            f = found["fit"]
            axis.plot(p, f["scale"] * p ** f["a"] * (1 - p) ** f["b"], color=COLOURS[1],
                      label=f"fit, peak {found['peak']:.2f}")  # fmt: skip
        top = max(y, default=1.0) * 256 / 27
        axis.plot(p, top * p * (1 - p) ** 3, "--", color="gray", label="p(1-p)^3, scaled")
        axis.set_title(r["backbone"], fontsize=9)
        axis.set_xlabel("initial confidence p1", fontsize=8)
        axis.legend(fontsize=7, frameon=False)
    axes[0].set_ylabel("Δp after the reveal", fontsize=8)
    return figure


def support_figure(results: Sequence[dict[str, Any]]) -> Any:
    """R2 by block, before and after the reveal, linear dashed and saturating solid."""
    figure, axes = panels(len(results))
    for axis, r in zip(axes, results, strict=True):
        for i, when in enumerate(("before", "after")):
            for kind, line in (("saturating", "-"), ("linear", "--")):
                layers, scores = by_layer(r["rows"], when, kind)
                label = f"{when} the reveal, {kind}"
                axis.plot(layers, scores, line, color=COLOURS[i], marker="o", markersize=3,
                          label=label)  # fmt: skip
        axis.axhline(0, color="black", linewidth=0.6)
        axis.set_title(r["backbone"], fontsize=9)
        axis.set_xlabel("block", fontsize=8)
        axis.legend(fontsize=6, frameon=False)
    axes[0].set_ylabel("held-out within-target R2, t ≥ 0.5", fontsize=8)
    return figure


def by_layer(rows: list[dict[str, Any]], when: str, kind: str) -> tuple[list[int], list[float]]:
    """Mean over the noise intervals from 0.5 on, weighted by targets."""
    layers = sorted({int(x["measured"]) for x in rows if x["when"] == when})
    scores = []
    for layer in layers:
        mine = [x for x in rows if x["measured"] == str(layer) and x["when"] == when]
        high = [x for x in mine if x["from"] >= 0.5] or mine
        total = sum(x["targets"] for x in high)
        scores.append(sum(x[kind] * x["targets"] for x in high) / total)
    return layers, scores


def quality_figure(results: Sequence[dict[str, Any]]) -> Any:
    """Realised gain of the kept targets by block, one line per selector."""
    figure, axes = panels(len(results))
    for axis, r in zip(axes, results, strict=True):
        names = list(dict.fromkeys(x["selector"] for x in r["rows"]))
        for i, name in enumerate(names):
            mine = [x for x in r["rows"] if x["selector"] == name]
            axis.plot(
                [x["layer"] for x in mine],
                [x["gain"] for x in mine],
                color="gray" if name == "random" else COLOURS[i % 7],
                linestyle="--" if name == "random" else "-",
                marker=MARKERS[i % 7],
                markersize=4,
                label=name,
            )
        axis.set_title(r["backbone"], fontsize=9)
        axis.set_xlabel("attention of block", fontsize=8)
        axis.legend(fontsize=6, frameon=False)
    axes[0].set_ylabel("mean [Δ log p]+ of kept targets", fontsize=8)
    return figure
