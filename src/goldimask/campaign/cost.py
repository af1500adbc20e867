"""Training cost of every row relative to Vanilla: CPU time of a step, measured in one process.

    all methods in turn on one batch and its draws, minimum over the rounds (`train/cost.py`)

Rows that differ only in an exponent or a cap cost the same; each is timed all the same, so that the
spread of such rows shows how exact the figures are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from goldimask.backbones.identity import weights_hash
from goldimask.campaign.settings import BASE, Campaign, Cell, cell_recipe, label
from goldimask.config import recipe_dict
from goldimask.files import write_json
from goldimask.jobs import job_key
from goldimask.records import read_json


def costs(campaign: Campaign, backbone: str, folder: Path) -> dict[str, float]:
    """Row -> ratio; from the folder when nothing changed. Empty when not asked for."""
    if campaign.cost_rounds < 1:
        return {}
    rows = [row for row in dict.fromkeys(("vanilla", *campaign.rows)) if row != BASE]
    recipes = {row: cell_recipe(campaign, Cell(backbone, row, campaign.seeds[0])) for row in rows}
    settings: dict[str, Any] = {
        row: recipe_dict(recipe) for row, recipe in recipes.items() if recipe is not None
    }
    key = job_key(
        "measure", weights=weights_hash(backbone), settings=[settings, campaign.cost_rounds]
    )
    file = folder / "cost" / f"{label(backbone)}-{key}.json"
    known = read_json(file)
    if not known:
        known = measure(recipes, campaign.cost_rounds)
        write_json(file, known)
    return known["ratios"]


def measure(recipes: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Time one step of every row on the backbone and data of the first."""
    from goldimask.data.batches import make_batch
    from goldimask.processes import torch_threads
    from goldimask.train.attention_layer import resolve_layer
    from goldimask.train.cost import run_rounds
    from goldimask.train.prepare import make_method, prepare

    ready = prepare(recipes["vanilla"])
    examples, seed = ready.data.train, ready.recipe.seed
    built = {}
    for row, recipe in recipes.items():
        built[row], _ = resolve_layer(
            make_method(recipe.method), ready.backbone, [], examples, seed, None, lambda line: None
        )
    size = ready.recipe.global_batch_size
    middle = sorted(examples, key=len)[max(0, (len(examples) - size) // 2) :][:size]
    batch = make_batch(middle, ready.backbone.pad_id, 8)
    with torch_threads():
        best = run_rounds(ready.backbone, built, [batch], rounds, lambda *a, **k: None)
    vanilla = best["vanilla"].seconds
    return {
        "ratios": {row: best[row].seconds / vanilla for row in recipes},
        "vanilla_seconds": vanilla,
    }
