"""The shipped recipes: one per backbone, and every run of the paper from four words."""

from __future__ import annotations

import pytest

from goldimask.config import load_recipe, packaged_recipes, recipe_dict
from goldimask.errors import GoldimaskError
from goldimask.presets import MAIN, PRESETS

BACKBONES = {
    "llada8b": "llada-8b-instruct",
    "llada1.5": "llada-1.5",
    "dream7b": "dream-7b-instruct",
}
CORPORA = ("s1k", "lift-sft-12k", "kodcode")
MAINS = set(MAIN)
PUBLISHED = {  # rows of the tables: main results, maximisers, components, priority, weighting
    *("vanilla", "cart", "gift", "lift-2", "lift-3", "agdo"),
    *("goldimask-d", "goldimask-r", "goldimask-t", "goldimask-p"),
    *("random-waterfill", "static-waterfill", "goldimask-d-uniform"),
    *("goldimask-d-1mp", "goldimask-d-p1mp", "goldimask-d-p1mp2"),
    *("goldimask-d-uncapped", "goldimask-d-dro", "goldimask-d-c5", "goldimask-d-c15"),
}

# What the paper's runs share, key by key (section 4.1, appendix "Training setup"; LIFT's launcher).
PROTOCOL = {
    "lora": {
        "r": 128,
        "alpha": 256.0,
        "dropout": 0.05,
        "targets": ["q_proj", "k_proj", "v_proj"],
    },
    "global_batch_size": 8,
    "trainer": {
        "max_steps": 2480,
        "per_device_train_batch_size": 1,
        "learning_rate": 5e-06,
        "weight_decay": 0.1,
        "max_grad_norm": 1.0,
        "lr_scheduler_type": "linear",
        "warmup_steps": 0,
        "bf16": True,
        "gradient_checkpointing": False,
        "logging_steps": 10,
        "eval_steps": 100,
        "save_steps": 100,
        "save_total_limit": 2,
        "report_to": ["tensorboard"],
    },
    "evaluation": {
        "objective": "vanilla",
        "t_grid": 16,
        "pairs": 128,
        "batch_size": 4,
        "patience": None,
    },
}
DATA = {
    "path": None,
    "split": None,
    "subset": None,
    "options": {},
    "columns": {},
    "turns": "last",
    "mixture": [],
    "mixture_size": None,
    "limit": None,
    "max_length": 4096,
    "overlength": "truncate",
    "validation": 0.01,
    "supervise": "response_no_pad",
    "supervise_turn_end": False,
    "skip_bad_rows": False,
    "group_by_length": False,
    "pad_to_multiple": 8,
}
METHOD = {
    "noise": {},
    "select": {},
    "weigh": {},
    "attention_layer": None,
    "probe": {"mode": None},
    "protocol": "goldimask",
}
HELD = {"path": None, "attn": "sdpa", "quant": None, "kernel": "torch", "attention_rows": "token"}
HELD |= {"compile": None, "layout": None, "shift": None, "mask_id": None}


@pytest.mark.parametrize("corpus", CORPORA)
@pytest.mark.parametrize("name", BACKBONES)
def test_every_run_of_the_paper_is_four_words(name: str, corpus: str) -> None:
    ablations = PUBLISHED - MAINS if (name, corpus) == ("llada8b", "s1k") else set()
    for preset in sorted((PUBLISHED & MAINS) | ablations):
        for seed in (42, 43):
            words = [f"method.preset={preset}", f"data.corpus={corpus}", f"seed={seed}"]
            assert recipe_dict(load_recipe(name, words)) == {
                "seed": seed,
                "output": f"runs/{name}-{corpus}-{preset}-s{seed}",
                "backbone": {"name": BACKBONES[name], "dtype": "bfloat16", **HELD},
                "data": {"corpus": corpus, **DATA},
                "method": {"preset": preset, **METHOD},
                **PROTOCOL,
            }


def test_only_what_the_paper_trained_is_called_the_papers() -> None:
    rows = {entry.name: entry.load() for entry in PRESETS}
    assert {name for name, row in rows.items() if row.published} == PUBLISHED
    for name in rows.keys() - PUBLISHED:
        assert rows[name].paper.startswith("not in the paper") and rows[name].cost is None
    for name, file in packaged_recipes().items():
        says = "the paper's protocol" in file.read_text(encoding="utf-8")
        assert says == (name in BACKBONES), name


def test_batches_are_grouped_by_length_only_where_that_saves_padding() -> None:
    """One example at a time has none; each recipe that trains says which it does."""
    for name in (*BACKBONES, "study1", "laptop", "tiny"):
        assert "group_by_length" in packaged_recipes()[name].read_text(encoding="utf-8"), name
        made = load_recipe(name)
        alone = made.trainer.get("per_device_train_batch_size") == 1
        assert made.data.group_by_length is not alone, name


def test_every_recipe_validates() -> None:
    """Method, trainer section and batch size, as `--dry-run` checks them."""
    from goldimask.backbones import BACKBONES as KNOWN
    from goldimask.data.corpora import CORPORA as NAMED
    from goldimask.train.arguments import micro_batches
    from goldimask.train.prepare import make_method

    for name in BACKBONES:
        recipe = load_recipe(name)
        assert recipe.seed == 42 and recipe.data.corpus == "s1k"
        assert make_method(recipe.method).name == recipe.method.preset == "goldimask-d"
        assert micro_batches(recipe.trainer, recipe.global_batch_size, 4) == (1, 2)
        assert recipe.backbone.name in KNOWN and recipe.data.corpus in NAMED
        text = packaged_recipes()[name].read_text()
        assert text.startswith("# ") and f"goldimask train {name}" in text


def test_a_recipe_is_found_by_name_and_a_typo_is_answered() -> None:
    assert load_recipe("llada8b", ["seed=43"]).seed == 43
    with pytest.raises(GoldimaskError, match="did you mean 'llada8b'"):
        load_recipe("llada8")


def test_the_output_names_what_differs() -> None:
    assert load_recipe("tiny", ["seed=1"]).output == "runs/tiny-1k-labels-goldimask-d-s1"
    assert load_recipe("tiny", ["output=runs/x"]).output == "runs/x"
    assert load_recipe("tiny", ["output=runs/{backbone.path}"]).output == "runs/none"
    with pytest.raises(GoldimaskError, match=r"tiny: output: '\{sed\}' is not a key"):
        load_recipe("tiny", ["output=runs/{sed}"])
