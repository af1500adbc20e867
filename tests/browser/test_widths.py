"""Nothing of a page is lost on a phone, a tablet or a desk: measured in a browser.

A new kind of page joins `PAGES`: a function that writes one into a folder and returns its path.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from browser.tools import need_chromium, node
from goldimask.campaign.demo_page import results_section
from goldimask.data.batches import make_batch
from goldimask.report.campaign_report import write_campaign
from goldimask.report.decode_page import decode_page, decode_record
from goldimask.report.page import section, write_page
from goldimask.report.runs_page import write_html
from goldimask.report.runs_report import make_report
from goldimask.report.sources import read_sources
from goldimask.report.step_page import step_record, steps_section
from unit.outcomes import outcomes
from unit.report.campaigns import write_campaign_folder
from unit.report.support import Tokenizer, examples, step
from unit.report.test_decode_page import decoded
from unit.report.test_runs_report import write_run

TASKS = ("chain", "story", "sort", "program", "sudoku")


def step_page(folder: Path) -> Path:
    batch = make_batch(examples([(6, 300)]), 0)
    records = []
    for name in ("goldimask-d", "vanilla", "lift-2", "goldimask-d-p1mp2"):
        out, _, method = step(name, batch, t=0.6)
        records.append(step_record(out, batch, 0, Tokenizer(), method))
    return write_page(folder / "step.html", "One step", [steps_section(records, "A step", "note")])


def replay_page(folder: Path) -> Path:
    long = tuple(range(5)) * 40
    made = [
        decode_record(decoded(steps, 900, long), Tokenizer(), name)
        for steps, name in ((60, "before"), (20, "runs/llada8b-s1k-goldimask-d-s42"))
    ]
    return decode_page(folder / "decode.html", made)


def demo_page(folder: Path) -> Path:
    task = {"accuracy": 0.255, "low": 0.202, "high": 0.318, "n": 40, "steps": 12.5}
    model = {"heldout": 0.91, "steps": 20.0, "tasks": dict.fromkeys(TASKS, task)}
    gains = {"taught": [0.181, 0.02, 0.27], "kept": [-0.012, -0.055, 0.031]}
    results = {name: {**model, "gains": gains} for name in ("base", "vanilla", "goldimask-d")}
    lines = [{"name": n, "points": [[0, 2.0], [120, 0.5]]} for n in ("vanilla", "goldimask-d")]
    curves = section("curves", "Training", {"charts": [{"name": "loss", "lines": lines}] * 3})
    facts = {"backbone": "tiny", "corpus": "tiny-1k-labels", "seed": 42}
    return write_page(folder / "demo.html", "Demo", [results_section(results, facts), curves])


def report_page(folder: Path) -> Path:
    words = []
    for preset, seed in (("vanilla", 42), ("goldimask-d", 42), ("goldimask-d", 43)):
        answers = [
            one
            for task in TASKS
            for one in outcomes([True, False, True], task=f"tiny-{task}", output="word " * 60)
        ]
        run = write_run(folder / "runs" / f"llada8b-s1k-{preset}-s{seed}", preset, seed, answers)
        words.append(str(run))
    return write_html([make_report(*read_sources(words))], folder / "report.html")


def campaign_page(folder: Path) -> Path:
    write_campaign(write_campaign_folder(folder, tables=["all"], figures=["steps"]))
    return folder / "report.html"


PAGES = {
    "step": step_page,
    "decode": replay_page,
    "demo": demo_page,
    "report": report_page,
    "campaign": campaign_page,
}


@pytest.fixture(autouse=True)
def one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs without weights."""
    monkeypatch.setattr("goldimask.backbones.identity.weights_hash", lambda *_, **__: "w")


@pytest.mark.parametrize("kind", PAGES)
def test_nothing_is_lost_at_any_width(kind: str, tmp_path: Path) -> None:
    need_chromium()
    ran = node("check.mjs", str(PAGES[kind](tmp_path)), "widths")
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    nothing = {"page": 0, "beyond": [], "cut": [], "silent": []}
    assert {width: found[width] for width in ("390", "800", "1400")} == {
        "390": nothing,
        "800": nothing,
        "1400": nothing,
    }
