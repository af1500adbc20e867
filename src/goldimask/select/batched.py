"""The batched torch engine: dense float64 marginals, the whole batch at once, for accelerators.

Every step computes all marginals of all examples and carries the choice as a device index: the host
never waits for the device inside a maximiser, except that P's local search asks every few sweeps
whether any example still improves. Results are fetched once at the end. Examples with a smaller
budget, or that stopped, go through the motions without effect. Same sets, ties and draws as
`oracle.py`, which explains the maximisers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from goldimask.objective import Support
from goldimask.select import oracle
from goldimask.select.base import Selection
from goldimask.select.draws import M1, M2, C, step_words

ASK_EVERY = 8  # sweeps of local search between two questions to the device
MASK32 = 0xFFFFFFFF
PART = 2**23  # entries of a temporary


@dataclass(frozen=True)
class Batched:
    """B padded examples. Padding has no attention, no priority and is never open."""

    at: Tensor  # [B, N, N] float32, [b, x, i] = attention from target i to candidate x
    lam: Tensor  # [B, N] float64
    active: Tensor  # [B, N] bool
    budget: Tensor  # [B] int64
    support: Support
    tie: Tensor  # [B, 1] float64
    seeds: list[int]
    steps: int  # the largest budget

    def received(self, reveal: Tensor) -> Tensor:
        """S of every target. [B, N]"""
        return torch.bmm(reveal.double()[:, None], self.at.double()).squeeze(1)

    def parts(self) -> Iterator[Tensor]:
        """`at` in float64, some candidates at a time, so that no temporary is large."""
        size = max(1, PART // (self.at.shape[0] * self.at.shape[2]))
        return (a.double() for a in self.at.split(size, 1))

    def rest(self, reveal: Tensor) -> Tensor:
        return torch.where(reveal, 0.0, self.lam)

    def delta(self, reveal: Tensor, support: Tensor) -> Tensor:
        """Marginals of all candidates outside R, -inf elsewhere; `support` is S of R. [B, N]"""
        rest, s = self.rest(reveal), support
        if self.support.kind == "linear":
            gain = torch.bmm(self.at.double(), rest[:, :, None]).squeeze(2)
        else:  # one division per entry and no difference of nearly equal numbers
            total = (s + self.support.s0)[:, None]
            weight = (rest * self.support.s0)[:, None] / total
            gain = torch.cat([(weight * a / (total + a)).sum(2) for a in self.parts()], 1)
        return (gain - rest * self.support(s)).masked_fill(reveal | ~self.active, -torch.inf)

    def removal(self, reveal: Tensor, support: Tensor) -> Tensor:
        """F(R - u) - F(R) for the members of R, -inf elsewhere. [B, N]"""
        rest, full = self.rest(reveal)[:, None], self.support(support)[:, None]
        less = ((support[:, None] - a).clamp_min(0.0) for a in self.parts())
        lost = torch.cat([(rest * (full - self.support(s))).sum(2) for s in less], 1)
        return (self.lam * self.support(support) - lost).masked_fill(~reveal, -torch.inf)

    def value(self, reveal: Tensor) -> Tensor:
        """F(R). [B]"""
        return (self.rest(reveal) * self.support(self.received(reveal))).sum(1)

    def nobody(self) -> Tensor:
        return torch.zeros_like(self.active)


@dataclass(frozen=True)
class Trace:
    """What was chosen at each step, -1 where nothing was, and the set it led to."""

    order: Tensor  # [B, steps] int64
    gains: Tensor  # [B, steps] float64
    reveal: Tensor  # [B, N] bool


def run_batch(
    attention: Tensor, priority: NDArray[np.float64], budgets: NDArray[np.int64],
    active: NDArray[np.bool_], seeds: list[int], selector: str, support: Support,
    swap: oracle.Swap = "decoupled", swaps: int | None = None,
) -> list[Selection]:  # fmt: skip
    """[B, N, N] attention on any device; the other arguments as in `select_reveal`, checked."""
    p = prepare(attention, priority, budgets, active, seeds, support)
    if p.steps == 0 or p.at.shape[1] == 0:
        return [Selection(np.zeros(0, np.int64), np.zeros(0), 0.0) for _ in seeds]
    if selector == "greedy":
        trace = run_greedy(p)
    elif selector == "randomized":
        trace = run_sampled(p)
    elif selector == "twin":
        trace = run_twin(p)
    elif selector == "practical":
        trace = run_practical(p, swap, swaps)
    else:
        trace = run_ranked(p, selector)
    return fetch(p, trace)


def prepare(
    attention: Tensor, priority: NDArray, budgets: NDArray, active: NDArray, seeds: list[int],
    support: Support,
) -> Batched:  # fmt: skip
    device = attention.device
    mask = torch.from_numpy(active).to(device)
    lam = torch.from_numpy(np.where(active, priority, 0.0)).to(device)
    at = attention.float().transpose(1, 2).contiguous()
    keep = (
        mask[:, None] & mask[:, :, None] & ~torch.eye(at.shape[1], dtype=torch.bool, device=device)
    )
    at = at.masked_fill_(~keep, 0.0)
    gain = (lam[:, None] * support(at.double())).sum(2)
    cost = lam * support(at.double().sum(1))
    tie = oracle.TIE * torch.maximum(gain, cost).amax(1, keepdim=True) if at.numel() else lam[:, :0]
    steps = int(budgets.max(initial=0))
    return Batched(at, lam, mask, torch.from_numpy(budgets).to(device), support, tie, seeds, steps)


def best(delta: Tensor, tie: Tensor) -> tuple[Tensor, Tensor]:
    """(lowest index among the largest, its marginal), [B, 1] each."""
    top = delta.amax(1, keepdim=True)
    x = (delta >= top - tie).byte().argmax(1, keepdim=True)  # argmax takes the first
    return x, delta.gather(1, x)


def put(
    p: Batched, reveal: Tensor, support: Tensor, x: Tensor, go: Tensor
) -> tuple[Tensor, Tensor]:
    """Add x where `go` is true."""
    column = p.at.gather(1, x[:, :, None].expand(-1, 1, p.at.shape[2])).squeeze(1).double()
    return (
        reveal | (torch.zeros_like(reveal).scatter(1, x, True) & go),
        support + torch.where(go, column, 0.0),
    )


def run_greedy(p: Batched, stop: Tensor | None = None) -> Trace:
    reveal, support = p.nobody(), torch.zeros_like(p.lam)
    going = torch.ones_like(p.budget, dtype=torch.bool)[:, None]
    order, gains = [], []
    for step in range(p.steps):
        x, gain = best(p.delta(reveal, support), p.tie)
        going = going & (step < p.budget)[:, None]
        if stop is not None:
            going = going & (gain > stop)
        reveal, support = put(p, reveal, support, x, going)
        order.append(torch.where(going, x, -1))
        gains.append(gain)
    return Trace(torch.cat(order, 1), torch.cat(gains, 1), reveal)


def top(p: Batched, delta: Tensor) -> Tensor:
    """The `budget` largest of each row, as `oracle.top`."""
    open_ = delta > -torch.inf
    ranked = delta.sort(1, descending=True).values
    at = (p.budget - 1).clamp_min(0)[:, None]
    threshold = ranked.gather(1, at)  # -inf when no more than the budget are open
    over = delta > threshold + p.tie
    tied = open_ & ~over & (delta >= threshold - p.tie)
    room = p.budget[:, None] - over.sum(1, keepdim=True)
    return over | (tied & (tied.cumsum(1) <= room)) | (open_ & (threshold == -torch.inf))


def step_keys(words: Tensor, n: int) -> Tensor:
    """As `draws.step_keys` for a batch: words [B, 2] -> keys [B, n], int64."""
    h = (torch.arange(n, device=words.device)[None] * C & MASK32) ^ words[:, :1]
    h = ((h ^ (h >> 16)) * M1) & MASK32
    h = (((h ^ (h >> 13)) + words[:, 1:]) * M2) & MASK32
    return (h ^ (h >> 16)) >> 1


def all_words(p: Batched) -> Tensor:
    """[steps, B, 2]"""
    words = np.stack([step_words(seed, max(p.steps, 1)) for seed in p.seeds], 1)
    return torch.from_numpy(words.astype(np.int64)).to(p.at.device)


def run_sampled(p: Batched, guide: Tensor | None = None) -> Trace:
    reveal, support, words = p.nobody(), torch.zeros_like(p.lam), all_words(p)
    guided = torch.tensor([oracle.guided_steps(int(b)) for b in p.budget.tolist()])
    guided = guided.to(p.at.device)[:, None]
    order, gains = [], []
    for step in range(p.steps):
        delta = p.delta(reveal, support)
        if guide is not None:
            delta = delta.masked_fill(guide & (step < guided), -torch.inf)
        pool = top(p, delta)
        x = step_keys(words[step], delta.shape[1]).masked_fill(~pool, 2**31).argmin(1, keepdim=True)
        gain = delta.gather(1, x)
        go = pool.any(1, keepdim=True) & (step < p.budget)[:, None]
        if guide is not None:
            go = go & (gain >= -p.tie)
        reveal, support = put(p, reveal, support, x, go)
        order.append(torch.where(go, x, -1))
        gains.append(gain)
    return Trace(torch.cat(order, 1), torch.cat(gains, 1), reveal)


def run_twin(p: Batched) -> Trace:
    sets, supports = [p.nobody(), p.nobody()], [torch.zeros_like(p.lam) for _ in range(2)]
    order: list[list[Tensor]] = [[], []]
    gains: list[list[Tensor]] = [[], []]
    going = torch.ones_like(p.tie, dtype=torch.bool)
    for _ in range(min(2 * p.steps, p.at.shape[1])):
        used = sets[0] | sets[1]
        picks = []
        for k in (0, 1):
            delta = p.delta(sets[k], supports[k]).masked_fill(used, -torch.inf)
            x, gain = best(delta, p.tie)
            room = sets[k].sum(1, keepdim=True) < p.budget[:, None]
            picks.append((x, torch.where(room, gain, -torch.inf)))
        second = picks[1][1] > picks[0][1] + p.tie
        going = going & (torch.where(second, picks[1][1], picks[0][1]) > p.tie)
        for k in (0, 1):
            x, gain = picks[k]
            go = going & (second if k else ~second)
            sets[k], supports[k] = put(p, sets[k], supports[k], x, go)
            order[k].append(torch.where(go, x, -1))
            gains[k].append(gain)
    better = (p.value(sets[1]) > p.value(sets[0]) + p.tie.squeeze(1))[:, None]
    return Trace(
        torch.where(better, torch.cat(order[1], 1), torch.cat(order[0], 1)),
        torch.where(better, torch.cat(gains[1], 1), torch.cat(gains[0], 1)),
        torch.where(better, sets[1], sets[0]),
    )


def best_pair(p: Batched, reveal: Tensor, support: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(improvement, u, v), the best of all swaps: one sweep of marginals per member."""
    out = p.removal(reveal, support)
    n = reveal.shape[1]
    rows = []
    for u in range(n):
        one = torch.zeros_like(reveal)
        one[:, u] = True
        less = (support - p.at[:, u].double()).clamp_min(0.0)
        delta = p.delta(reveal & ~one, less).masked_fill(one, -torch.inf)
        rows.append(delta + out[:, u, None])
    x, gain = best(torch.cat(rows, 1), p.tie)
    return gain, x // n, x % n


