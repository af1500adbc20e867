"""The page that `goldimask demo` ends in: what changed, how it was trained, and a look inside.

    demo_page(path, results, steps, decodes, curves)

    results   {"rows": [row, ...], "facts": {"seed": 42, ...}?, "note": str?}
              row = {"name": "before" | method, "held_out": float | None, "steps": float | None,
                     "seconds": float | None,      training time, optional
                     "tasks": {task: {"accuracy", "low", "high", "n", "steps"}}}
              (`dataclasses.asdict(TaskResult)` is a valid task entry; the first row is the base
              that the others are compared with)
    steps     records of `step_page.step_record`, every method on the same corruption
    decodes   records of `decode_page.decode_record`, two or more labels per prompt
    curves    {"loss": {method: [[step, value], ...]}, "held-out loss": {...}}; one chart per key,
              one line per method, in the order given

Any of the last three may be empty; its section is then left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from goldimask.report.decode_page import decodes_section
from goldimask.report.page import embed, section, write_page
from goldimask.report.page import significant as sig
from goldimask.report.step_page import steps_section

STEPS_LIMIT = 330_000  # what the other sections of this page leave free


def demo_page(
    path: Path | str,
    results: Mapping[str, Any],
    steps: Sequence[Mapping[str, Any]] = (),
    decodes: Sequence[Mapping[str, Any]] = (),
    curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]] | None = None,
    *,
    title: str = "GoldiMask demo",
) -> Path:
    """Write the page; the shapes of the arguments are in the module's text."""
    parts = [results_section(results)]
    if curves:
        parts.append(curves_section(curves))
    if steps:
        note = (
            "The same example under the same random draws. Switch the method, move the noise "
            "level, step through the reveal; point at a token or move with the arrow keys."
        )
        other = len(embed(parts).encode()) + len(embed(list(decodes)).encode())
        limit = max(60_000, min(STEPS_LIMIT, STEPS_LIMIT + 60_000 - other))
        parts.append(steps_section(steps, note=note, limit=limit, start="goldimask-d"))
    if decodes:
        note = "The same prompts decoded before and after fine-tuning, under one slider."
        parts.append(decodes_section(decodes, note=note))
    subtitle = (
        "Fine-tuning a masked diffusion language model: choose what to reveal, weigh the rest."
    )
    return write_page(path, title, parts, subtitle=subtitle)


def results_section(results: Mapping[str, Any]) -> dict[str, Any]:
    """The summary table, with each task's change against the first row."""
    rows = list(results["rows"])
    tasks = list(dict.fromkeys(task for row in rows for task in row["tasks"]))
    data = {
        "tasks": tasks,
        "rows": [clean_row(row) for row in rows],
        "facts": {str(k): v for k, v in dict(results.get("facts") or {}).items()},
    }
    return section("results", "Results", data, str(results.get("note") or ""))


def clean_row(row: Mapping[str, Any]) -> dict[str, Any]:
    keep = ("accuracy", "low", "high", "n", "steps")
    return {
        "name": row["name"],
        "held_out": row.get("held_out"),
        "steps": row.get("steps"),
        "seconds": row.get("seconds"),
        "tasks": {
            task: {k: entry[k] for k in keep if entry.get(k) is not None}
            for task, entry in row["tasks"].items()
        },
    }


def curves_section(
    curves: Mapping[str, Mapping[str, Sequence[Sequence[float]]]], title: str = "Training"
) -> dict[str, Any]:
    """One chart per measure, one line per method."""
    charts = [
        {
            "name": measure,
            "lines": [
                {"name": name, "points": [[sig(float(x), 6), sig(float(y), 5)] for x, y in line]}
                for name, line in lines.items()
            ],
        }
        for measure, lines in curves.items()
    ]
    return section("curves", title, {"charts": charts})
