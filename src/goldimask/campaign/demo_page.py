"""The pages that `goldimask demo` ends in: what changed, how it was trained, and a look inside.

demo.html     results, curves, one training step under several methods, decodes of every model
report.html   the report of its runs;  pages/: the step and the decodes by themselves
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from goldimask.backbones import Backbone, load_backbone
from goldimask.campaign.demo import Shown, settings_of
from goldimask.campaign.settings import BASE, Campaign
from goldimask.decoding import decode
from goldimask.eval.tasks import get_task
from goldimask.methods import method
from goldimask.records import open_run
from goldimask.report.decode_page import decode_page, decode_record, decodes_section
from goldimask.report.inspect import inspect_steps
from goldimask.report.page import embed, section, write_page
from goldimask.report.page import significant as sig
from goldimask.report.runs_page import write_files, write_html
from goldimask.report.runs_report import make_report
from goldimask.report.sources import read_sources
from goldimask.report.step_page import steps_section
from goldimask.train.prepare import make_data

SHOWN = ("vanilla", "lift-2", "agdo", "random-waterfill", "goldimask-d", "goldimask-r")
CURVES = {"loss": "loss", "held-out loss": "eval_loss", "n_eff / n": "n_eff_ratio"}
STEPS_LIMIT = 330_000  # bytes of the steps, which the other sections of the page leave free
REPLAYED = 2  # tasks of which one problem is decoded by every model
TITLE = "GoldiMask demo"
SUBTITLE = "Fine-tuning a masked diffusion language model: choose what to reveal, weigh the rest."
RESULTS = (
    "A skill that the base lacks is taught, chains with max and min, and three others are "
    "repeated, from text in which 20 % of the results are wrong, as in the held-out text of the "
    "loss; test problems have none. One seed, a small model and few problems: differences inside "
    "the intervals are noise, and the intervals hold for these runs alone. The same start, "
    "examples and random draws for all methods, each at the learning rate that was best on other "
    "problems: Vanilla's is a tenth of the others'."
)
STEPS = (
    "The same example under the same random draws. Switch the method, move the noise level, step "
    "through the reveal; point at a token or move with the arrow keys."
)
DECODES = "The same prompts decoded before and after fine-tuning, under one slider."


def write_demo_page(
    path: Path,
    folder: Path,
    models: Sequence[Shown],
    results: Mapping[str, Any],
    campaign: Campaign,
) -> Path:
    """Collect and write the page."""
    steps, decodes = one_step(models), replays(models, campaign)
    pages = folder / "pages"
    write_page(pages / "inspect.html", "One step", [steps_section(steps, start="goldimask-d")])
    decode_page(pages / "decode.html", decodes)
    parts = [results_section(results, settings_of(campaign)), curves_section(models)]
    other = len(embed(parts).encode()) + len(embed(decodes).encode())
    limit = max(60_000, min(STEPS_LIMIT, STEPS_LIMIT + 60_000 - other))
    parts.append(steps_section(steps, note=STEPS, limit=limit, start="goldimask-d"))
    parts.append(decodes_section(decodes, note=DECODES))
    return write_page(path, TITLE, parts, subtitle=SUBTITLE)


def write_demo_report(path: Path, folder: Path, models: Sequence[Shown], page: Path) -> Path:
    """The report of the demo's runs, with links to its other pages."""
    words = [f"{m.row}={m.place.folder}" for m in models if m.row != BASE]
    made = make_report(*read_sources(words), "GoldiMask demo: the runs")
    others = (page, *sorted((folder / "pages").glob("*.html")))
    files = write_files(made, folder / "report_files")
    return write_html([made], path, files, others=others)


def results_section(results: Mapping[str, Any], facts: Mapping[str, Any]) -> dict[str, Any]:
    """The summary table, with each task's change against the first row."""
    keep = ("accuracy", "low", "high", "n", "steps")
    rows = [
        {
            "name": name,
            "held_out": result["heldout"],
            "steps": result["steps"],
            "gains": result["gains"],
            "tasks": {t: {k: entry[k] for k in keep} for t, entry in result["tasks"].items()},
        }
        for name, result in results.items()
    ]
    tasks = list(dict.fromkeys(task for row in rows for task in row["tasks"]))
    data = {"tasks": tasks, "rows": rows, "facts": dict(facts)}
    return section("results", "Results", data, RESULTS)


def curves_section(models: Sequence[Shown]) -> dict[str, Any]:
    """One chart per measure, one line per method."""
    logged = {m.row: open_run(str(m.place.folder)).metrics for m in models if m.row != BASE}
    charts = [
        {
            "name": title,
            "lines": [
                {
                    "name": name,
                    "points": [
                        [sig(x.step, 6), sig(x.values[key], 5)] for x in lines if key in x.values
                    ],
                }
                for name, lines in logged.items()
            ],
        }
        for title, key in CURVES.items()
    ]
    return section("curves", "Training", {"charts": charts})


def one_step(models: Sequence[Shown]) -> list[dict[str, Any]]:
    """The same example and draws under several methods; signals are the base model's."""
    recipe = next(m.place.recipe for m in models if m.place.recipe is not None)
    backbone = load_backbone(models[0].place.model)
    examples = make_data(replace(recipe.data, limit=8, validation=0), backbone, recipe.seed).train
    return inspect_steps(backbone, examples[0], [method(name) for name in SHOWN], recipe.seed)


def replays(models: Sequence[Shown], campaign: Campaign) -> list[dict[str, Any]]:
    """A problem of the first tasks decoded by every model."""
    names = list(dict.fromkeys(o.task for o in models[0].cell.outcomes))[:REPLAYED]
    records = []
    for model in models:
        backbone = load_backbone(model.place.model)
        for name in names:
            records.append(replay(backbone, model.row, name, campaign))
    return records


def replay(backbone: Backbone, label: str, name: str, campaign: Campaign) -> dict[str, Any]:
    """The first problem of a task, decoded and judged."""
    task = get_task(name, n=1)
    item = task.load(None)[0]
    judging = campaign.judging
    assert judging is not None
    options = {"tau": judging.main_tau, "block": judging.block, "length": task.length}
    made = decode(backbone, [task.prompt(item)], **options)[0]
    found = task.extract(made.text)
    verdict = {
        "correct": task.check(item, found).correct,
        "extracted": found,
        "answer": item.gold,
    }
    special = sorted(backbone.special_ids)
    return decode_record(made, backbone.tokenizer, label, verdict=verdict, special=special)
