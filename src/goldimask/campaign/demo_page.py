"""What the demo ends in: a page of its results, one step and decodes; and a report of its runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from goldimask.backbones import load_backbone
from goldimask.campaign.demo import METHODS, DemoSettings
from goldimask.config import load_recipe
from goldimask.methods import method
from goldimask.report.decode_page import decode_page, decode_record
from goldimask.report.demo_page import demo_page
from goldimask.report.inspection import inspect_steps
from goldimask.report.page import write_page
from goldimask.report.run_report import make_report, write_files, write_html
from goldimask.report.runs import read_run
from goldimask.report.step_page import steps_section
from goldimask.tiny.families import PROBLEM_FAMILIES, test_set

SHOWN = ("vanilla", "lift-2", "agdo", "random-waterfill", "goldimask-d", "goldimask-r")
CURVES = {"loss": "loss", "held-out loss": "eval_loss", "n_eff / n": "n_eff_ratio"}


def write_demo_page(
    path: Path, folder: Path, runs: Mapping[str, str], results: Mapping[str, Any], s: DemoSettings
) -> Path:
    """Collect and write the page."""
    base = load_backbone(runs["base"])
    rows = [
        {"name": n, "held_out": r["heldout"], "steps": r["steps"], "tasks": r["tasks"]}
        for n, r in results.items()
    ]
    facts = {k: v for k, v in asdict(s).items() if k != "overrides"}
    note = (
        "A small model and few problems: differences inside the intervals are noise. The same "
        "start, examples and random draws for both methods. 15 % of the results in the training "
        "text are wrong, and in the held-out text of the loss too; test problems have none."
    )
    steps, decodes = one_step(base, s), replays(runs, s)
    write_page(
        folder / "pages" / "inspect.html", "One step", [steps_section(steps, start="goldimask-d")]
    )
    decode_page(folder / "pages" / "decode.html", decodes)
    return demo_page(
        path, {"rows": rows, "facts": facts, "note": note}, steps, decodes, curves(folder)
    )


def write_demo_report(path: Path, folder: Path, page: Path) -> Path:
    """The static report of the demo's runs, with links to its other pages."""
    runs = [read_run(folder / name) for name in METHODS]
    made = make_report(runs, {}, "GoldiMask demo: the runs")
    others = (page, *sorted((folder / "pages").glob("*.html")))
    files = write_files(made, folder / "report_files")
    return write_html(replace(made, pages=(*others, *made.pages)), path, files)


def one_step(backbone: Any, s: DemoSettings) -> list[dict[str, Any]]:
    """The same example and draws under several methods; signals are the base model's."""
    data = make_data(load_recipe(s.recipe).data, backbone, s.seed)
    return inspect_steps(backbone, data.train[0], [method(name) for name in SHOWN], s.seed)


def replays(runs: Mapping[str, str], s: DemoSettings) -> list[dict[str, Any]]:
    """Two test problems decoded by every model."""
    from goldimask.decoding import decode

    names = list(PROBLEM_FAMILIES)[:2]
    problems = [test_set(name, 1)[0] for name in names]
    records = []
    for label, where in runs.items():
        backbone = load_backbone(where)
        special = sorted(backbone.special_ids)
        prompts = [p.prompt for p in problems]
        for name, problem, made in zip(
            names,
            problems,
            decode(backbone, prompts, length=s.length, tau=s.tau, block=s.block),
            strict=True,
        ):
            family = PROBLEM_FAMILIES[name]
            found = family.extract(made.text)
            verdict = {
                "correct": family.check(problem, found),
                "extracted": found,
                "answer": problem.answer,
            }
            records.append(
                decode_record(made, backbone.tokenizer, label, verdict=verdict, special=special)
            )
    return records


def curves(folder: Path) -> dict[str, dict[str, list[list[float]]]]:
    """Logged values of both runs by step."""
    found: dict[str, dict[str, list[list[float]]]] = {title: {} for title in CURVES}
    for name in METHODS:
        lines = (folder / name / "metrics.jsonl").read_text().splitlines()
        logged = [json.loads(line) for line in lines]
        for title, key in CURVES.items():
            found[title][name] = [[x["step"], x[key]] for x in logged if key in x]
    return found
