"""Scores in float32 decide as float64 does; the cache is written in place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from goldimask.decoding import scores
from goldimask.decoding.caches import Store
from goldimask.decoding.rules import DECODERS, Table
from goldimask.decoding.types import Settings

MEASURES = ("confidence", "entropy", "margin", "negentropy")


def oracle(logits: torch.Tensor, measure: Any) -> scores.WindowScores:
    """Everything in float64."""
    return scores.score_rows(logits.double(), measure)


def hard_logits() -> torch.Tensor:
    """Rows that float32 confuses: saturated, nearly equal, and equal ones."""
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(8, 300, generator=generator) * 3
    saturated = base.clone()
    saturated[:, 5] += torch.linspace(28, 40, 8)  # 1 - p below float32's step
    near = base[:1].repeat(8, 1)
    near[:, 7] += torch.arange(8) * 1e-6
    return torch.cat([base, saturated, near, base[:2]])


@pytest.mark.parametrize("measure", MEASURES)
def test_order_and_tokens_are_those_of_float64(measure: Any) -> None:
    logits = hard_logits()
    found, exact = scores.score_rows(logits, measure), oracle(logits, measure)
    assert np.array_equal(found.token, exact.token)
    assert np.array_equal(
        np.argsort(found.score, kind="stable"), np.argsort(exact.score, kind="stable")
    )
    np.testing.assert_allclose(found.confidence, exact.confidence, rtol=1e-5)
    plain = logits.softmax(1).amax(1).numpy()  # what float32 alone would say: everything is 1
    assert len(np.unique(plain[8:16])) < 4


@pytest.mark.parametrize("name", ["threshold", "entropy", "factor"])
def test_a_threshold_on_the_edge_is_decided_in_float64(name: str) -> None:
    """tau is put on every score, and a hair beside it."""
    logits, decoder = hard_logits(), DECODERS.get(name)
    exact = oracle(logits, decoder.measure)
    for score in exact.score:
        for tau in (score, np.nextafter(score, 2), np.nextafter(score, -2)):
            settings = Settings(tau=float(tau), factor=float(2 * (1 - tau)))
            lines = (
                [tau] if name != "factor" else [1 - settings.factor / (r + 1) for r in range(1, 27)]
            )
            found = scores.score_rows(logits, decoder.measure, edges=lines)
            places = np.arange(len(logits))
            chosen = [decoder.rule(Table(places, x.score), settings) for x in (found, exact)]
            assert np.array_equal(*chosen)


def test_doubt_stays_within_a_window() -> None:
    logits = hard_logits()[:2].repeat_interleave(2, 0)  # equal rows in different windows
    found = scores.score_rows(logits, "confidence")
    apart = scores.doubtful(found, "confidence", [1, 1, 1, 1], ())
    assert not apart.any() and scores.doubtful(found, "confidence", [4], ()).all()


def test_the_cache_is_written_in_place() -> None:
    store, rows = Store(3, 6), [SimpleNamespace(index=i, length=6 - i) for i in range(3)]
    store.enter(rows)  # type: ignore[arg-type]
    new = torch.randn(3, 2, 4, 5)
    store.begin(rows, np.tile(np.arange(4), (3, 1)), torch.device("cpu"))  # type: ignore[arg-type]
    key, value = store.update(new, new + 1, 0)
    kept = store.layers[0]
    assert key.shape == (3, 2, 7, 5) and key.data_ptr() == kept[0].data_ptr()
    assert torch.equal(key[:, :, :4], new) and torch.equal(value[:, :, :4], new + 1)
    some = [rows[0], rows[2]]  # not side by side: copied out, and back
    store.begin(some, np.array([[4, 5], [1, 6]]), torch.device("cpu"))  # type: ignore[arg-type]
    later = torch.randn(2, 2, 2, 5)
    key, _ = store.update(later, later, 0)
    assert torch.equal(key[0, :, 4:6], later[0]) and torch.equal(key[1, :, 0], new[2, :, 0])
    assert store.layers[0] is kept and torch.equal(kept[0][2, :, 1], later[1, :, 0])
    assert torch.equal(kept[0][1, :, :4], new[1])  # the one that did not take part
    store.leave(rows[1])  # type: ignore[arg-type]
    store.enter([SimpleNamespace(index=9)])  # type: ignore[list-item]
    assert store.place[9] == 1  # its place is used again
