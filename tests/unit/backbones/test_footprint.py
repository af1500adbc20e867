"""Memory from shapes against storage counted on fake tensors, for the real 8B and 7B configs."""

from __future__ import annotations

from typing import Any

import pytest

from goldimask.backbones.checkpoint import FAMILIES, empty_model
from goldimask.backbones.footprint import Use, footprint
from goldimask.backbones.lora import TARGETS
from goldimask.backbones.summary import adapter_use
from goldimask.known import PUBLISHED
from storage import tracked


def published(name: str, blocks: int | None = None) -> tuple[Any, dict[str, Any]]:
    row = next(r for r in PUBLISHED if r.name == name)
    sizes = dict(row.sizes)
    if blocks is not None:
        sizes["n_layers" if "n_layers" in sizes else "num_hidden_layers"] = blocks
    return FAMILIES[row.layout], sizes


def expected(
    family: Any, sizes: dict[str, Any], lora: bool = True, length: int = 4096, **options: Any
) -> float:
    model = empty_model(family.config(**sizes), family)
    adapter = adapter_use(model, family, 128, TARGETS) if lora else {}
    shards = options.pop("processes", 1)
    return footprint(model, Use(length, **adapter, shards=shards, **options))["peak"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("llada-8b-instruct", {"checkpointed": True}),
        ("llada-8b-instruct", {"lora": False, "processes": 8}),
        ("dream-7b-instruct", {"quant": "nf4"}),
        ("dream-7b-instruct", {"lora": False}),
        ("dream-7b-instruct", {"processes": 8, "checkpointed": True}),
    ],
    ids=str,
)
def test_two_blocks_of_the_real_model(name: str, options: dict[str, Any]) -> None:
    """Everything of the published shape but the number of blocks."""
    family, sizes = published(name, 2)
    counted = max(tracked(family, sizes, length=1024, **options).values())
    assert expected(family, sizes, length=1024, **options) == pytest.approx(counted, rel=0.1)


def test_the_paper_s_step_on_the_whole_8b_model() -> None:
    family, sizes = published("llada-8b-instruct")
    counted = tracked(family, sizes)["train"]
    assert counted == pytest.approx(38.2, abs=0.5)  # the audit counted 38 in another way
    assert expected(family, sizes) == pytest.approx(counted, rel=0.1)
    assert expected(family, sizes, checkpointed=True) == pytest.approx(18.3, rel=0.05)
