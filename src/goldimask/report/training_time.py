"""Training time of methods relative to Vanilla (paper, "Relative training time").

    s/step      wall seconds of training / steps, mean over the runs (seeds) of a method; without
                loading, validation and checkpoints, over all starts of a resumed run
    relative    s/step of the method / s/step of Vanilla in the same setting
    average     mean of `relative` over the settings (the paper: s1K and LIFT-SFT-12K), of methods
                that were trained in all of them

A setting is all of the recipe but method, seed, output and evaluation, and the hardware. Times of
different settings are never divided by each other. A run that moved between machines, or whose
folder has no seconds, is left out and named.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from goldimask.presets import PRESETS
from goldimask.records import Run, digest
from goldimask.tables import Cell, Table

FREE = ("method", "seed", "output", "evaluation")  # keys in which compared runs may differ
Times = dict[str, list[tuple[float, float]]]  # method -> (seconds a step, seconds) of its runs


def training_time(runs: Sequence[Run]) -> Table:
    """One row per setting and method; the note names what the letters of settings stand for."""
    settings: dict[tuple[str, str], Times] = {}
    named: dict[tuple[str, str], str] = {}
    left_out: list[str] = []
    for run in runs:
        facts: Mapping[str, Any] = run.manifest.facts if run.manifest else {}
        seconds, steps = facts.get("seconds"), facts.get("steps")
        if not isinstance(seconds, Mapping) or not steps or len(seconds["hardware"]) != 1:
            moved = isinstance(seconds, Mapping) and len(seconds["hardware"]) > 1
            left_out.append(f"{run.name} ({'moved between machines' if moved else 'no seconds'})")
            continue
        key = (digest({k: v for k, v in run.recipe.items() if k not in FREE}), *seconds["hardware"])
        took = float(seconds["training"])
        settings.setdefault(key, {}).setdefault(run.method, []).append((took / steps, took))
        named.setdefault(key, f"{said(run.recipe)}, {steps} steps, {key[1]}")
    several = len(settings) > 1
    rows: list[tuple[Cell, ...]] = []
    ratios: dict[str, list[tuple[float, int]]] = {}  # with the number of runs behind each
    for letter, times in zip(letters(len(settings)), settings.values(), strict=True):
        vanilla = mean([x for x, _ in times["vanilla"]]) if "vanilla" in times else None
        for method, took in times.items():
            step = mean([x for x, _ in took])
            ratio = None if vanilla is None else step / vanilla
            if ratio is not None:
                ratios.setdefault(method, []).append((ratio, len(took)))
            hours = mean([x for _, x in took]) / 3600
            cells = (method, len(took), step, hours, rounded(ratio), paper_cost(method))
            rows.append((*([letter] if several else []), *cells))
    every = len(ratios.get("vanilla", ()))
    for method, found in ratios.items() if every > 1 else ():
        if len(found) == every:
            average = rounded(mean([x for x, _ in found]))
            runs_of = sum(n for _, n in found)
            rows.append(("average", method, runs_of, None, None, average, paper_cost(method)))
    columns = ("method", "runs", "s/step", "hours", "relative", "paper")
    note = "; ".join(
        f"{letter}: {named[key]}" if several else named[key]
        for letter, key in zip(letters(len(settings)), settings, strict=True)
    )
    note += ". Wall time of training without loading, validation and checkpoints; relative to "
    note += "Vanilla in the same setting; the paper's figures: LLaDA-8B on four B200."
    if left_out:
        note += f" Left out: {', '.join(left_out)}."
    head = ("setting", *columns) if several else columns
    return Table("time", "Training time", head, tuple(rows), 1 + several, note)


def said(recipe: Mapping[str, Any]) -> str:
    """Backbone and corpus of a run, in a word each."""
    backbone, data = recipe.get("backbone") or {}, recipe.get("data") or {}
    model = Path(str(backbone.get("path") or backbone.get("name"))).name
    return f"{model} on {data.get('corpus') or Path(str(data.get('path') or 'a mixture')).name}"


def letters(count: int) -> list[str]:
    return [chr(ord("a") + i) if i < 26 else f"s{i}" for i in range(count)]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def rounded(ratio: float | None) -> float | None:
    return None if ratio is None else round(ratio, 3)


def paper_cost(method: str) -> float | None:
    return PRESETS.get(method).cost if method in PRESETS.names() else None
