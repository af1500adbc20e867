"""Tiny checkpoints of every family, written and loaded once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from builders import WRITERS
from goldimask.backbones import Backbone, load_backbone
from goldimask.types import Batch


@pytest.fixture(scope="session", params=["llada", "dream"])
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("hub")
    return {name: write(root / name) for name, write in WRITERS.items()}


@pytest.fixture(scope="session")
def folder(family: str, folders: dict[str, Path]) -> Path:
    return folders[family]


@pytest.fixture
def backbone(folder: Path) -> Backbone:
    return load_backbone(folder)


@pytest.fixture
def make_batch() -> Callable[..., tuple[Batch, torch.Tensor]]:
    """Random rows of the given lengths, padded on one side, and a random hidden set."""

    def make(
        lengths: list[int], side: str = "right", pad: int = 320, seed: int = 0
    ) -> tuple[Batch, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        width = max(lengths)
        ids = torch.full((len(lengths), width), pad)
        valid = torch.zeros(len(lengths), width, dtype=torch.bool)
        hidden = torch.zeros_like(valid)
        for b, n in enumerate(lengths):
            where = slice(0, n) if side == "right" else slice(width - n, width)
            ids[b, where] = torch.randint(300, (n,), generator=generator)
            valid[b, where] = True
            drawn = torch.rand(n, generator=generator) < 0.5
            drawn[:3] = False  # a prompt
            hidden[b, where] = drawn
        padded = len(set(lengths)) > 1
        return Batch(ids, valid.clone(), valid, torch.arange(len(lengths)), padded), hidden

    return make
