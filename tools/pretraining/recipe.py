"""The pretraining recipe: everything that decides the shipped weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import ConfigDict, TypeAdapter

from goldimask.config import apply_overrides, read_yaml
from goldimask.errors import GoldimaskError, nearest
from goldimask.settings import make
from goldimask.tiny.families import PROBLEM_FAMILIES
from goldimask.tiny.problem import HARD_SHARE

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class ModelSection:
    """The family whose layout the model has, and its size."""

    family: Literal["llada", "dream"] = "llada"
    width: int = 128
    layers: int = 4
    heads: int = 4
    mlp: int = 384
    rope_theta: float = 1000.0
    max_length: int = 512
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class CanvasSection:
    """How many supervised `<|endoftext|>` follow the turn end (see `canvas.py`)."""

    short: float = 0.25  # share of examples with 0..`short_length` of them
    short_length: int = 32
    full: float = 0.12  # share of examples filled up to one of `lengths`
    lengths: tuple[int, ...] = (128, 160)
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class OptimSection:
    """Muon inside the blocks, AdamW elsewhere: linear warm-up, constant rate, linear decay."""

    muon_lr: float = 0.02
    momentum: float = 0.95
    lr: float = 3e-3
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    warmup: int = 50
    decay: int = 0  # steps at the end of the stage over which the rate falls
    floor: float = 0.0
    clip: float = 1.0
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class StageSection:
    """A part of the run with its own rates and canvas; it begins with fresh optimiser moments."""

    steps: int = 1000
    mix: dict[str, float] = field(default_factory=dict)  # instead of the run's mix; empty: that
    hard: float = HARD_SHARE  # share of hard problems
    frontier: float = 0.0  # share of masks as block decoding meets them (see `frontier.py`)
    reach: int = 32
    optim: OptimSection = field(default_factory=OptimSection)
    canvas: CanvasSection = field(default_factory=CanvasSection)
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class WatchSection:
    """What is measured on the way; it never changes the weights."""

    log_every: int = 20
    every: int = 500  # held-out loss and accuracy; also at the last step
    heldout: int = 40  # problems per task for the held-out loss
    problems: int = 20  # test problems per task that are decoded
    length: int = 128
    block: int = 32
    tau: float = 0.9
    checkpoint_every: int = 500
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class Pretraining:
    """A whole pretraining run."""

    seed: int = 0
    output: str = "runs/tiny-base"
    batch_size: int = 32
    window: int = 4  # batches whose examples are sorted by length together
    threads: int = 1  # the sums of a matrix product depend on it, so the weights do
    noise_floor: float = 0.1  # t ~ U(noise_floor, 1): bounds the weight 1/t
    mix: dict[str, float] = field(default_factory=dict)  # family -> share; empty: all alike
    model: ModelSection = field(default_factory=ModelSection)
    stages: tuple[StageSection, ...] = (StageSection(),)
    watch: WatchSection = field(default_factory=WatchSection)
    __pydantic_config__ = _STRICT

    @property
    def steps(self) -> int:
        return sum(stage.steps for stage in self.stages)

    def stage(self, step: int) -> tuple[StageSection, int]:
        """The stage of a step, and how many steps of it have been taken."""
        for stage in self.stages:
            if step < stage.steps:
                return stage, step
            step -= stage.steps
        raise IndexError(step)


def load_pretraining(path: str | Path, overrides: Sequence[str] = ()) -> Pretraining:
    """Read, override and check."""
    file = Path(path)
    if not file.is_file():
        raise GoldimaskError(f"{file}: no such recipe; the repository's is tools/tiny-base.yaml")
    values = apply_overrides(read_yaml(file), overrides)
    recipe = make(Pretraining, values, source=str(path))
    check(recipe, str(path))
    return recipe


def check(recipe: Pretraining, source: str) -> None:
    """What types cannot say."""
    positive = {
        "batch_size": recipe.batch_size,
        "threads": recipe.threads,
        "window": recipe.window,
        "watch.log_every": recipe.watch.log_every,
        "watch.every": recipe.watch.every,
        "watch.checkpoint_every": recipe.watch.checkpoint_every,
        "watch.heldout": recipe.watch.heldout,
        "model.heads": recipe.model.heads,
    }
    for key, value in positive.items():
        if value < 1:
            raise GoldimaskError(f"{source}: {key}: {value} must be at least 1")
    if not recipe.stages:
        raise GoldimaskError(f"{source}: stages: at least one is needed")
    for i, stage in enumerate(recipe.stages):
        if stage.steps < 1 or stage.steps % recipe.window:
            raise GoldimaskError(
                f"{source}: stages[{i}].steps: {stage.steps} must be a positive multiple of "
                f"window = {recipe.window}"
            )
    if recipe.model.width % (2 * recipe.model.heads):
        raise GoldimaskError(
            f"{source}: model.width: {recipe.model.width} must be a multiple of 2 * model.heads "
            f"= {2 * recipe.model.heads}"
        )
    if not 0.0 < recipe.noise_floor < 1.0:
        raise GoldimaskError(f"{source}: noise_floor: {recipe.noise_floor} must lie in (0, 1)")
    check_mix(recipe.mix, f"{source}: mix")
    for i, stage in enumerate(recipe.stages):
        check_mix(stage.mix, f"{source}: stages[{i}].mix")
        for key, share in {"hard": stage.hard, "frontier": stage.frontier}.items():
            if not 0.0 <= share <= 1.0:
                raise GoldimaskError(f"{source}: stages[{i}].{key}: {share} must lie in [0, 1]")


def check_mix(mix: dict[str, float], where: str) -> None:
    for name, share in mix.items():
        if name not in PROBLEM_FAMILIES:
            hint = nearest(name, PROBLEM_FAMILIES)
            raise GoldimaskError(f"{where}.{name}: unknown family of problems; {hint}")
        if not share > 0:
            raise GoldimaskError(f"{where}.{name}: {share} must be positive")


def pretraining_dict(recipe: Pretraining) -> dict[str, Any]:
    """Plain values, ready for YAML and for comparison."""
    return TypeAdapter(Pretraining).dump_python(recipe, mode="json")


def pretraining_yaml(recipe: Pretraining) -> str:
    """The resolved recipe as YAML; reading it back gives the same recipe."""
    return yaml.safe_dump(pretraining_dict(recipe), sort_keys=False)
