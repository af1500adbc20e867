"""`select_reveal` on its own: inputs, padding, generators, errors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import goldimask
from goldimask.errors import GoldimaskError
from goldimask.select import select_reveal, warmup
from goldimask.select.draws import draw_seed
from oracles.select import upper_bound

DRAWING = ("randomized", "practical", "random")


def make(n: int = 12, seed: int = 0):
    rng = np.random.default_rng(seed)
    return (rng.random((n, n)) / n).astype(np.float32), rng.random(n)


def test_numpy_torch_lists_and_dtypes_agree():
    attention, priority = make()
    expected = goldimask.select_reveal(attention, priority, 5)
    assert isinstance(expected, goldimask.Selection)
    read_only = attention.copy()
    read_only.flags.writeable = False
    for a, lam in [
        (torch.from_numpy(attention), torch.from_numpy(priority)),
        (torch.from_numpy(attention).double(), priority.tolist()),
        (attention.tolist(), priority.tolist()),
        (np.asfortranarray(attention), priority),
        (read_only, priority),
    ]:
        for engine in ("auto", "device", "oracle"):
            found = select_reveal(a, lam, 5, engine=engine)
            assert found.order.tolist() == expected.order.tolist()
            assert found.value == pytest.approx(expected.value)


def test_inputs_are_left_alone():
    attention, priority = make()
    np.fill_diagonal(attention, 0.7)
    before = attention.copy(), priority.copy()
    for engine in ("host", "device", "oracle"):
        name = "randomized" if engine == "device" else "practical"
        select_reveal(attention, priority, 4, name, rng=np.random.default_rng(0), engine=engine)
    assert (attention == before[0]).all() and (priority == before[1]).all()


@pytest.mark.parametrize("selector", ["greedy", "randomized", "twin", "practical", "random"])
def test_a_batch_is_its_examples_and_threads_change_nothing(selector, monkeypatch):
    monkeypatch.setattr("goldimask.select.engine.WORTH_THREADS", 0)
    pairs = [make(20, seed) for seed in range(6)]
    attention, priority = np.stack([p[0] for p in pairs]), np.stack([p[1] for p in pairs])
    budgets = np.array([0, 3, 20, 10, 5, 15])
    lengths = np.array([20, 12, 20, 18, 5, 16])
    seeds = range(6)

    def rngs():
        return [np.random.default_rng(s) for s in seeds]

    one = select_reveal(
        attention, priority, budgets, selector, rng=rngs(), active=lengths, threads=1
    )
    four = select_reveal(
        torch.from_numpy(attention),
        priority,
        budgets,
        selector,
        rng=rngs(),
        active=lengths,
        threads=4,
    )
    for b, n in enumerate(lengths):
        alone = select_reveal(
            attention[b, :n, :n], priority[b, :n], budgets[b], selector, rng=rngs()[b]
        )
        assert one[b].order.tolist() == four[b].order.tolist() == alone.order.tolist()
        assert len(one[b].order) <= budgets[b]


def test_one_generator_gives_one_number_per_example():
    attention, priority = make()
    many = np.stack([attention] * 3)
    rng, twin = np.random.default_rng(7), np.random.default_rng(7)
    batch = select_reveal(many, np.stack([priority] * 3), 4, "randomized", rng=rng)
    singles = [select_reveal(attention, priority, 4, "randomized", rng=twin) for _ in range(3)]
    assert [s.order.tolist() for s in batch] == [s.order.tolist() for s in singles]
    assert rng.random() == twin.random()  # both consumed the same
    fresh = np.random.default_rng(7)
    for _ in range(3):
        draw_seed(fresh)
    assert fresh.random() == np.random.default_rng(7).random(4)[3]


@pytest.mark.parametrize("n", [0, 1])
@pytest.mark.parametrize("engine", ["host", "device", "oracle"])
def test_nothing_to_choose_from(n, engine):
    names = ("greedy", "randomized", "twin", "practical", "static", "random")
    for selector in names[:2] if engine == "device" else names:
        found = select_reveal(
            np.ones((n, n)), np.ones(n), n, selector, rng=np.random.default_rng(0), engine=engine
        )
        assert len(found.order) == (n if selector not in ("twin", "practical") else 0)
        assert found.value == 0.0


def bad(attention=None, priority=None, budget=2, **options):
    a, lam = make(4)
    return (
        a if attention is None else attention,
        lam if priority is None else priority,
        budget,
        options,
    )


def poked(at, number):
    a = make(4)[0]
    a[at] = number
    return a


def batch_poked(at, number):
    a = np.stack([make(4)[0]] * 2)
    a[at] = number
    return a


@pytest.mark.parametrize("engine", ["host", "device", "oracle"])
@pytest.mark.parametrize(
    ("case", "message"),
    [
        (bad(attention=poked((1, 2), np.nan)), r"attention: nan at index \(1, 2\)"),
        (bad(attention=poked((3, 0), np.inf)), r"attention: inf at index \(3, 0\)"),
        (bad(attention=poked((0, 1), -0.5)), r"attention: -0.5 at index \(0, 1\)"),
        (bad(attention=np.ones((3, 4))), r"attention: shape \(3, 4\) is not square"),
        (
            bad(attention=batch_poked((1, 0, 2), np.nan), priority=np.ones((2, 4))),
            r"attention: nan at index \(1, 0, 2\)",
        ),
        (bad(priority=[1.0, np.nan, 1.0, -1.0]), "priority: nan at index 1"),
        (bad(priority=[1.0, 1.0, 1.0, -1.0]), "priority: -1 at index 3"),
        (bad(priority=[1.0, 1.0]), "priority: shape"),
        (bad(budget=5), r"budget: 5 is outside \[0, 4\]"),
        (bad(budget=-1), r"budget: -1 is outside \[0, 4\]"),
        (bad(budget=1.5), "budget: must be whole"),
        (
            bad(attention=np.ones((2, 4, 4)), priority=np.ones((2, 4)), budget=[1, 9]),
            r"budget: 9 at index 1 is outside",
        ),
        (bad(budget=4, active=[True, True, False, False]), r"budget: 4 is outside \[0, 2\]"),
        (bad(active=[True]), "active: give a bool mask"),
        (bad(selector="gredy"), "selector: unknown name 'gredy'; did you mean 'greedy'"),
        (bad(selector="randomized"), "rng: 'randomized' draws"),
        (bad(support={"kind": "saturating", "s1": 1}), "support.s1: unknown key"),
        (bad(swap="triple"), "swap: unknown name"),
    ],
)
def test_errors_name_the_argument_and_the_index(case, message, engine):
    attention, priority, budget, options = case
    with pytest.raises(GoldimaskError, match=message):
        select_reveal(attention, priority, budget, engine=engine, **options)


def test_the_device_has_two_maximisers():
    for selector in ("twin", "practical", "static", "random"):
        with pytest.raises(GoldimaskError, match=f"engine: 'device' .* not '{selector}'"):
            select_reveal(*make(), 3, selector, rng=np.random.default_rng(0), engine="device")


def test_unknown_engine():
    with pytest.raises(GoldimaskError, match="engine"):
        select_reveal(*make(), 3, engine="cuda")  # pyright: ignore


def test_padding_and_diagonal_may_hold_anything():
    attention, priority = make(6)
    wide = np.full((8, 8), np.nan, dtype=np.float32)
    wide[:6, :6] = attention
    np.fill_diagonal(wide, np.inf)
    lam = np.concatenate([priority, [np.nan, -3.0]])
    active = np.arange(8) < 6
    for engine in ("host", "device", "oracle"):
        found = select_reveal(wide, lam, 3, engine=engine, active=active)
        assert found.order.tolist() == select_reveal(attention, priority, 3).order.tolist()


def test_ties_go_to_the_lowest_index():
    """Candidates 1, 3, 4 are copies of each other: any rounding of sums must not order them."""
    attention, priority = make(5)
    same = np.array([0, 1, 2, 1, 1])
    attention, priority = attention[same][:, same], priority[same]
    for engine in ("host", "device", "oracle"):
        order = select_reveal(attention, priority, 5, engine=engine).order.tolist()
        assert [x for x in order if x in (1, 3, 4)] == [1, 3, 4]
    nothing = select_reveal(np.zeros((6, 6)), np.ones(6), 4)
    assert nothing.order.tolist() == [0, 1, 2, 3]


def test_swap_cap():
    attention, priority = make(24, 5)
    free = select_reveal(attention, priority, 6, "practical", rng=np.random.default_rng(0))
    none = select_reveal(attention, priority, 6, "practical", rng=np.random.default_rng(0), swaps=0)
    assert none.value <= free.value


def test_warmup_leaves_nothing_to_compile():
    from goldimask.select import lazy, sampled, swaps

    warmup()
    kernels = (lazy.run_greedy, lazy.run_twin, sampled.run_sampled, swaps.run_swaps)
    before = [len(k.signatures) for k in kernels]
    attention, priority = make(70)
    for selector in ("greedy", "randomized", "twin", "practical"):
        select_reveal(attention, priority, 30, selector, rng=np.random.default_rng(0))
        select_reveal(
            torch.from_numpy(np.stack([attention] * 2)), np.stack([priority] * 2), [3, 9], selector,
            rng=np.random.default_rng(0), active=[50, 70],
        )  # fmt: skip
    assert [len(k.signatures) for k in kernels] == before


def test_selections_lie_between_random_sets_and_the_upper_bound():
    attention, priority = make(10)
    for selector in ("greedy", "randomized", "twin", "practical"):
        rng = np.random.default_rng(0)
        found = select_reveal(attention, priority, 4, selector, rng=rng)
        chance = [select_reveal(attention, priority, 4, "random", rng=rng).value for _ in range(32)]
        assert np.mean(chance) < found.value <= upper_bound(attention, priority, 4)
        assert found.gains.sum() == pytest.approx(found.value)
    assert upper_bound(attention, priority, 0) == 0.0
    everything = select_reveal(attention, priority, 10)
    assert 0 < np.mean(everything.gains < 0) < 1  # the price of an exact budget


def test_no_set_exceeds_the_upper_bound():
    from itertools import combinations

    from goldimask.objective import Support, value

    for seed in range(4):
        attention, priority = make(7, seed)
        for budget in (1, 3, 7):
            limit = upper_bound(attention, priority, budget)
            for size in range(budget + 1):
                for members in combinations(range(7), size):
                    reveal = np.zeros(7, dtype=bool)
                    reveal[list(members)] = True
                    assert value(attention, priority, reveal, Support()) <= limit + 1e-12
