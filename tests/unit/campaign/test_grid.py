"""Cells are ordinary runs, found again by content; a demo shows the weights it trained."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from goldimask.campaign.demo import demo
from goldimask.campaign.grid import finished, places
from goldimask.campaign.run import make_plan, run_campaign, write_results
from goldimask.campaign.settings import (
    Campaign,
    JudgingSection,
    cell_recipe,
    cells,
    check,
    flat_words,
    load_campaign,
)
from goldimask.config import apply_overrides, packaged_recipes
from goldimask.errors import GoldimaskError
from goldimask.records import open_run, read_manifest
from goldimask.report.page import LIMIT
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
        cost_rounds=1,
    )


def test_cells_are_runs_made_once_and_found_again(campaign: Campaign, tmp_path: Path) -> None:
    made = run_campaign(campaign, tmp_path, slots=2)
    assert not made.failed and made.ran == 5 and len(made.cells) == 3
    for place in places(campaign, tmp_path):
        if place.recipe is not None:
            run = open_run(place.folder)
            assert run.manifest is not None and run.manifest.kind == "train"
            assert run.method == place.cell.row and run.metrics and len(run.outcomes) == 8
    again = run_campaign(campaign, tmp_path)
    assert again.ran == 0 and again.cells.keys() == made.cells.keys()
    summary = write_results(campaign, again, tmp_path, None)
    assert any(name.startswith("main") for names in summary["tables"].values() for name in names)
    wider = replace(campaign, seeds=(0, 1))  # another seed leaves the others as they are
    assert len(make_plan(wider, tmp_path).done) == 3
    longer = replace(campaign, judging=replace(JUDGING, problems=5))
    (jobs,) = {tuple(j.name for j in jobs) for jobs in make_plan(longer, tmp_path).missing.values()
               if jobs and "vanilla" in jobs[0].name}  # fmt: skip
    assert len(jobs) == 1 and "eval" in jobs[0]  # only what is new is decoded

    place = places(campaign, tmp_path)[1]
    adapter = place.folder / "adapter" / "adapter_model.safetensors"
    other = places(campaign, tmp_path)[2].folder / "adapter" / "adapter_model.safetensors"
    shutil.copy(other, adapter)
    with pytest.raises(GoldimaskError, match="other weights"):
        finished(campaign, place)


def test_the_key_follows_the_content(campaign: Campaign, tmp_path: Path) -> None:
    def folder(wanted: Campaign) -> str:
        return places(wanted, tmp_path)[1].folder.name

    name = folder(campaign)
    same = replace(campaign, output="elsewhere", seeds=(0, 1), cost_rounds=9)
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
    first = demo(tmp_path, [*small_words, "seeds=[42]"])
    second = demo(tmp_path, [*small_words, "seeds=[43]"])
    runs = [places(load_campaign("demo", None, [*small_words, f"seeds=[{s}]"]), tmp_path)[1]
            for s in (42, 43)]  # fmt: skip
    manifests = [read_manifest(place.evaluation) for place in runs]
    assert manifests[0] is not None and manifests[1] is not None
    assert manifests[0].weights != manifests[1].weights
    losses = [found["results"]["vanilla"]["heldout"] for found in (first, second)]
    assert losses[0] != losses[1]
    told: list[str] = []
    again = demo(tmp_path, [*small_words, "seeds=[42]"], say=told.append)
    assert again["results"] == first["results"] and "reusing 3 of 3" in told[0]
    assert Path(again["report"]).is_file()
    page = Path(again["page"]).read_text("utf-8")
    assert len(page.encode()) < LIMIT
    parts = {s["kind"]: s["data"] for s in embedded(page)["sections"]}
    assert list(parts) == ["results", "curves", "steps", "decodes"]
    assert [row["name"] for row in parts["results"]["rows"]] == ["base", "vanilla", "goldimask-d"]
    assert len(parts["results"]["tasks"]) == 5 and parts["results"]["facts"]["seed"] == 42
    assert parts["curves"]["charts"][0]["name"] == "loss"
    assert [m["label"] for m in parts["decodes"]["groups"][0]["models"]] == [
        "base",
        "vanilla",
        "goldimask-d",
    ]


@pytest.fixture
def small_words(small_model: Path) -> list[str]:
    words = [f"change.{word}" for word in flat_words(SMALL)]
    return [*words, "judging.problems=2", "judging.taus=[0.05]", "judging.main_tau=0.05"]


@pytest.mark.parametrize("name", ["lab", "demo"])
def test_packaged_campaigns_validate(name: str) -> None:
    import yaml

    presets = yaml.safe_load(packaged_recipes()[name].read_text()).get("presets", {})
    for preset in (None, *presets):
        wanted = load_campaign(name, preset)
        recipes = [cell_recipe(wanted, cell) for cell in cells(wanted)]
        assert sum(r is not None for r in recipes) >= 2


def test_presets_and_overrides() -> None:
    assert load_campaign("lab", "smoke").seeds == (0,)
    changed = load_campaign("lab", "smoke", ["change.trainer.max_steps=7"])
    assert changed.change["trainer"]["max_steps"] == 7
    assert changed.change["data"]["limit"] == 116
    with pytest.raises(GoldimaskError, match="did you mean 'smoke'"):
        load_campaign("lab", "smok")


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
