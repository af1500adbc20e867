"""The held-out bank: levels by construction, masks fixed, standard errors, two checkpoints."""

from __future__ import annotations

import statistics
from collections import Counter

import numpy as np
import pytest
import torch

from goldimask.data.batches import make_batch
from goldimask.errors import GoldimaskError
from goldimask.methods import method
from goldimask.train.validation import (
    make_judge,
    mean_and_error,
    repeats,
    two_checkpoints,
    verdict,
)
from goldimask.types import Example


def examples(count: int, length: int = 12) -> list[Example]:
    """Ids as content hashes give them: of no order."""
    ids = np.random.default_rng(count).choice(2**62, count, replace=False).tolist()
    return [Example(list(range(length)), 2, [False] * 2 + [True] * (length - 2), i) for i in ids]


def levels_of(count: int, levels: int = 16, pairs: int = 128, preset: str = "vanilla"):
    """[example][pair] -> level, as the judge's noise gives them."""
    judge = make_judge(method(preset), examples(count), 1, levels=levels, pairs=pairs)
    c = judge.method.noise(make_batch(judge.examples, 0), judge.keys(0))
    return judge, c, c.t.reshape(count, judge.repeats).tolist()


@pytest.mark.parametrize("count", [1, 3, 4, 10, 12, 60, 100, 120, 200])
@pytest.mark.parametrize("levels", [16, 12, 7, 1])
def test_every_level_is_covered_evenly(count: int, levels: int) -> None:
    """Ten held-out examples of s1K covered 7.6 of 16 levels on average when ids chose them."""
    judge, _, found = levels_of(count, levels)
    assert len(judge.examples) == count * judge.repeats >= 128 and judge.repeats >= 2
    times = Counter(round(t * levels - 0.5, 3) for row in found for t in row)
    assert set(times) == set(range(levels))
    assert max(times.values()) - min(times.values()) <= 1
    for row in found:  # evenly spaced within an example: equal gaps, all around the circle
        spaced = sorted(set(row))
        gaps = np.diff([*spaced, spaced[0] + 1])
        assert gaps == pytest.approx(np.full(len(spaced), 1 / len(spaced)), abs=1e-6)
    everything = [t for row in found for t in row]
    assert abs(statistics.mean(everything) - 0.5) < 0.01


def test_the_number_of_pairs() -> None:
    assert [repeats(n, 16, 128) for n in (1, 4, 8, 10, 16, 17, 64, 65, 1000)] == [
        *(128, 32, 16, 16, 8, 8, 2, 2, 2),
    ]
    for key, options in (("t_grid", {"levels": 0}), ("pairs", {"pairs": 0})):
        with pytest.raises(GoldimaskError, match=rf"evaluation\.{key}: 0 must be at least 1"):
            make_judge(method("vanilla"), examples(4), 1, **options)


def test_masks_are_fixed_and_the_same_for_all_methods_and_batches() -> None:
    judge, first, _ = levels_of(10)
    other = make_judge(method("goldimask-d"), examples(10)[::-1], 99)
    assert [e.example_id for e in other.examples] == [e.example_id for e in judge.examples]
    again = other.method.noise(make_batch(other.examples, 0), other.keys(500))
    assert torch.equal(first.candidates, again.candidates) and torch.equal(first.t, again.t)
    some = [3, 77, 20]
    part = judge.method.noise(make_batch([judge.examples[i] for i in some], 0), judge.keys(0))
    assert torch.equal(part.candidates, first.candidates[some])
    one_example = first.candidates.reshape(10, judge.repeats, -1)[0]
    assert len({tuple(row) for row in one_example.tolist()}) > judge.repeats / 2


def test_examples_are_the_unit_of_the_error() -> None:
    judge, _, _ = levels_of(4)
    rng = np.random.default_rng(0)
    losses = rng.random((4, judge.repeats)) + np.arange(4)[:, None]
    flat = dict(enumerate(losses.ravel().tolist()))
    shuffled = {k: flat[k] for k in rng.permutation(len(flat)).tolist()}  # ranks finish anyhow
    means = judge.per_example(shuffled)
    assert means == pytest.approx(losses.mean(1))
    mean, error = mean_and_error(means)
    assert mean == pytest.approx(losses.mean())
    assert error == pytest.approx(statistics.stdev(losses.mean(1)) / 2)
    assert error > 5 * statistics.stdev(losses.ravel()) / losses.size  # pairs are no sample
    assert mean_and_error([1.0]) == (1.0, None)


def test_two_checkpoints_are_compared_in_pairs() -> None:
    """Examples differ by far more than checkpoints do; only the paired error sees through that."""
    base = np.array([1.0, 5.0, 9.0, 2.0])
    better = base - np.array([0.010, 0.012, 0.008, 0.010])
    history = {0: base - 1, 10: base, 20: better, 30: base}
    found = two_checkpoints({k: v.tolist() for k, v in history.items()})
    assert found is not None and (found["best"], found["rival"]) == (20, 30)
    assert found["difference"] == pytest.approx(0.01)
    assert found["se"] == pytest.approx(statistics.stdev(base - better) / 2)
    assert "steps 20 (best) and 30: held-out losses differ by more than" in verdict(found)
    noisy = {10: base.tolist(), 20: (base + np.array([0.3, -0.3, 0.2, -0.25])).tolist()}
    close = two_checkpoints(noisy)  # the last one is the best: against the runner-up
    assert close is not None and (close["best"], close["rival"]) == (20, 10)
    assert "do not differ by more than" in verdict(close)
    assert two_checkpoints({0: [1.0, 2.0], 10: [1.0, 2.0]}) is None
