"""Random backbones of both alignments whose confidences spread over (0, 1)."""

from __future__ import annotations

import pytest
import torch

from builders import WRITERS
from goldimask.backbones import Backbone, load_backbone

FAMILIES = ("llada", "dream")


def build(folder, family: str, sharpness: float = 4.0, seed: int = 0) -> Backbone:
    path = WRITERS[family](folder / f"{family}-{seed}", seed=seed)
    backbone = load_backbone(path, dtype="float32", device="cpu")
    with torch.no_grad():
        backbone.model.lm_head.weight.mul_(sharpness)
    return backbone


@pytest.fixture(scope="session", params=FAMILIES)
def backbone(request, tmp_path_factory) -> Backbone:
    return build(tmp_path_factory.mktemp("decode"), request.param)


@pytest.fixture(scope="session")
def llada(tmp_path_factory) -> Backbone:
    return build(tmp_path_factory.mktemp("llada"), "llada")
