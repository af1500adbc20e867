"""`select_reveal`: reveal selection on plain arrays, one example or a padded batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from goldimask.errors import GoldimaskError, nearest
from goldimask.objective import Support
from goldimask.select import oracle
from goldimask.select.base import Selection
from goldimask.select.dense import DENSE, run_dense
from goldimask.select.draws import draw_seed
from goldimask.tabulated import read_table

SELECTOR_NAMES = ("greedy", "randomized", "twin", "practical", "static", "random")
DRAWING = ("randomized", "practical", "random")
Engine = Literal["auto", "host", "device", "oracle"]
ENGINES = ("auto", "host", "device", "oracle")
Rng = np.random.Generator
Array = ArrayLike | Tensor
One = np.ndarray[tuple[int, int], Any] | Sequence[Sequence[float]]
Many = np.ndarray[tuple[int, int, int], Any] | Sequence[Sequence[Sequence[float]]]


class Options(TypedDict, total=False):
    """The keyword arguments of `select_reveal`."""

    active: Array | None
    engine: Engine
    threads: int | None
    swap: oracle.Swap
    swaps: int | None


@overload
def select_reveal(
    attention: One, priority: Array, budget: int, selector: str = ...,
    support: Support | Mapping[str, Any] | None = ..., rng: Rng | Sequence[Rng] | None = ...,
    **options: Unpack[Options],
) -> Selection: ...  # fmt: skip
@overload
def select_reveal(
    attention: Many, priority: Array, budget: Array, selector: str = ...,
    support: Support | Mapping[str, Any] | None = ..., rng: Rng | Sequence[Rng] | None = ...,
    **options: Unpack[Options],
) -> list[Selection]: ...  # fmt: skip
@overload
def select_reveal(
    attention: Tensor, priority: Array, budget: Array, selector: str = ...,
    support: Support | Mapping[str, Any] | None = ..., rng: Rng | Sequence[Rng] | None = ...,
    **options: Unpack[Options],
) -> Selection | list[Selection]: ...  # fmt: skip
def select_reveal(
    attention: Array,
    priority: Array,
    budget: Array,
    selector: str = "greedy",
    support: Support | Mapping[str, Any] | None = None,
    rng: Rng | Sequence[Rng] | None = None,
    *,
    active: Array | None = None,
    engine: Engine = "auto",
    threads: int | None = None,
    swap: oracle.Swap = "pair",
    swaps: int | None = None,
) -> Selection | list[Selection]:
    """Choose which candidates to reveal: maximise F(R) under a budget.

    Args:
        attention: [N, N] or [B, N, N], numpy or torch; row = target, column = revealed token. Used
            in float32; the diagonal is ignored.
        priority: [N] or [B, N], the lambda of each target.
        budget: reveals per example, one number or [B]; greedy, randomized and the controls reveal
            exactly that many, twin and practical at most.
        selector: greedy, randomized, twin, practical, static or random.
        support: `Support`, or `{"kind": "saturating", "s0": 0.05}` (the default), or
            `{"kind": "linear"}`.
        rng: for selectors that draw: one generator (a batch takes one number per example from it,
            in order) or one per example.
        active: [N] or [B, N] bool, false at padding; or lengths [B]. Padding is never looked at.
        engine: `host` is the lazy numba engine; `device` is dense float64 where the tensor is, for
            greedy and randomized; `auto` takes it for those on an accelerator and `host` otherwise;
            `oracle` is the plain float64 definition.
        threads: examples of a batch selected at a time; default: torch's number of threads.
        swap, swaps: the local search of practical and its largest number of swaps.

    Returns:
        `Selection(order, gains, value)`, or a list of them for a batch. Indices count candidates in
        the given (padded) order.
    """
    known(selector, SELECTOR_NAMES, "selector")
    known(engine, ENGINES, "engine")
    known(swap, ("decoupled", "pair"), "swap")
    phi = read_support(support, "support")
    single = len(np.shape(attention)) == 2
    a, lam, mask = arrays(attention, priority, active, single)
    budgets = check_budgets(budget, mask)
    seeds = make_seeds(rng, len(mask), selector)
    if engine == "auto":
        accelerated = isinstance(a, Tensor) and a.device.type != "cpu"
        engine = "device" if accelerated and selector in DENSE else "host"
    if engine == "device":
        if selector not in DENSE:
            raise GoldimaskError(f"engine: 'device' has {' and '.join(DENSE)}, not '{selector}'")
        tensor = a if isinstance(a, Tensor) else torch.from_numpy(a)
        check_tensor(tensor, mask, single)
        found = on_device(tensor, lam, budgets, mask, seeds, selector, phi)
    else:
        host = a.cpu().contiguous().numpy() if isinstance(a, Tensor) else a
        check_attention(host, mask, single)
        found = on_host(
            host, lam, budgets, mask, seeds, selector, phi, engine, threads, swap, swaps
        )
    return found[0] if single else found


def on_device(
    a: Tensor, lam: NDArray, budgets: NDArray, mask: NDArray, seeds: list[int], selector: str,
    phi: Support,
) -> list[Selection]:  # fmt: skip
    """The dense engine, with the candidates of each example brought to the front."""
    places = np.argsort(~mask, axis=1, kind="stable")
    if (places != np.arange(mask.shape[1])).any():
        index = torch.from_numpy(places).to(a.device)
        a = a.gather(1, index[:, :, None].expand_as(a)).gather(2, index[:, None].expand_as(a))
        lam, mask = np.take_along_axis(lam, places, 1), np.take_along_axis(mask, places, 1)
    found = run_dense(a, lam, budgets, mask, seeds, selector, phi)
    return [
        Selection(rows[s.order], s.gains, s.value, s.evaluations)
        for rows, s in zip(places, found, strict=True)
    ]


def on_host(
    a: NDArray, lam: NDArray, budgets: NDArray, mask: NDArray, seeds: list[int], selector: str,
    phi: Support, engine: str, threads: int | None, swap: oracle.Swap, swaps: int | None,
) -> list[Selection]:  # fmt: skip
    from goldimask.select import engine as fast

    places = [np.flatnonzero(row) for row in mask]
    tasks = [
        # where padding sits between candidates, their rows are brought together
        fast.Task(
            a[b] if rows.size == 0 or rows[-1] == rows.size - 1 else a[b][rows],
            rows, lam[b][rows], int(budgets[b]), seeds[b],
        )
        for b, rows in enumerate(places)
    ]  # fmt: skip
    if engine == "oracle":
        problems = [oracle.problem(fast.square(t), t.priority, phi) for t in tasks]
        found = [
            oracle.solve(p, selector, t.budget, t.seed, swap, swaps)
            for p, t in zip(problems, tasks, strict=True)
        ]
    else:
        workers = torch.get_num_threads() if threads is None else threads
        found = fast.run(tasks, fast.Rules(selector, phi, swap, swaps), workers)
    return [
        Selection(rows[s.order], s.gains, s.value, s.evaluations)
        for rows, s in zip(places, found, strict=True)
    ]


def known(name: str, names: Sequence[str], argument: str) -> None:
    if name not in names:
        raise GoldimaskError(f"{argument}: unknown name '{name}'; {nearest(name, names)}")


def read_support(spec: Mapping[str, Any] | Support | None, where: str) -> Support:
    """`{kind: saturating, s0: 0.05}`, `{kind: linear}` or `{kind: table, file: phi.json}`."""
    if spec is None or isinstance(spec, Support):
        return spec or Support()
    if spec.get("kind") == "table":
        return Support("table", table=read_table(spec, "support", where))
    for key in spec:
        if key not in ("kind", "s0"):
            hint = nearest(key, ("kind", "s0"))
            raise GoldimaskError(f"{where}.{key}: unknown key; {hint}")
    return Support(**spec)


def arrays(
    attention: Array, priority: Array, active: Array | None, single: bool
) -> tuple[NDArray[np.float32] | Tensor, NDArray[np.float64], NDArray[np.bool_]]:
    """attention [B, N, N] float32 (numpy, or a tensor), priority [B, N] float64, mask [B, N]."""
    if isinstance(attention, Tensor):
        a = attention.detach().float()
    else:
        a = np.require(attention, np.float32, ["C", "W"])  # numba has one type for these
    if a.ndim not in (2, 3) or a.shape[-1] != a.shape[-2]:
        raise GoldimaskError(
            f"attention: shape {tuple(a.shape)} is not square; give [N, N] or [B, N, N]"
        )
    a = a[None] if single else a
    host = priority.detach().double().cpu().numpy() if isinstance(priority, Tensor) else priority
    lam = np.asarray(host, dtype=np.float64)
    lam = lam[None] if single else lam
    if lam.shape != tuple(a.shape[:2]):
        raise GoldimaskError(
            f"priority: shape {np.shape(priority)} does not fit attention {np.shape(attention)}"
        )
    mask = read_active(active, lam.shape, single)
    bad = np.argwhere(mask & ~(np.isfinite(lam) & (lam >= 0)))
    if len(bad):
        at = tuple(bad[0])
        raise GoldimaskError(
            f"priority: {lam[at]:g} at index {where(at, single)} must be finite and not negative"
        )
    return a, np.where(mask, lam, 0.0), mask


def read_active(active: Array | None, shape: tuple[int, ...], single: bool) -> NDArray[np.bool_]:
    if active is None:
        return np.ones(shape, dtype=bool)
    given = active.cpu().numpy() if isinstance(active, Tensor) else np.asarray(active)
    given = given[None] if single else given
    if given.dtype != bool and given.shape == shape[:1]:
        if len(given) and (given.min() < 0 or given.max() > shape[1]):
            raise GoldimaskError(f"active: lengths must lie in [0, {shape[1]}]")
        return np.arange(shape[1])[None] < given[:, None]
    if given.dtype != bool or given.shape != shape:
        raise GoldimaskError(
            f"active: give a bool mask of shape {shape[1:] if single else shape}, or lengths"
        )
    return given


def check_budgets(budget: Array, mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    given = budget.cpu().numpy() if isinstance(budget, Tensor) else np.asarray(budget)
    if given.size and not np.issubdtype(given.dtype, np.integer):
        raise GoldimaskError(f"budget: must be whole numbers, got {given.dtype}")
    if given.shape not in ((), (len(mask),)):
        raise GoldimaskError(f"budget: shape {given.shape} must be () or ({len(mask)},)")
    budgets = np.broadcast_to(given, (len(mask),)).astype(np.int64)
    counts = mask.sum(1)
    for b in np.flatnonzero((budgets < 0) | (budgets > counts))[:1]:
        at = "" if given.shape == () else f" at index {b}"
        raise GoldimaskError(f"budget: {budgets[b]}{at} is outside [0, {counts[b]}]")
    return budgets


def check_attention(a: NDArray[np.float32], mask: NDArray[np.bool_], single: bool) -> None:
    for b in range(len(a)):
        if a[b].size and a[b].min() >= 0 and a[b].max() < np.inf:  # false for a nan as well
            continue
        looked_at = mask[b][:, None] & mask[b][None] & ~np.eye(len(a[b]), dtype=bool)
        bad = np.argwhere(looked_at & ~(np.isfinite(a[b]) & (a[b] >= 0)))
        if len(bad):
            i, j = bad[0]
            raise GoldimaskError(
                f"attention: {a[b][i, j]:g} at index {where((b, i, j), single)} must be finite and "
                "not negative"
            )


def check_tensor(a: Tensor, mask: NDArray[np.bool_], single: bool) -> None:
    """One question to the device; only a bad answer fetches the tensor."""
    if a.numel() and not bool(((a >= 0) & (a < float("inf"))).all()):
        check_attention(a.cpu().numpy(), mask, single)


def where(index: Sequence[int], single: bool) -> str:
    """An index as the caller wrote the array: without the batch when there was none."""
    numbers = [int(k) for k in (index[1:] if single else index)]
    return str(numbers[0]) if len(numbers) == 1 else str(tuple(numbers))


def make_seeds(rng: Rng | Sequence[Rng] | None, count: int, selector: str) -> list[int]:
    if selector not in DRAWING:
        return [0] * count
    if rng is None:
        raise GoldimaskError(f"rng: '{selector}' draws; pass a numpy.random.Generator")
    if isinstance(rng, Rng):
        return [draw_seed(rng) for _ in range(count)]
    if len(rng) != count:
        raise GoldimaskError(f"rng: {len(rng)} generators for {count} examples")
    return [draw_seed(r) for r in rng]
