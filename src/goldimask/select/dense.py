"""The device engine: D and R as they are stated, dense float64, the whole batch at once.

Every reveal computes all marginals of all examples by the definition in `objective.py`, and keeps
the choice on the device: the host waits once, for the result. `reveal_next` is the whole algorithm;
it works in place, so that it can be compiled into a few kernels and, on CUDA, replayed as a graph.
Same sets, ties and draws as `oracle.py`. Examples with a smaller budget go through the motions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goldimask.errors import GoldimaskError
from goldimask.objective import Support
from goldimask.processes import send
from goldimask.select.base import Selection
from goldimask.select.draws import M1, M2, C, step_words
from goldimask.select.oracle import TIE

DENSE = ("greedy", "randomized")  # the maximisers this engine has
MASK32 = 0xFFFFFFFF
CLOSED = 2**31  # a step that never comes, a key that is never drawn
LOG = logging.getLogger("goldimask")


def reveal_next(
    at: Tensor,  # [B, N, N] float64, [b, x, i] = attention from target i to candidate x
    lam: Tensor,  # [B, N] float64
    budget: Tensor,  # [B, 1] int64
    tie: Tensor,  # [B, 1] float64
    keys: Tensor | None,  # [steps, B, N] int64, of R's draws; None for D
    phi: Support,
    s: Tensor,  # [B, N] float64, the support of every target so far; in place, as all below
    turn: Tensor,  # [B, N] int64, the step of each reveal, -1 before it, CLOSED for padding
    gains: Tensor,  # [B, N] float64
    clock: Tensor,  # [B, N] int64, the present step in every cell: all updates are one kernel
) -> None:
    """One reveal of every example."""
    rest = torch.where(turn < 0, lam, 0.0)
    gain = (rest[:, None] * (phi(s[:, None] + at) - phi(s)[:, None])).sum(2)
    delta = torch.where(turn < 0, gain - rest * phi(s), -torch.inf)
    place = torch.arange(delta.shape[1], device=delta.device)
    if keys is None:  # the lowest index among the largest marginals
        x = (delta >= delta.amax(1, keepdim=True) - tie).byte().argmax(1, keepdim=True)
    else:  # the lowest key among the `budget` largest; equals are ranked by index
        gap, width = delta[:, None] - delta[:, :, None], tie[:, :, None]
        above = (gap > width) | ((gap >= -width) & (place < place[:, None]))
        pool = (turn < 0) & (above.sum(2) < budget)
        x = torch.where(pool, keys.gather(0, clock[None])[0], CLOSED).argmin(1, keepdim=True)
    going = clock < budget
    chosen = going & (place == x)
    column = at.gather(1, x[:, :, None].expand(-1, 1, at.shape[2])).squeeze(1)
    s.add_(torch.where(going, column, 0.0))
    turn.copy_(torch.where(chosen, clock, turn))
    gains.copy_(torch.where(chosen, delta, gains))
    clock.add_(1)


ADVANCE: dict[str, Callable[..., None]] = {"cpu": reveal_next}  # by type of device
UNRECORDED: set[str] = set()  # types of devices on which recording failed


def run_dense(
    attention: Tensor, priority: NDArray[np.float64], budgets: NDArray[np.int64],
    active: NDArray[np.bool_], seeds: list[int], selector: str, support: Support,
) -> list[Selection]:  # fmt: skip
    """[B, N, N] attention on any device; the other arguments as in `select_reveal`, checked."""
    steps, device = int(budgets.max(initial=0)), attention.device
    if steps == 0:
        return [Selection(np.zeros(0, np.int64), np.zeros(0), 0.0) for _ in seeds]
    open_, lam = send(active, device), send(np.where(active, priority, 0.0), device)
    at = attention.double().transpose(1, 2).contiguous()
    at.masked_fill_(~(open_[:, None] & open_[:, :, None]), 0.0).diagonal(dim1=1, dim2=2).zero_()
    sound = ((at >= 0) & (at < torch.inf)).all(2).all(1, keepdim=True)
    first = (lam[:, None] * support(at)).sum(2)
    tie = TIE * torch.maximum(first, lam * support(at.sum(1))).amax(1, keepdim=True)
    budget = send(budgets, device)[:, None]
    keys = draw_keys(seeds, steps, at.shape[1], device) if selector == "randomized" else None
    turn = torch.where(open_, -1, CLOSED)
    s, gains, clock = torch.zeros_like(lam), torch.zeros_like(lam), torch.zeros_like(turn)
    running = repeat(steps, at, lam, budget, tie, keys, support, s, turn, gains, clock)
    value = (torch.where(turn < 0, lam, 0.0) * support(s)).sum(1, keepdim=True)
    told = torch.cat([turn.double(), gains, value, sound.double()], 1).cpu().numpy()  # the one wait
    del running  # until here its kernels may have been at work
    if not told[:, -1].all():
        raise GoldimaskError("attention: an entry among the candidates is negative or not finite")
    found = []
    for row, count in zip(told, budgets.tolist(), strict=True):
        order = row[: at.shape[1]].argsort(kind="stable")
        order = order[row[order] >= 0][:count]
        found.append(
            Selection(order, row[at.shape[1] + order], float(row[-2]), count * len(lam[0]))
        )
    return found


def repeat(steps: int, *state: Any) -> Any:
    """`reveal_next` that many times: compiled on an accelerator, a graph on CUDA.

    Returns what must stay alive until the device is done.
    """
    kind = state[0].device.type
    if kind not in ADVANCE:
        ADVANCE[kind] = torch.compile(reveal_next, dynamic=True)
    try:
        ADVANCE[kind](*state)
    except Exception as error:  # any compiler, any driver: the plain statement still works
        if ADVANCE[kind] is reveal_next:
            raise
        LOG.warning(
            "select.engine: torch.compile failed on '%s' (%s); selecting there without it",
            kind, str(error).strip().split("\n", 1)[0],
        )  # fmt: skip
        ADVANCE[kind] = reveal_next
        reveal_next(*state)
    left, graph = steps - 1, None
    if kind == "cuda" and left > 2 and kind not in UNRECORDED:
        ADVANCE[kind](*state)  # once more on settled shapes, before it is recorded
        left -= 1
        try:
            graph = recorded(ADVANCE[kind], state)
        except RuntimeError as error:
            UNRECORDED.add(kind)
            LOG.warning(
                "select.engine: no CUDA graph here (%s)", str(error).strip().split("\n", 1)[0]
            )
    for _ in range(left):
        graph.replay() if graph else ADVANCE[kind](*state)
    return graph


def recorded(advance: Callable[..., None], state: Sequence[Any]) -> Any:
    """One reveal as a CUDA graph; recording runs nothing.

    `torch.cuda.graph` would wait for the device and hand all cached memory back to the driver, for
    every batch anew. Other threads (NCCL's, the data loader's) may go on while this one records.
    """
    place = state[0].device
    graph, now, beside = (
        *(torch.cuda.CUDAGraph(), torch.cuda.current_stream(place), torch.cuda.Stream(place)),
    )
    beside.wait_stream(now)
    with torch.cuda.stream(beside):  # makes its device the current one
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            advance(*state)
        finally:
            graph.capture_end()
    now.wait_stream(beside)
    return graph


def draw_keys(seeds: list[int], steps: int, n: int, device: torch.device) -> Tensor:
    """`draws.step_keys` of every step. [steps, B, n] int64"""
    words = np.stack([step_words(seed, steps) for seed in seeds], 1).astype(np.int64)
    low, high = send(words, device)[..., None].unbind(2)
    h = (torch.arange(n, device=device) * C & MASK32) ^ low
    h = ((h ^ (h >> 16)) * M1) & MASK32
    h = (((h ^ (h >> 13)) + high) * M2) & MASK32
    return (h ^ (h >> 16)) >> 1
