"""F along an order equals the definition; random references are reproducible."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from goldimask.objective import Support, value
from goldimask.report.diagnostics import against_random, path_values, random_paths, thin


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(0, 10**6), st.sampled_from(["saturating", "linear"]))
def test_path_equals_the_definition(n, seed, kind):
    rng = np.random.default_rng(seed)
    a = rng.random((n, n)) / n
    np.fill_diagonal(a, 0.0)
    lam, support = rng.random(n), Support(kind)
    order = rng.permutation(n)[: int(rng.integers(0, n + 1))]
    found = path_values(a, lam, order.tolist(), support)
    for k in range(len(order) + 1):
        reveal = np.isin(np.arange(n), order[:k])
        assert np.isclose(found[k], value(a, lam, reveal, support), atol=1e-12)


def test_random_paths_depend_on_the_example_alone():
    rng = np.random.default_rng(0)
    a, lam = rng.random((12, 12)) / 12, rng.random(12)
    one = random_paths(a, lam, 5, Support(), 3)
    assert np.array_equal(one, random_paths(a, lam, 5, Support(), 3))
    assert not np.array_equal(one, random_paths(a, lam, 5, Support(), 4))


def test_thinning_keeps_both_ends():
    assert thin(5) == [0, 1, 2, 3, 4]
    at = thin(1000)
    assert at[0] == 0 and at[-1] == 999 and len(at) <= 48 and at == sorted(set(at))


def test_nothing_revealed():
    found = against_random(np.zeros((3, 3)), np.ones(3), [], Support(), 0)
    assert found["k"] == [0] and found["own"] == [0.0]
