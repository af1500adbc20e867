"""Campaign files: grids, parts, strictness, and what the packaged ones amount to."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from goldimask.campaign.grid import wanted
from goldimask.campaign.reading import load_campaign, load_parts
from goldimask.campaign.settings import cell_recipe, cells
from goldimask.config import packaged_recipes
from goldimask.errors import GoldimaskError

OWN = """
recipe: tiny
corpora: [mine.jsonl]
rows: [vanilla, gift, goldimask-d]
seeds: [1, 2, 3]
judging: {tasks: [gsm8k]}
"""


def write(folder: Path, text: str, name: str = "own.yaml") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_packaged_campaigns_validate_and_amount_to_the_paper() -> None:
    names = [n for n in packaged_recipes() if n.split("-")[0] in ("lab", "skills", "paper")]
    assert len(names) == 11
    trained = {}
    for name in names:
        presets = yaml.safe_load(packaged_recipes()[name].read_text()).get("presets", {})
        for preset in (None, *presets):
            found = wanted(load_parts(name, preset))
            trained[name] = sum(place.recipe is not None for place in found)
    # 3 x 8 x 3, 8 x 3, 2 x 8 x 3, 10 x 3 beyond vanilla and D, 4 x 2 x 2 of T and P
    assert trained["paper-table1"] == 72 and trained["paper-table2"] == 24
    assert trained["paper-code"] == 48 and trained["paper-ablations"] == 36
    assert trained["paper-maximizers"] == 112 and trained["paper-time"] == 16
    assert trained["paper"] == 72 + 24 + 48 + 30 + 16 == 190


def test_parts_share_cells_and_put_their_questions_to_them() -> None:
    found = {place.name: place for place in wanted(load_parts("paper"))}
    one = found["llada-1.5_s1k_goldimask-d_s42"]
    assert one.parts == ("paper-table1", "paper-maximizers", "paper-aime", "paper-decoding")
    assert [e.tasks[0] for e in one.asked] == ["gsm8k", "aime24", "gsm8k"]
    base = found["llada-8b-instruct_base"]
    assert base.parts == ("paper-table1", "paper-table2", "paper-code") and len(base.asked) == 2


def test_a_campaign_of_ones_own_is_a_few_lines(tmp_path: Path) -> None:
    campaign = load_campaign(write(tmp_path, OWN))
    found = cells(campaign)
    assert len(found) == 9 and found[0].name == "tiny_mine_vanilla_s1"
    recipe = cell_recipe(campaign, found[0])
    assert recipe is not None
    assert recipe.data.path == "mine.jsonl" and recipe.data.corpus is None and recipe.seed == 1
    assert campaign.name == "own"


def test_include_exclude_and_changes_per_axis(tmp_path: Path) -> None:
    more = """
corpora: [tiny-sft, tiny-1k]
include: [{rows: [goldimask-t], seeds: [1]}]
exclude: [{rows: ["g*"], corpora: [tiny-1k]}, {seeds: [3]}]
per:
  corpora: {tiny-1k: {data: {limit: 7}}}
  rows: {gift: {trainer: {learning_rate: 0.5}}}
"""
    campaign = load_campaign(write(tmp_path, OWN.replace("corpora: [mine.jsonl]\n", "") + more))
    found = [(c.corpus, c.row, c.seed) for c in cells(campaign)]
    assert found == [
        *(("tiny-sft", row, 1) for row in ("vanilla", "gift", "goldimask-d")),
        ("tiny-1k", "vanilla", 1),
        ("tiny-sft", "goldimask-t", 1),
        *(("tiny-sft", row, 2) for row in ("vanilla", "gift", "goldimask-d")),
        ("tiny-1k", "vanilla", 2),
    ]
    recipes = {c.name: cell_recipe(campaign, c) for c in cells(campaign)}
    assert recipes["tiny_tiny-1k_vanilla_s1"].data.limit == 7  # type: ignore[union-attr]
    assert recipes["tiny_tiny-sft_vanilla_s1"].data.limit is None  # type: ignore[union-attr]
    rates = {n: r.trainer["learning_rate"] for n, r in recipes.items() if r}
    assert {n for n, rate in rates.items() if rate == 0.5} == {
        "tiny_tiny-sft_gift_s1",
        "tiny_tiny-sft_gift_s2",
    }


def test_presets_and_overrides() -> None:
    assert load_campaign("lab", "smoke").seeds == (0,)
    changed = load_campaign("lab", "smoke", ["change.trainer.max_steps=7"])
    assert changed.change["trainer"]["max_steps"] == 7
    assert changed.change["data"]["limit"] == 116
    assert {len(part.seeds) for part in load_parts("paper", None, ["seeds=[1]"])} == {1}
    with pytest.raises(GoldimaskError, match="did you mean 'smoke'"):
        load_campaign("lab", "smok")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("rowss: [vanilla]", r"own.yaml: rowss: unknown key; did you mean 'rows'"),
        ("judging: {task: [gsm8k]}", r"own.yaml: judging.task: unknown key"),
        ("judging: {tasks: [gsm8k], lengths: {math500: [1]}}", r"judging.lengths.math500"),
        ("judging: {shards: 0}", "shards"),
        ("per: {rows: {gifd: {}}}", r"per.rows.gifd: no cell has it; did you mean 'gift'"),
        ("include: [{row: [gift]}]", r"include\[0\].row: unknown key"),
        ("exclude: [{rows: ['*']}]", "nothing is left"),
        ("tables: [mian]", "tables: unknown 'mian'; did you mean 'main'"),
        ("change: {traner: {}}", "traner: unknown key"),
        ("parts: [lab, nothing]", "recipe 'nothing'"),
        ("parts: [paper]", "has parts itself"),
        ("corpora: [a/x.jsonl, b/x.jsonl]", "share the last part"),
    ],
)
def test_mistakes_name_the_file_and_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(GoldimaskError, match=message):
        load_parts(write(tmp_path, text))


def test_a_row_at_a_rate_changes_the_rate_alone(tmp_path: Path) -> None:
    text = OWN.replace("[vanilla, gift, goldimask-d]", "[vanilla, vanilla@5e-4, wide@2e-3]")
    text += """
variants: {wide: {preset: goldimask-d, weigh: {cap: 20}}}
per: {rows: {vanilla: {trainer: {max_steps: 7}}}}
"""
    campaign = load_campaign(write(tmp_path, text))
    plain, slow, wide = (cell_recipe(campaign, c) for c in cells(campaign)[:3])
    assert plain and slow and wide
    assert [slow.trainer["learning_rate"], wide.trainer["learning_rate"]] == [5e-4, 2e-3]
    assert plain.trainer["learning_rate"] == 1e-3  # the recipe's own
    assert plain.trainer["max_steps"] == slow.trainer["max_steps"] == 7
    assert slow.method == plain.method and wide.method.weigh["cap"] == 20
    assert cells(campaign)[1].name == "tiny_mine_vanilla@5e-4_s1"


@pytest.mark.parametrize("rate", ["", "fast", "-1e-3", "0", "inf", "nan"])
def test_a_rate_that_is_none_is_refused(tmp_path: Path, rate: str) -> None:
    text = OWN.replace("[vanilla, gift, goldimask-d]", f'["vanilla@{rate}"]')
    with pytest.raises(GoldimaskError, match=f"'{rate}' is no learning rate; write vanilla@1e-3"):
        load_campaign(write(tmp_path, text))
