"""The golden record's only door to goldimask: every import of the library is in this file.

When a module or an argument of the library gets another name, this file follows and nothing else
does. Functions take and return plain data, so that the record says nothing about our classes.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
ENGINES = ("host", "device", "oracle")
Plain = dict[str, Any]


@cache
def backbone(name: str, **options: Any) -> Any:
    from goldimask.backbones import load_backbone

    return load_backbone(name, **options)


# ---------------------------------------------------------------- the step


def preset_names() -> list[str]:
    from goldimask.presets import PRESETS

    return [entry.name for entry in PRESETS]


def batch_of(rows: Sequence[Mapping[str, Any]], numbers: Sequence[int], pad_id: int) -> Any:
    """A padded batch of stored examples; an example's id is its number."""
    from goldimask.data.batches import make_batch
    from goldimask.types import Example

    examples = []
    for number in numbers:
        row = rows[number]
        first, last = row["prompt_length"], row["prompt_length"] + row["supervisable"]
        flags = [first <= i < last for i in range(len(row["ids"]))]
        examples.append(Example(row["ids"], first, flags, 1000 + number))
    return make_batch(examples, pad_id)


def steps(
    model: str,
    rows: Sequence[Mapping[str, Any]],
    visits: Sequence[tuple[int, Sequence[int]]],
    preset: str,
    seed: int,
    **options: Any,
) -> list[Any]:
    """The `StepOutput` and the gradient's norm of each visit (epoch, numbers of the examples).

    One method object sees all visits, in training mode, and the weights stay as they are.
    """
    import torch

    import goldimask

    own = backbone(model)
    parameters = [p for p in own.model.parameters() if p.requires_grad]
    step = goldimask.MaskedStep(goldimask.method(preset, **options), own.scorer)
    own.model.train()
    found = []
    for epoch, numbers in visits:
        batch = batch_of(rows, numbers, own.pad_id)
        out = step(own.model, batch, goldimask.Keys(seed, epoch))
        out.loss.backward()
        grads = [p.grad for p in parameters if p.grad is not None]
        norm = float(torch.stack([g.double().norm() for g in grads]).norm())
        own.model.zero_grad(set_to_none=True)
        found.append((out, norm))
    own.model.eval()
    return found


# ---------------------------------------------------------------- selectors


def selector_names() -> tuple[str, ...]:
    from goldimask.select import SELECTOR_NAMES

    return tuple(SELECTOR_NAMES)


def selections(
    attention: np.ndarray, priority: np.ndarray, budget: Any, selector: str, **options: Any
) -> list[tuple[list[int], float]]:
    """(order of choice, value) of each example of a batch, or of the only one."""
    from goldimask.select import select_reveal

    found = select_reveal(attention, priority, budget, selector, **options)
    found = found if isinstance(found, list) else [found]
    return [([int(i) for i in s.order], float(s.value)) for s in found]


# ---------------------------------------------------------------- decoding


def decoder_names() -> list[str]:
    from goldimask.decoding import DECODERS

    return [entry.name for entry in DECODERS]


def decoded(model: str, prompts: Sequence[Sequence[int]], decoder: str, **options: Any) -> Any:
    """What `decode` returns when every pass goes through the model's own forward."""
    from goldimask.decoding import Settings, decode

    if "engine" in {f.name for f in fields(Settings)}:  # a second, faster forward can be declined
        options["engine"] = "model"
    return decode(backbone(model), prompts, decoder, **options)


# ---------------------------------------------------------------- training


def loop_losses(name: str, preset: str, count: int) -> list[float]:
    """Losses of one of the loops in examples/."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    extra = {"cpu": True} if name == "accelerate_loop" else {}
    return module.main(model="tiny", preset=preset, steps=count, seed=42, batch_size=8, **extra)


def train_recipe(preset: str, output: Path, count: int, **sections: Any) -> Plain:
    """The smallest run that takes part in everything: held-out loss, logging, saving."""
    return {
        "seed": 5,
        "output": str(output),
        "backbone": {"name": "tiny"},
        "data": {"corpus": "tiny-sft", "options": {"seed": 0}, "limit": 60, "validation": 8},
        "method": {"preset": preset},
        "global_batch_size": 8,
        "evaluation": {"t_grid": 4},
        "trainer": {
            "max_steps": count,
            "learning_rate": 1e-4,  # Adam magnifies rounding by the rate: keep it below 1e-5
            "logging_steps": 1,
            "eval_steps": count,
            "save_steps": count,
            "load_best_model_at_end": False,
        },
        **sections,
    }


def train(recipe: Plain) -> Plain:
    """Train a recipe through the Trainer: its losses, and the held-out ones."""
    from goldimask.config import parse_recipe
    from goldimask.train.run import train as run

    summary = run(parse_recipe(recipe))
    lines = (Path(summary["output"]) / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return {
        "losses": [row["loss"] for row in rows if "loss" in row],
        "held_out_losses": [row["eval_loss"] for row in rows if "eval_loss" in row],
        "data": summary["data_hash"],
    }


# ---------------------------------------------------------------- scores


def verdicts(file: Path, task: str, protocol: str) -> list[Plain]:
    """What `score` says about each stored generation of a file."""
    from goldimask.eval.score import read_stored, score_stored
    from goldimask.eval.tasks import accepted, get_task

    options = accepted(task, {"allow_code_execution": True, "sandbox": "limits", "workers": 1})
    chosen = get_task(task, protocol=protocol, **options)
    scored = score_stored(read_stored([file], chosen), chosen)
    return [
        {
            "extracted": s.extracted,
            "correct": s.correct,
            "detail": s.detail.split(":")[0],
            "hits": int(s.hits),
            "of": int(s.of),
        }
        for s in scored.outcomes
    ]


# ---------------------------------------------------------------- the command line


def verb(words: Sequence[str], folder: Path) -> tuple[int, str, str]:
    """Run a verb in this process, inside a folder: exit code, stdout, and what went wrong.

    A word that ends in .py is a script of the clone and gets a process of its own.
    """
    from contextlib import chdir

    from typer.testing import CliRunner

    from goldimask.cli import app

    if words[0].endswith(".py"):
        command = [sys.executable, str(ROOT / words[0]), *words[1:]]
        script = subprocess.run(command, capture_output=True, text=True, cwd=folder)
        return script.returncode, script.stdout, " ".join(script.stderr.split())[-200:]
    with chdir(folder):
        done = CliRunner().invoke(app, list(words))
    own = done.exception is not None and not isinstance(done.exception, SystemExit)
    error = str(done.exception) if own else done.stderr
    return done.exit_code, done.stdout, " ".join(error.split())[-200:]
