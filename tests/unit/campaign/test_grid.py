"""Cells are ordinary runs, found again by content; a demo shows the weights it trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from goldimask.campaign.demo import demo
from goldimask.campaign.grid import by_recipe, finished, places, wanted
from goldimask.campaign.judging import evaluations, task_of
from goldimask.campaign.reading import check, load_campaign
from goldimask.campaign.run import make_plan, run_campaign, write_results
from goldimask.campaign.settings import Campaign, JudgingSection, cells, flat_words
from goldimask.config import apply_overrides
from goldimask.errors import GoldimaskError
from goldimask.records import open_run, read_manifest
from goldimask.report.page import LIMIT
from goldimask.tiny.skills import ROLES
from inprocess import here
from unit.report.support import embedded

SMALL = {
    "data": {"limit": 12, "validation": 4},
    "global_batch_size": 4,
    "trainer": {"max_steps": 2, "eval_steps": 2, "save_strategy": "no", "warmup_steps": 0},
}
JUDGING = JudgingSection(
    tasks=("tiny-sort",), problems=4, taus=(0.005, 0.02), main_tau=0.02, batch_size=4
)


@pytest.fixture
def campaign(small_model: Path) -> Campaign:
    return Campaign(
        change=SMALL,
        backbones=(str(small_model),),
        rows=("base", "vanilla", "goldimask-d"),
        seeds=(0,),
        judging=JUDGING,
    )


def test_cells_are_runs_made_once_and_found_again(campaign: Campaign, tmp_path: Path) -> None:
    made = run_campaign([campaign], tmp_path, executor=here)
    assert not made.failed and made.ran == 5
    found = places([campaign], tmp_path)
    assert all(finished(place) for place in found)
    for place in found:
        if place.recipe is not None:
            run = open_run(str(place.folder))
            assert run.manifest is not None and run.manifest.kind == "train"
            assert run.method == place.cell.row and run.metrics and len(run.outcomes) == 8
    again = run_campaign([campaign], tmp_path, executor=here)
    assert again.ran == 0
    record = json.loads((tmp_path / "campaign.json").read_text())
    assert [c["state"] for c in record["cells"]] == ["done"] * 3
    assert record["cells"][0]["seed"] is None and record["parts"][0]["tables"] == ["all"]
    summary = write_results([campaign], tmp_path, found, again)
    assert any(name.startswith("main") for names in summary["tables"].values() for name in names)
    wider = replace(campaign, seeds=(0, 1))  # another seed leaves the others as they are
    assert len(make_plan([wider], tmp_path).done) == 3
    assert [p.folder for p in by_recipe(wanted([campaign]), tmp_path)] == [p.folder for p in found]

    receipts = list(tmp_path.glob("cells/*/eval/done-*.json"))
    assert len(receipts) == 3
    for receipt in receipts:  # as if the commands had been typed by hand
        receipt.unlink()
    assert len(make_plan([campaign], tmp_path).done) == 3
    longer = replace(campaign, judging=replace(JUDGING, problems=5))
    jobs = make_plan([longer], tmp_path).jobs
    assert len(jobs) == 3 and all("eval" in job.name for job in jobs)  # only what is new is decoded

    place = found[1]
    adapter = place.folder / "adapter" / "adapter_model.safetensors"
    shutil.copy(found[2].folder / "adapter" / "adapter_model.safetensors", adapter)
    with pytest.raises(GoldimaskError, match="other weights"):
        finished(place)


def test_an_answer_of_other_rules_is_asked_for_again(campaign: Campaign, tmp_path: Path) -> None:
    """A task of another version, or another protocol, is another question."""
    (call,) = evaluations(campaign, cells(campaign)[0])
    other = replace(call, judging=replace(JUDGING, protocol="lift"))
    assert call.request != other.request
    assert call.request == replace(call, judging=replace(JUDGING, batch_size=1)).request
    before = call.request
    task_of.cache_clear()
    known = task_of("tiny-sort", "fixed")
    newer = replace(known, version=f"{known.version}+1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("goldimask.campaign.judging.task_of", lambda name, protocol: newer)
        assert call.request != before


def test_the_key_follows_the_content(campaign: Campaign, tmp_path: Path) -> None:
    def folder(wanted: Campaign) -> str:
        return str(places([wanted], tmp_path)[1].folder).rpartition("/")[2]

    name = folder(campaign)
    same = replace(campaign, output="elsewhere", seeds=(0, 1), tables=("main",))
    assert folder(same) == name
    for change in (
        {"trainer": {**SMALL["trainer"], "learning_rate": 1e-4}},
        {"data": {**SMALL["data"], "limit": 13}},
        {"data": {**SMALL["data"], "options": {"eta": 0.5}}},
        {"lora": None},
    ):
        assert folder(replace(campaign, change={**SMALL, **change})) != name
    changed = tmp_path / "model"
    shutil.copytree(campaign.backbones[0], changed)
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps(config))  # other bytes
    other = replace(campaign, backbones=(str(changed),))
    assert folder(other).rpartition("-")[2] != name.rpartition("-")[2]


def test_another_seed_of_the_demo_shows_its_own_results(
    tmp_path: Path, small_words: list[str]
) -> None:
    """Adapters were not part of the old fingerprint: seed 43 showed what seed 42 had decoded."""
    first = demo(tmp_path, [*small_words, "seeds=[42]"], executor=here)
    second = demo(tmp_path, [*small_words, "seeds=[43]"], executor=here)
    runs = [places([load_campaign("skills", "demo", [*small_words, f"seeds=[{s}]"])], tmp_path)[1]
            for s in (42, 43)]  # fmt: skip
    manifests = [read_manifest(place.evaluation) for place in runs]
    assert manifests[0] is not None and manifests[1] is not None
    assert manifests[0].weights != manifests[1].weights
    losses = [found["results"]["vanilla"]["heldout"] for found in (first, second)]
    assert losses[0] != losses[1]
    told: list[str] = []
    again = demo(tmp_path, [*small_words, "seeds=[42]"], say=told.append, executor=here)
    assert again["results"] == first["results"] and "reusing 4 of 4" in told[0]
    assert Path(again["report"]).is_file()
    page = Path(again["page"]).read_text("utf-8")
    assert len(page.encode()) < LIMIT
    parts = {s["kind"]: s["data"] for s in embedded(page)["sections"]}
    names = ["base", "vanilla", "goldimask-d", "goldimask-d-floor"]
    assert list(parts) == ["results", "curves", "steps", "decodes"]
    assert [row["name"] for row in parts["results"]["rows"]] == names
    assert len(parts["results"]["tasks"]) == 4 and parts["results"]["facts"]["seed"] == 42
    base, vanilla = parts["results"]["rows"][:2]
    assert not base["gains"] and set(vanilla["gains"]) == {"taught", "kept"}
    for role, tasks in ROLES.items():
        apart = [vanilla["tasks"][n]["accuracy"] - base["tasks"][n]["accuracy"] for n in tasks]
        value, low, high = vanilla["gains"][role]
        assert value == pytest.approx(sum(apart) / len(tasks)) and low <= value <= high
        assert first["results"]["vanilla"]["roles"][role] == pytest.approx(
            sum(vanilla["tasks"][n]["accuracy"] for n in tasks) / len(tasks)
        )
    assert parts["curves"]["charts"][0]["name"] == "loss"
    assert [m["label"] for m in parts["decodes"]["groups"][0]["models"]] == names


@pytest.fixture
def small_words(small_model: Path) -> list[str]:
    words = [f"change.{word}" for word in flat_words(SMALL)]
    return [*words, "judging.problems=2", "judging.taus=[0.05]", "judging.main_tau=0.05"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: replace(c, rows=("vanila",)), "did you mean 'vanilla'"),
        (lambda c: replace(c, rows=("vanilla", "vanilla")), "none twice"),
        (lambda c: replace(c, seeds=()), "at least one"),
        (lambda c: replace(c, change={"trainer": {"lr": 1}}), None),
        (lambda c: replace(c, change={"datas": {}}), "datas: unknown key"),
        (lambda c: replace(c, judging=replace(JUDGING, main_tau=0.5)), "main_tau"),
        (lambda c: replace(c, judging=replace(JUDGING, taus=(0.02, 1.5))), r"\(0, 1\]"),
        (lambda c: replace(c, judging=replace(JUDGING, tasks=("tiny-srt",))), "tiny-sort"),
        (lambda c: replace(c, variants={"x": {"prest": 1}}, rows=("x",)), "variants.x.prest"),
    ],
)
def test_mistakes_are_refused_before_the_first_cell(
    campaign: Campaign, change: Callable[[Campaign], Campaign], message: str | None
) -> None:
    if message is None:  # trainer keys are checked by the training itself
        check(change(campaign))
        return
    with pytest.raises(GoldimaskError, match=message):
        check(change(campaign))


def test_words_survive_the_command_line() -> None:
    values = {"a": {"b": 1.5e-6, "c": "no"}, "d": None, "e": [1, 2], "f": {}, "g": "x=y"}
    assert apply_overrides({}, flat_words(values)) == values
