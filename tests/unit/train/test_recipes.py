"""The paper's recipes: what is committed is what the template makes, and all of it is valid."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from goldimask.config import load_recipe, parse_recipe
from goldimask.errors import GoldimaskError
from goldimask.presets import PRESETS
from goldimask.train.recipes import BACKBONES, CORPORA, MAIN, all_recipes, write_recipes

ROOT = Path(__file__).parents[3]


def test_committed_files_are_what_the_template_makes() -> None:
    committed = {f.stem: f.read_text() for f in (ROOT / "recipes").glob("*.yaml")}
    assert committed == all_recipes(), "run: python -m goldimask.train.recipes recipes"


def test_every_combination_is_there() -> None:
    names = all_recipes().keys()
    for backbone in BACKBONES:
        for corpus in CORPORA:
            assert {f"{backbone}-{corpus}-{m}" for m in MAIN} <= names
    assert {f"llada8b-s1k-{m}" for m in PRESETS.names()} <= names


def test_every_recipe_validates() -> None:
    """Method, trainer section and batch size, as `--dry-run` checks them."""
    from goldimask.backbones import BACKBONES as KNOWN
    from goldimask.build import build_method
    from goldimask.data.corpora import CORPORA as NAMED
    from goldimask.train.arguments import check_batch

    for name, text in all_recipes().items():
        recipe = parse_recipe(yaml.safe_load(text), name)
        assert build_method(recipe.method).name == recipe.method.preset
        assert check_batch(recipe, 4) == (1, 2)
        assert recipe.backbone.name in KNOWN and recipe.data.corpus in NAMED
        assert recipe.trainer["max_steps"] == 2480 and recipe.lora is not None
        assert recipe.output.endswith(f"{name}-s42")
        assert text.startswith("# ") and f"goldimask train {name}" in text


def test_a_recipe_is_found_by_name_and_a_typo_is_answered() -> None:
    recipe = load_recipe("llada8b-s1k-goldimask-d", ["seed=43"])
    assert recipe.seed == 43 and recipe.method.preset == "goldimask-d"
    with pytest.raises(GoldimaskError, match="did you mean 'llada8b-s1k-goldimask-d'"):
        load_recipe("llada8b-s1k-goldimask-dd")


def test_stale_files_are_removed(tmp_path: Path) -> None:
    (tmp_path / "llada8b-s1k-old.yaml").write_text("seed: 1\n")
    assert write_recipes(tmp_path) == len(list(tmp_path.glob("*.yaml")))
    assert not (tmp_path / "llada8b-s1k-old.yaml").exists()
