"""The python snippets of the method pages run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from goldimask.keys import Keys
from goldimask.methods import method
from goldimask.step import MaskedStep
from unit.fakes import FakeScorer, TableModel, make_batch

PAGES = Path(__file__).parents[2] / "docs" / "methods"
SNIPPETS = [
    pytest.param(code, id=f"{page.stem}-{k}")
    for page in sorted(PAGES.glob("*.md"))
    for k, code in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text(), re.S | re.M))
]


class Backbone:
    scorer, layers = FakeScorer(), 2


def test_there_are_snippets():
    assert any("goldimask-r" in s.id for s in SNIPPETS if s.id)


@pytest.mark.parametrize("code", SNIPPETS)
def test_snippet(code, capsys):
    made = method("goldimask-d")
    names = {
        "model": TableModel(), "backbone": Backbone(), "batch": make_batch(), "keys": Keys(1),
        "batches": [make_batch(), make_batch(seed=1)], "seed": 1, "Keys": Keys, "method": made,
        "step": MaskedStep(made, FakeScorer()),
    }  # fmt: skip
    exec(compile(code, "snippet", "exec"), names)
