"""Every rule against its literal statement, on random score tables with ties."""

from __future__ import annotations

import numpy as np
import pytest

from goldimask.decoding import DECODERS, Settings, plan
from goldimask.decoding.rules import Table
from goldimask.errors import GoldimaskError
from oracles import decoding as oracle


def tables(count: int, seed: int = 0):
    """Scores in (0, 1] of 1..40 positions with gaps; a third are coarse, hence full of ties."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        n = int(rng.integers(1, 41))
        positions = np.sort(rng.choice(200, size=n, replace=False))
        score = rng.random(n) ** rng.choice([0.1, 1.0, 3.0])
        yield positions, np.round(score, 1) if i % 3 == 0 else score


def apply(name: str, positions, score, quota=None, seed: int = 0, **options) -> set[int]:
    decoder = DECODERS.get(name)
    table = Table(positions, score.copy(), quota, np.random.default_rng(seed))
    chosen = decoder.rule(table, Settings(decoder=name, **options))
    assert chosen.dtype == bool and chosen.shape == positions.shape and chosen.any()
    return set(positions[chosen].tolist())


@pytest.mark.parametrize("tau", [0.05, 0.5, 0.9, 1.0])
def test_threshold(tau):
    for positions, score in tables(300):
        scores = dict(zip(positions.tolist(), score.tolist(), strict=True))
        assert apply("threshold", positions, score, tau=tau) == oracle.slow_threshold(scores, tau)


@pytest.mark.parametrize("tau", [0.0, 0.5, 2.0])
def test_entropy(tau):
    for positions, score in tables(300, seed=1):
        entropy = score * 3
        scores = dict(zip(positions.tolist(), entropy.tolist(), strict=True))
        assert apply("entropy", positions, entropy, tau=tau) == oracle.slow_entropy(scores, tau)


@pytest.mark.parametrize("factor", [0.2, 1.0, 3.0])
def test_factor(factor):
    for positions, score in tables(300, seed=2):
        scores = dict(zip(positions.tolist(), score.tolist(), strict=True))
        assert apply("factor", positions, score, factor=factor) == oracle.slow_factor(
            scores, factor
        )


def test_factor_by_hand():
    """c = .9, .8, .5 and f = 1: rank 2 needs 2/3, rank 3 needs 3/4."""
    assert apply("factor", np.array([3, 5, 9]), np.array([0.5, 0.9, 0.8])) == {5, 9}
    assert apply("factor", np.array([3, 5]), np.array([0.1, 0.2])) == {5}


@pytest.mark.parametrize("name", ["low-confidence", "dream-maskgit-plus", "dream-topk-margin"])
def test_quota(name):
    rng = np.random.default_rng(3)
    for positions, score in tables(300, seed=3):
        quota = int(rng.integers(1, len(positions) + 1))
        scores = dict(zip(positions.tolist(), score.tolist(), strict=True))
        assert apply(name, positions, score, quota) == oracle.slow_best(scores, quota)


def test_ties_go_to_the_lowest_position():
    flat = np.full(6, 0.25)
    where = np.arange(10, 16)
    assert apply("threshold", where, flat, tau=0.9) == {10}
    assert apply("entropy", where, flat, tau=0.1) == {10}
    assert apply("low-confidence", where, flat, 3) == {10, 11, 12}


def test_threshold_is_inclusive():
    assert apply("threshold", np.arange(3), np.array([0.9, 0.1, 0.9]), tau=0.9) == {0, 2}
    assert apply("entropy", np.arange(3), np.array([0.5, 0.6, 0.5]), tau=0.5) == {0, 2}


def test_random_is_uniform_and_seeded():
    where, score = np.arange(8), np.linspace(0, 1, 8)
    picks = [apply("random", where, score, 2, seed=s) for s in range(800)]
    assert picks[0] == apply("random", where, score, 2, seed=0)
    assert all(len(p) == 2 for p in picks)
    counts = np.array([sum(i in p for p in picks) for i in range(8)])
    assert counts.min() > 150 and counts.max() < 250  # 200 expected, sd 12


def test_alg_temp_draws_in_proportion():
    """Softmax of (score / temperature): the better of two with log-odds 1 is drawn 73 %."""
    picks = [
        apply("dream-maskgit-plus", np.arange(2), np.array([0.2, 0.7]), 1, seed=s, alg_temp=0.5)
        for s in range(2000)
    ]
    assert abs(np.mean([p == {1} for p in picks]) - 1 / (1 + np.exp(-1))) < 0.03


def test_even_quotas():
    options = (Settings(), np.random.default_rng(0))
    assert plan.even(np.arange(32), 5, *options) == [7, 7, 6, 6, 6]
    assert plan.even(np.arange(3), 5, *options) == [1, 1, 1]  # empty steps are not spent
    for masks in range(1, 40):
        for steps in range(1, 20):
            wanted = [q for q in oracle.slow_even(masks, steps) if q]
            assert plan.even(np.arange(masks), steps, *options) == wanted


def test_dream_counts():
    """The truncation artefact: nothing at step 1, one per step, two at the end."""
    options = (Settings(), np.random.default_rng(0))
    counts = plan.dream(np.arange(256), 256, *options)
    assert len(counts) == 255 and counts[-1] == 2 and sum(counts) == 256
    assert plan.dream(np.arange(256), 128, *options)[0] == 1
    for masks in (1, 7, 64, 100):
        for steps in (1, 3, 50, 128):
            wanted = [q for q in oracle.slow_dream(masks, steps, 1e-3) if q]
            assert plan.dream(np.arange(masks), steps, *options) == wanted


def test_origin_commits_everything_once():
    sizes = []
    for seed in range(200):
        sets = plan.origin(np.arange(64), 8, Settings(), np.random.default_rng(seed))
        assert sorted(np.concatenate(sets).tolist()) == list(range(64))
        sizes.append(len(sets[0]))
    assert abs(np.mean(sizes) - 8) < 0.6  # 64 (1 - s/t) = 8 at the first of 8 steps


def test_names():
    assert DECODERS.get("maskgit_plus") is DECODERS.get("dream-maskgit-plus")
    assert all(entry.summary for entry in DECODERS)
    with pytest.raises(GoldimaskError, match="did you mean 'threshold'"):
        DECODERS.get("treshold", "decoder")
