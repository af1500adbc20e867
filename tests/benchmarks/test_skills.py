"""benchmarks/skills.py: roles, pairs and the strongest baseline, by numbers worked out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import skills
from goldimask.tiny.skills import ROLES
from unit.report.campaigns import answers, threshold, write_cell

SHARES = {  # taught, kept
    "base": (0.2, 0.9),
    "vanilla": (0.5, 0.8),
    "gift": (0.4, 1.0),
    "cart": (0.5, 0.7),
    "goldimask-d": (0.6, 0.9),
}


@pytest.fixture
def panels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[skills.Comparison]:
    monkeypatch.setattr("goldimask.backbones.identity.weights_hash", lambda *_, **__: "w")
    words = []
    for backbone in ("tiny", "tiny-b"):
        for row, shares in SHARES.items():
            found = [
                outcome
                for (role, names), share in zip(ROLES.items(), shares, strict=True)
                for outcome in answers(
                    share - 0.1 * (backbone == "tiny-b" and role == "taught" and row != "base"),
                    [f"tiny-{n}" for n in names],
                    [threshold(0.9)],
                    steps=(10 if role == "taught" else 20) if row == "goldimask-d" else 20,
                )
            ]
            method = None if row == "base" else {"preset": row}
            folder = tmp_path / f"{backbone}-{row}"
            words.append(f"{row}={write_cell(folder, method, found, backbone=backbone)}")
    return skills.read(*words)


def test_roles_pairs_and_the_strongest_baseline(panels: list[skills.Comparison]) -> None:
    found = skills.summary(panels, ["cart"])
    assert found["strongest"] == "gift"  # (35 + 3 * 100) / 4, CART (45 + 3 * 70) / 4
    own = found["rows"]["goldimask-d"]
    assert [own[k] for k in ("taught", "kept", "mean")] == pytest.approx([55, 90, 81.25])
    assert own["taught to base"].value == pytest.approx(0.35)
    assert own["kept to base"].value == pytest.approx(0.0)
    assert own["mean to vanilla"].value == pytest.approx(0.1)  # 81.25 - 71.25
    assert own["mean to gift"].value == pytest.approx(-0.025)  # 81.25 - 83.75
    assert own["steps to vanilla"].value == pytest.approx(-0.125)
    assert own["mean to cart"].value == pytest.approx(0.175)  # 81.25 - 63.75
    assert own["share"] == pytest.approx(0.5)
    assert own["mean to vanilla"].low <= 0.1 <= own["mean to vanilla"].high
    assert "mean to base" not in found["rows"]["base"]
    rows = {row[0]: row for row in skills.table_of(found).rows}
    assert rows["goldimask-d"][1:5] == ("55.0", "90.0", "81.2", "17.5")
    assert str(rows["goldimask-d"][8]).startswith("-2.5 [")


def test_a_curve_has_a_point_for_every_campaign(panels: list[skills.Comparison]) -> None:
    found = skills.summary(panels)
    figure = skills.curve({"0": found, "10": found}, ["vanilla", "goldimask-d"])
    shown = skills.bars(found).charts
    assert [b.name for b in shown[0].bars] == ["vanilla", "gift", "cart", "goldimask-d"]
    assert [shown[0].bars[3].value, shown[2].bars[3].value] == pytest.approx([35, -12.5])
    mean, taught, kept = figure.charts
    assert [line.name for line in mean.lines] == ["vanilla", "goldimask-d"]
    assert taught.lines[0].points == ((0.0, pytest.approx(25)), (10.0, pytest.approx(25)))
    assert kept.lines[0].points[0][1] == pytest.approx(-10) and len(kept.lines[0].within) == 2
