"""Four steps with an adapter, interrupted after two and resumed; with several devices, all ways.

An interruption here is an error in the third step: what a resume finds on disk is the same as after
a kill, which `tests/invariant` does for real.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
from safetensors.torch import load_file

from goldimask.config import Recipe, load_recipe
from goldimask.errors import RunFailed
from goldimask.processes import devices
from goldimask.selftest import Line, check, skipped
from goldimask.train.launch import launch
from goldimask.train.run import train
from goldimask.train.trainer import GoldiTrainer

WORDS = (
    *("data.corpus=tiny-sft", "data.limit=24", "data.validation=4", "data.max_length=128"),
    *("global_batch_size=4", "trainer.max_steps=4", "trainer.save_steps=2", "trainer.eval_steps=4"),
    *("trainer.logging_steps=2", "trainer.eval_on_start=false", "trainer.report_to=none"),
    *("evaluation.pairs=8", "evaluation.t_grid=2"),
)


def run(device: torch.device) -> Iterator[Line]:
    with tempfile.TemporaryDirectory(prefix="goldimask-selftest-") as name:
        folder = Path(name)
        words = [*WORDS, *precision(device)]
        straight = finished(made(folder / "straight", words))
        interrupt(made(folder / "resumed", words))
        resumed = finished(made(folder / "resumed", words), resume=True)
        yield check("resumed after two of four steps", apart(straight, resumed), 1e-3)
        yield from several(device, folder, straight, words)


def several(device: torch.device, folder: Path, one: Path, words: list[str]) -> Iterator[Line]:
    """The same four steps on two devices."""
    if device.type != "cuda" or devices() < 2:
        yield skipped("DDP and FSDP2", f"need two CUDA devices; here {devices()} {device.type}")
        return
    for kind in ("ddp", "fsdp2"):
        output = folder / kind
        quiet = ["train", "tiny", *words, f"output={output}", "--show", "0"]
        environment = dict(os.environ)
        try:
            launch(quiet, 2, kind)
        finally:
            os.environ.clear()
            os.environ.update(environment)
        yield check(f"{kind}, two devices against one", apart(one, output), 5e-2)


def precision(device: torch.device) -> list[str]:
    """As the paper's recipes on an accelerator."""
    if device.type != "cuda":
        return ["backbone.dtype=float32"]
    return ["backbone.dtype=bfloat16", "trainer.bf16=true"]


def made(output: Path, words: list[str]) -> Recipe:
    return load_recipe("tiny", [*words, f"output={output}"])


def finished(recipe: Recipe, resume: bool = False) -> Path:
    return Path(train(recipe, resume=resume)["output"])


def interrupt(recipe: Recipe) -> None:
    """Run until the third step, which fails."""
    whole = GoldiTrainer.training_step

    def failing(self: GoldiTrainer, *args, **kwargs) -> torch.Tensor:
        if self.state.global_step == 2:
            raise RunFailed("interrupted by the self-test")
        return whole(self, *args, **kwargs)

    GoldiTrainer.training_step = failing
    try:
        train(recipe)
    except RunFailed:
        return
    finally:
        GoldiTrainer.training_step = whole
    raise RunFailed("the run was not interrupted")


def apart(a: Path, b: Path) -> float:
    """Relative distance of two adapters; zero where they are equal bit for bit."""
    x, y = (load_file(f / "adapter" / "adapter_model.safetensors") for f in (a, b))
    if x.keys() != y.keys():
        return float("inf")
    square = sum(float((x[k].double() - y[k].double()).square().sum()) for k in x)
    return (square / sum(float(v.double().square().sum()) for v in x.values())) ** 0.5
