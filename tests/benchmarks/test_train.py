"""benchmarks/train.py: the record it returns, on a smaller model."""

from __future__ import annotations

import pytest

import train


def test_workload_is_the_described_one() -> None:
    data = train.workload()
    assert len(data) == 200 and data == train.workload()
    prompts = [e.prompt_length for e in data]
    responses = [len(e) - e.prompt_length for e in data]
    assert (min(prompts), max(prompts)) == (20, 60)
    assert 40 <= min(responses) < 45 and 195 < max(responses) <= 200
    assert sum(p.numel() for p in train.new_model().parameters()) == 22_028_544


def test_record(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"d_model": 32, "n_layers": 2, "mlp_hidden_size": 32}
    monkeypatch.setattr(train, "SIZES", {**train.SIZES, **small})
    found = train.measure(rounds=1, steps=1)
    for name in ("naive", "vanilla", "goldimask-d"):
        assert found[name]["tokens_per_s"] > 0
    assert found["vanilla"]["pad_share"] == found["goldimask-d"]["pad_share"]
    assert 0 <= found["vanilla"]["pad_share"] < found["naive"]["pad_share"] < 1
    assert found["memory_ratio"] == pytest.approx(
        found["goldimask-d"]["peak_mb"] / found["vanilla"]["peak_mb"]
    )
