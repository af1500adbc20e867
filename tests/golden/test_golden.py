"""What the library decides is what the golden record says (README.md beside this file)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from golden import compare, record, verbs

RECORDED = json.loads(record.RECORD.read_text(encoding="utf-8"))


@pytest.mark.parametrize("section", [s for s in record.SECTIONS if s != compare.BY_INTENT])
def test_section_is_as_recorded(section: str) -> None:
    found = record.record([section])[section]
    differing = compare.differences(section, RECORDED[section], found, elsewhere=True)
    assert not differing, "\n" + compare.table(differing, 20)


def test_quick_verbs_print_the_recorded_keys(tmp_path: Path) -> None:
    """The others take minutes and are compared by `compare.py`."""
    found = verbs.json_keys(tmp_path, verbs.QUICK)
    recorded = {name: RECORDED[compare.BY_INTENT][name] for name in verbs.QUICK}
    differing = compare.differences(compare.BY_INTENT, recorded, found)
    assert not differing, "\n" + compare.table(differing, 20)


def test_every_recorded_verb_worked() -> None:
    failed = [
        n for n, v in RECORDED[compare.BY_INTENT].items() if v["keys"][0].startswith("failed")
    ]
    assert not failed


def test_comparison_sees_decisions_exactly_and_losses_within_tolerance() -> None:
    before = {"a": {"order": "x", "losses": [1.0, 2.0], "steps": [3]}, "b": {"order": "y"}}
    near = {"a": {"order": "x", "losses": [1.0, 2.000009], "steps": [3]}, "b": {"order": "y"}}
    assert not compare.differences("steps", before, near)
    far = {"a": {"order": "z", "losses": [1.0, 2.00002], "steps": [4]}, "c": {"order": "y"}}
    found = {(d.case, d.what) for d in compare.differences("steps", before, far)}
    wanted = {("a", "order"), ("a", "losses"), ("a", "steps"), ("b", "case"), ("c", "case")}
    assert found == wanted
    assert not compare.differences("steps", {"a": before["a"]}, {"a": before["a"]}, True)
    moved = {"a": {**before["a"], "losses": [1.0, 2.001]}}
    assert not compare.differences("steps", {"a": before["a"]}, moved, elsewhere=True)
    wrong = {"a": {"order": "z", "losses": [1.0, 2.01], "steps": [3]}}
    seen = compare.differences("steps", {"a": before["a"]}, wrong, elsewhere=True)
    assert {d.what for d in seen} == {"order", "losses"}
