"""One writer per folder: the second is refused before it prepares anything, and told by whom."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from goldimask.cli.app import app
from goldimask.errors import GoldimaskError
from goldimask.jobs import locked, partial_of, take_lock, wait_until_free

# words of the command, what it writes, the part that is locked, what it would do first
VERBS = {
    "train": (["train", "tiny", "output=OUT"], "", "goldimask.train.run.prepare"),
    "eval": (
        ["eval", "tiny", "--tasks", "tiny-chain", "--out", "OUT"],
        "0",
        "goldimask.eval.trials.plan_trials",
    ),
    "compare": (
        ["compare", "lab", "--preset", "smoke", "--out", "OUT"],
        "",
        "goldimask.campaign.run.make_plan",
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
    from goldimask.campaign.run import make_plan
    from goldimask.campaign.settings import load_campaign

    found = make_plan(load_campaign("lab", "smoke"), tmp_path)
    place = next(p for p in found.places if p.recipe is not None)
    partial_of(place.folder).mkdir(parents=True)
    with locked(tmp_path), locked(place.folder):
        for words in (
            ["compare", "lab", "--preset", "smoke", "--out", str(tmp_path), "--plan"],
            ["eval", "tiny", "--tasks", "tiny-chain", "--out", str(tmp_path), "--dry-run"],
        ):
            assert CliRunner().invoke(app, words).exit_code == 0
        assert partial_of(place.folder).is_dir()


def test_a_campaign_waits_for_what_outlived_it(tmp_path: Path) -> None:
    """A killed campaign leaves a training that is saving its checkpoint."""
    child = os.fork()
    if child == 0:
        import time

        held = take_lock(tmp_path / "cell")
        (tmp_path / "taken").touch()
        time.sleep(0.5)
        assert held.is_locked
        (tmp_path / "saved").touch()
        os._exit(0)
    while not (tmp_path / "taken").exists():
        pass
    wait_until_free(tmp_path / "cell", 20.0)
    assert (tmp_path / "saved").exists()
    os.waitpid(child, 0)
