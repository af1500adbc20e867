"""A check that fails, a part that breaks, and the parts that a CPU passes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import goldimask.selftest as room
from goldimask.cli import app
from goldimask.selftest import Line, arithmetic, check, guarded


def test_a_check_knows_its_side() -> None:
    assert check("x", 2.0, 1.0).verdict == "failed" and check("x", 1.0, 1.0).verdict == "ok"
    assert check("x", 0.9, 1.0, least=True).verdict == "failed"
    assert check("x", float("nan"), 1.0).verdict == "failed"


def test_a_part_that_breaks_is_a_line_that_failed() -> None:
    def breaks() -> Iterator[Line]:
        yield Line("first", "here")
        raise RuntimeError("no kernel for this")

    lines = list(guarded("block", breaks()))
    assert [x.verdict for x in lines] == ["fact", "failed"] and "no kernel" in lines[1].found


def test_parts_are_checked_by_name(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["selftest", "--only", "blok", "--out", str(tmp_path / "x")])
    assert done.exit_code != 0 and "block" in str(done.exception)


@pytest.mark.real
def test_every_part_on_a_cpu(tmp_path: Path) -> None:
    out = tmp_path / "selftest.json"
    done = CliRunner().invoke(app, ["selftest", "--device", "cpu", "--out", str(out)])
    found = json.loads(out.read_text())
    failed = [x for x in found["lines"] if x["verdict"] == "failed"]
    assert done.exit_code == 0 and not failed, failed
    assert {x["part"] for x in found["lines"]} == set(room.PARTS)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_wrong_arithmetic_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device whose attention is off by a thousandth."""
    import goldimask.backbones.attention as attention

    exact, calls = attention.head_mean, []

    def wrong(*words, **more):
        calls.append(1)
        return exact(*words, **more) * (1.0 if len(calls) == 1 else 1.01)

    monkeypatch.setattr(attention, "head_mean", wrong)
    monkeypatch.setattr(arithmetic.DECODERS, "names", list)
    lines = list(arithmetic.run(torch.device("cpu")))
    assert "float32: attention, largest difference" in {
        x.check for x in lines if x.verdict == "failed"
    }
