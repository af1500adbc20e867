"""Small runs, and what is compared of them."""

from __future__ import annotations

import json
from pathlib import Path

import torch

from goldimask.config import Recipe, parse_recipe


def recipe(model: Path, output: Path, preset: str = "goldimask-d", **changes) -> Recipe:
    values = {
        "seed": 5,
        "output": str(output),
        "backbone": {"path": str(model)},
        "data": {"corpus": "tiny-sft", "limit": 60, "validation": 12, "supervise_turn_end": True},
        "method": {"preset": preset},
        "global_batch_size": 8,
        "evaluation": {"pairs": 24},
        "trainer": {
            "max_steps": 8,
            "learning_rate": 1e-3,
            "logging_steps": 1,
            "eval_steps": 4,
            "save_steps": 4,
            "save_total_limit": 3,
            "load_best_model_at_end": False,
            **changes.pop("trainer", {}),
        },
        **changes,
    }
    return parse_recipe(values)


def run(made: Recipe, resume: bool = False) -> Path:
    from goldimask.train.run import train

    return Path(train(made, resume=resume)["output"])


def losses(folder: Path) -> list[float]:
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    return [x["loss"] for x in lines if "loss" in x]


# Logs, evaluations and saves that do not fall together, and an evaluation before the first step.
LONG = {
    "trainer": {"max_steps": 12, "logging_steps": 5, "eval_on_start": True},
    "data": {
        **{"corpus": "tiny-1k", "options": {"eta": 0.5}, "limit": 60, "validation": 12},
        "supervise_turn_end": True,
    },
}
CLOCKS = ("tokens_per_s", "seconds/", "train_runtime", "_per_second")


def logged(folder: Path) -> list[dict]:
    """Every line of the log, without what a clock measured."""
    lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in x.items() if not any(c in k for c in CLOCKS)} for x in lines]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    adapter = folder / "adapter" / "adapter_model.safetensors"
    return load_file(adapter if adapter.exists() else folder / "model" / "model.safetensors")


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[k], b[k]) for k in a)
