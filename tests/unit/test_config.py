"""Recipes are strict: a mistake names its key and the nearest valid one."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from goldimask.config import (
    apply_overrides,
    load_recipe,
    packaged_recipes,
    parse_recipe,
    recipe_yaml,
)
from goldimask.errors import GoldimaskError


def test_defaults_and_round_trip() -> None:
    recipe = parse_recipe({"seed": 7, "lora": {"r": 4}, "trainer": {"learning_rate": "5e-6"}})
    assert recipe.seed == 7
    assert recipe.lora is not None and recipe.lora.r == 4 and recipe.lora.alpha == 256
    assert parse_recipe(yaml.safe_load(recipe_yaml(recipe))) == recipe


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"sed": 1}, ["sed", "seed"]),
        ({"method": {"presset": "vanilla"}}, ["method.presset", "preset"]),
        ({"data": {"max_lenght": 3}}, ["data.max_lenght", "max_length"]),
        ({"lora": {"rank": 3}}, ["lora.rank"]),
        ({"seed": "many"}, ["seed", "many"]),
        ({"data": {"overlength": "cut"}}, ["data.overlength", "truncate"]),
        ({"data": "file.jsonl"}, ["data"]),
    ],
)
def test_mistakes_name_the_key(values: dict, words: list[str]) -> None:
    with pytest.raises(GoldimaskError) as error:
        parse_recipe(values, "r.yaml")
    message = str(error.value)
    assert "r.yaml" in message
    for word in words:
        assert word in message


def test_overrides_are_yaml_and_nested() -> None:
    values = apply_overrides({"method": {"preset": "vanilla"}}, ["method.weigh.cap=5", "seed=3"])
    assert values == {"method": {"preset": "vanilla", "weigh": {"cap": 5}}, "seed": 3}
    assert apply_overrides({"lora": None}, ["lora.r=2"]) == {"lora": {"r": 2}}


@pytest.mark.parametrize("word", ["seed", "=3", "seed.x=1", "a=[1"])
def test_bad_overrides(word: str) -> None:
    with pytest.raises(GoldimaskError, match="override"):
        apply_overrides({"seed": 1}, [word])


def test_overrides_do_not_change_their_input() -> None:
    before = {"method": {"preset": "vanilla"}}
    apply_overrides(before, ["method.preset=cart"])
    assert before == {"method": {"preset": "vanilla"}}


def test_malformed_yaml_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("seed: 1\nmethod: {preset: [\n")
    with pytest.raises(GoldimaskError, match=r"bad\.yaml:\d+:\d+: not valid YAML"):
        load_recipe(file)
    file.write_text("- a\n- b\n")
    with pytest.raises(GoldimaskError, match="mapping"):
        load_recipe(file)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GoldimaskError, match=r"bad\.yaml: cannot be read as text"):
        load_recipe(file)


def test_missing_recipe_lists_the_packaged_ones(tmp_path: Path) -> None:
    with pytest.raises(GoldimaskError, match="no such file"):
        load_recipe(tmp_path / "nothing.yaml")


def test_packaged_training_recipes_validate() -> None:
    from goldimask.train.arguments import check_trainer
    from goldimask.train.prepare import make_method

    campaigns = ("lab", "paper", "skills")  # checked where campaigns are
    recipes = {n: f for n, f in packaged_recipes().items() if n.split("-")[0] not in campaigns}
    assert recipes
    for file in recipes.values():
        recipe = load_recipe(file)
        make_method(recipe.method)
        check_trainer(recipe.trainer)


def test_every_backbone_key_reaches_the_loader(monkeypatch: pytest.MonkeyPatch) -> None:
    import dataclasses

    from goldimask.train import prepare

    asked: dict = {}
    monkeypatch.setattr(
        prepare, "load_backbone", lambda name, **rest: asked.update(rest, name=name)
    )
    section = {"path": "p", "dtype": "float32", "attn": "eager", "quant": "nf4"}
    section |= {"kernel": "liger", "attention_rows": "predictor"}
    made = parse_recipe({"backbone": section}).backbone
    prepare.make_backbone(made, "cpu")
    assert {k: asked[k] for k in section if k != "path"} == {
        k: v for k, v in section.items() if k != "path"
    }
    assert set(asked) == {f.name for f in dataclasses.fields(made)} - {"path"} | {"device"}
    for key, wrong in (("kernel", "triton"), ("attention_rows", "row")):
        with pytest.raises(GoldimaskError, match=f"backbone.{key}"):
            parse_recipe({"backbone": {key: wrong}})
