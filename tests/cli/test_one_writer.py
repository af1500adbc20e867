"""One writer per folder: the second is refused before it prepares anything, and told by whom."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from goldimask.campaign.executors import Job, claimed
from goldimask.cli.app import app
from goldimask.errors import GoldimaskError
from goldimask.jobs import drop_lock, locked, partial_of

# words of the command, what it writes, the part that is locked, what it would do first
VERBS = {
    "train": (["train", "tiny", "output=OUT"], "", "goldimask.train.run.prepare"),
    "eval": (
        ["eval", "tiny", "--tasks", "tiny-chain", "--out", "OUT"],
        "0",
        "goldimask.eval.trials.plan_trials",
    ),
    "demo": (["demo", "--out", "OUT"], "", "goldimask.campaign.demo.demo"),
    "report": (["report", "runs/a", "--out", "OUT"], "", "goldimask.report.sources.read_sources"),
    "decode": (
        ["decode", "tiny", "--file", "p.jsonl", "--out", "OUT"],
        "",
        "goldimask.decoding.prompt_file.read_prompts",
    ),
}


@pytest.mark.parametrize("verb", VERBS)
def test_the_second_writer_is_told_who_is_first(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, part, first = VERBS[verb]
    folder = tmp_path / "out.jsonl"
    prepared: list[str] = []
    monkeypatch.setattr(first, lambda *a, **k: prepared.append(verb))
    words = [word.replace("OUT", str(folder)) for word in words]
    with locked(folder, part):
        before = sorted(p.name for p in tmp_path.iterdir())
        found = CliRunner().invoke(app, words)
        assert isinstance(found.exception, GoldimaskError)
        process = f"is being written by process {os.getpid()} on "
        told = process + r"\S+ since \d{4}-\d\d-\d\d \d\d:\d\d"
        assert re.search(told, str(found.exception)), found.exception
        assert not prepared and sorted(p.name for p in tmp_path.iterdir()) == before
    CliRunner().invoke(app, words)
    assert prepared == [verb]  # free again, and what the first one left is gone
    assert not list(tmp_path.glob(".*lock*"))


def test_plans_and_dry_runs_need_no_lock(tmp_path: Path) -> None:
    """They write nothing, and nothing of a running training is taken away."""
    from goldimask.campaign.reading import load_campaign
    from goldimask.campaign.run import make_plan

    found = make_plan([load_campaign("lab", "smoke")], tmp_path)
    folder = next(p.folder for p in found.places if p.recipe is not None)
    assert folder is not None
    partial_of(folder).mkdir(parents=True)
    with locked(tmp_path), locked(folder):
        for words in (
            ["compare", "lab", "--preset", "smoke", "--out", str(tmp_path), "--plan"],
            ["compare", "lab", "--preset", "smoke", "--out", str(tmp_path), "--status"],
            ["eval", "tiny", "--tasks", "tiny-chain", "--out", str(tmp_path), "--dry-run"],
        ):
            assert CliRunner().invoke(app, words).exit_code == 0
        assert partial_of(folder).is_dir()


def test_a_campaign_leaves_alone_what_somebody_writes(tmp_path: Path) -> None:
    """A job of another campaign, a run typed by hand, or one that outlived a killed campaign."""
    job = Job("j", (), tmp_path / "cell", claim="train")
    with locked(job.folder, "job-train"):
        assert claimed(job) == (False, None)
    with locked(job.folder):
        assert claimed(job) == (False, None)
    held, lock = claimed(job)
    assert held and lock is not None
    assert claimed(job) == (False, None)
    drop_lock(lock)
    assert not list(tmp_path.glob(".*lock*"))