def best_decoupled(p: Batched, reveal: Tensor, support: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(improvement, u, v): the best removal, then the best insertion of another candidate."""
    u, out = best(p.removal(reveal, support), p.tie)
    one = torch.zeros_like(reveal).scatter(1, u, True)
    v, gain = best(
        p.delta(reveal & ~one, p.received(reveal & ~one)).masked_fill(one, -torch.inf), p.tie
    )
    return out + gain, u, v


def improve(
    p: Batched, start: Trace, swap: oracle.Swap, swaps: int | None
) -> tuple[Tensor, Tensor]:
    """(set, rank): swaps while they improve F; newcomers rank last. [B, N] each"""
    reveal = start.reveal
    rank = torch.zeros_like(p.budget[:, None].expand_as(p.active)).clone()
    steps = torch.arange(start.order.shape[1], device=rank.device).expand_as(start.order)
    rank.scatter_reduce_(
        1, start.order.clamp_min(0), torch.where(start.order < 0, 0, steps), "amax"
    )
    find = best_decoupled if swap == "decoupled" else best_pair
    members = reveal.sum(1, keepdim=True)
    going = (members > 0) & (members < p.active.sum(1, keepdim=True))
    for sweep in range(p.at.shape[1] if swaps is None else swaps):
        if sweep % ASK_EVERY == 0 and not bool(going.any()):
            break
        gain, u, v = find(p, reveal, p.received(reveal))
        going = going & (gain > p.tie)
        reveal = reveal & ~(torch.zeros_like(reveal).scatter(1, u, True) & going)
        reveal = reveal | (torch.zeros_like(reveal).scatter(1, v, True) & going)
        rank = torch.where(going, rank.scatter(1, v, p.steps + sweep), rank)
    return reveal, rank


def run_practical(p: Batched, swap: oracle.Swap, swaps: int | None) -> Trace:
    z, rank = improve(p, run_greedy(p, p.tie), swap, swaps)
    y = run_sampled(p, z)
    better = (p.value(y.reveal) > p.value(z) + p.tie.squeeze(1))[:, None]
    last = rank.masked_fill(~z, torch.iinfo(torch.int64).max)
    order = last.argsort(dim=1, stable=True)[:, : p.steps]
    alone = torch.arange(order.shape[1], device=order.device)[None] < z.sum(1, keepdim=True)
    walk = follow(p, torch.where(alone, order, -1))
    return Trace(
        torch.where(better, y.order, walk.order),
        torch.where(better, y.gains, walk.gains),
        torch.where(better, y.reveal, walk.reveal),
    )


def follow(p: Batched, order: Tensor) -> Trace:
    """The increments of F along a given order."""
    reveal, support = p.nobody(), torch.zeros_like(p.lam)
    gains = []
    for step in range(order.shape[1]):
        x = order[:, step, None].clamp_min(0)
        gains.append(p.delta(reveal, support).gather(1, x))
        reveal, support = put(p, reveal, support, x, order[:, step, None] >= 0)
    return Trace(order, torch.cat(gains, 1), reveal)


def run_ranked(p: Batched, selector: str) -> Trace:
    """The controls: rankings are made on the host, from one fetch of the first marginals."""
    first = p.delta(p.nobody(), torch.zeros_like(p.lam)).cpu().numpy()
    active, ties = p.active.cpu().numpy(), p.tie.cpu().numpy()[:, 0]
    budgets = p.budget.cpu().numpy()
    order = np.full((len(first), p.steps), -1)
    for b, seed in enumerate(p.seeds):
        rows = np.flatnonzero(active[b])
        if selector == "static":
            ranking = oracle.rank(first[b, rows], float(ties[b]))
        else:
            ranking = oracle.ranking_random(len(rows), seed)
        order[b, : budgets[b]] = rows[ranking[: budgets[b]]]
    return follow(p, torch.from_numpy(order).to(p.at.device))


def fetch(p: Batched, trace: Trace) -> list[Selection]:
    """The one copy to the host."""
    order, gains = trace.order.cpu().numpy(), trace.gains.cpu().numpy()
    values, counts = p.value(trace.reveal).cpu().numpy(), p.active.sum(1).cpu().numpy()
    found = []
    for b in range(len(order)):
        made = order[b] >= 0
        found.append(
            Selection(order[b, made], gains[b, made], float(values[b]), int(counts[b]) * p.steps)
        )
    return found
