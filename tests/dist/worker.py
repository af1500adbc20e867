"""Several short runs in the processes of one torchrun: `worker.py MODEL FOLDER NAME...`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

SGD = {"optim": "sgd", "learning_rate": 0.05, "max_steps": 6, "eval_steps": 3, "save_steps": 3}
SCENARIOS: dict[str, dict] = {
    "plain": {"trainer": {**SGD, "per_device_train_batch_size": 4}},
    "accumulated": {"trainer": {**SGD, "per_device_train_batch_size": 2}},
    "divided": {"trainer": {**SGD, "per_device_train_batch_size": 2}},  # in what engine they take
    "checkpointed": {
        "trainer": {**SGD, "per_device_train_batch_size": 2, "gradient_checkpointing": True}
    },
    "adapter": {
        "lora": {"r": 4, "alpha": 8, "dropout": 0.0},
        "trainer": {**SGD, "learning_rate": 1.0, "per_device_train_batch_size": 2},
    },
    "empty": {
        "trainer": {**SGD, "per_device_train_batch_size": 1},
        "data": {"path": "short.jsonl", "validation": 4, "group_by_length": False},
    },
    "remembering": {
        "preset": "goldimask-a",
        "trainer": {**SGD, "max_steps": 12, "per_device_train_batch_size": 2},
        "data": {"corpus": "tiny-sft", "limit": 36, "validation": 4},
    },
}


def made(name: str, model: Path, folder: Path, label: str):
    """The recipe of a scenario, or of its variant `NAME@fsdp2`."""
    from invariant.runs import recipe

    options = {k: dict(v) if isinstance(v, dict) else v for k, v in SCENARIOS[name].items()}
    if "path" in options.get("data", {}):
        options["data"]["path"] = str(folder / options["data"]["path"])
    if label == "one":  # a single process takes the whole batch at once, without recomputation
        kept = {"per_device_train_batch_size", "gradient_checkpointing"}
        options["trainer"] = {k: v for k, v in options["trainer"].items() if k not in kept}
    return recipe(model, folder / f"{name}-{label}", **options)


def main(model: str, folder: str, names: list[str]) -> None:
    from accelerate.state import AcceleratorState, GradientState

    from goldimask.processes import rank
    from goldimask.select.reveal import SubmodularSelect
    from goldimask.train.launch import environment
    from goldimask.train.run import train

    runs = SubmodularSelect.runs

    for word in names:
        name, _, kind = word.partition("@")
        for key in [k for k in os.environ if k.startswith("FSDP_") or k == "ACCELERATE_USE_FSDP"]:
            del os.environ[key]
        os.environ.update(environment(kind))  # type: ignore[arg-type]
        AcceleratorState._reset_state()  # the processes stay connected, only the engine changes
        GradientState._reset_state()
        divided = name == "divided" and rank() == 1
        SubmodularSelect.runs = (lambda self, device: "device") if divided else runs
        train(made(name, Path(model), Path(folder), kind))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
