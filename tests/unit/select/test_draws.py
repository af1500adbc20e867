"""The draws: the same keys in numpy, numba and torch, and a uniform choice from the pool."""

from __future__ import annotations

import numpy as np
import torch
from scipy.stats import chi2

from goldimask.select import oracle
from goldimask.select.dense import draw_keys
from goldimask.select.draws import draw_seed, step_keys, step_words
from goldimask.select.sampled import fill_keys


def test_three_implementations_of_the_keys():
    for seed in (0, 1, 2**63 - 1, draw_seed(np.random.default_rng(4))):
        words = step_words(seed, 5)
        for step in range(5):
            keys = step_keys(words[step], 300)
            by_numba = np.empty(300, dtype=np.uint32)
            fill_keys(words[step], np.zeros(300, dtype=np.uint32), by_numba)
            by_torch = draw_keys([seed], 5, 300, torch.device("cpu"))[step]
            assert (keys == by_numba).all() and (keys == by_torch[0].numpy()).all()
            assert (keys < 2**31).all() and len(np.unique(keys)) > 298


def test_keys_of_steps_and_seeds_differ():
    words = step_words(9, 2000)
    assert len(np.unique(words, axis=0)) == 2000
    orders = {tuple(np.argsort(step_keys(w, 5))) for w in words}
    assert len(orders) == 120  # every order of five occurs


def test_a_draw_is_uniform_over_the_pool_at_every_step():
    pool = np.zeros(40, dtype=bool)
    members = np.array([0, 1, 2, 7, 19, 20, 33, 39])
    pool[members] = True
    for step in (0, 1, 17):
        count = np.zeros(40)
        for seed in range(3000):
            count[oracle.draw(pool, step_words(seed * 7919, step + 1)[step])] += 1
        assert count.sum() == count[members].sum()
        expected = 3000 / len(members)
        statistic = ((count[members] - expected) ** 2 / expected).sum()
        assert statistic < chi2.ppf(1 - 1e-4, len(members) - 1)


def test_consecutive_steps_are_independent():
    pool = np.ones(4, dtype=bool)
    table = np.zeros((4, 4))
    for seed in range(4000):
        words = step_words(seed, 2)
        table[oracle.draw(pool, words[0]), oracle.draw(pool, words[1])] += 1
    expected = 4000 / 16
    assert ((table - expected) ** 2 / expected).sum() < chi2.ppf(1 - 1e-4, 15)


def test_pool_rule_by_hand():
    delta = np.array([5.0, 3.0, 3.0, 3.0, -np.inf, 1.0])
    assert oracle.top(delta, 2, 1e-9).tolist() == [True, True, False, False, False, False]
    assert oracle.top(delta, 3, 1e-9).tolist() == [True, True, True, False, False, False]
    assert oracle.top(delta, 5, 1e-9).tolist() == [True, True, True, True, False, True]
    assert oracle.top(np.full(3, -np.inf), 2, 1e-9).sum() == 0
    noisy = np.array([3.0, 3.0 + 1e-13, 3.0 + 2e-13])
    assert oracle.top(noisy, 1, 1e-9).tolist() == [True, False, False]
    assert oracle.best(noisy, 1e-9) == 0
    assert oracle.rank(np.array([1.0, 2.0, 1.0 + 1e-13]), 1e-9).tolist() == [1, 0, 2]
