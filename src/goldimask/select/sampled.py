"""R, and the second stage of P, by bracketed membership (paper, "Maximizers for the reveal
objective").

A step needs the lowest-key candidate among the B largest marginals (see `draws.py`), not their
ranking. Candidates are tried in the order of their keys. With m candidates that can be drawn, x is
in the pool when m - B others are certainly below it, and out when B are certainly above. Certainty
comes from brackets. Targets are cut into blocks b; when a candidate is evaluated its partial sums
P_xb are kept, and as T grows to T' they stay within

    low_b P_xb <= present partial sum <= high_b P_xb
    low_b  = product of  min over live targets in b of (T/T')^2
    high_b = product of  max over live targets in b of T (T + most) / (T' (T' + most))

where the terms of targets that were revealed since are subtracted exactly. Only candidates whose
bracket straddles x are evaluated again (and keep the new sums), those on the likely side of x
first, until the counts decide; float64 decides among overlapping float32 intervals, ties to the
lowest index. Two shortcuts: when m <= B everybody is in the pool; and since marginals only shrink,
a value that once was certified to be in the pool is in the pool forever after (`sure`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from goldimask.select.draws import M1, M2, C
from goldimask.select.kernels import Float32, State, any_live, delta64, kernel, reveal

TINY = 1e-6
FAR = np.float32(1e30)
CLOSED = np.uint32(0xFFFFFFFF)
C32, M32, N32 = np.uint32(C), np.uint32(M1), np.uint32(M2)


class Brackets(NamedTuple):
    """What is known about the marginals. Vectors over candidates have the padded length."""

    low: Float32  # [blocks, padded] partial sums / low_b, rounded down
    high: Float32  # [blocks, padded] partial sums / high_b, rounded up
    shrink: Float32  # [4, blocks] low_b, high_b, and their reciprocals
    at_least: Float32  # lower end of each marginal, -FAR where it cannot be drawn
    at_most: Float32  # upper end of each marginal, FAR where it cannot be drawn
    before: Float32  # T when the brackets were last in step with it
    source: Float32  # [N, any] attention, a row per target
    rows: np.ndarray  # its columns that are candidates
    row: Float32  # scratch: one row of attention
    waiting: np.ndarray  # revealed since
    exact: np.ndarray  # float64 marginals
    measured: np.ndarray  # [2, padded] int64: in which state each was evaluated in float32, float64
    closed: np.ndarray  # uint32, CLOSED for what cannot be drawn, else 0


def new_brackets(s: State, source: Float32, rows: np.ndarray) -> Brackets:
    n = len(rows)
    lead, blocks = len(s.total), s.tiles.shape[1]

    def floats(*shape: int) -> Float32:
        return np.zeros(shape, dtype=np.float32)

    closed = np.full(lead, CLOSED)
    closed[:n] = 0
    return Brackets(
        floats(blocks, lead), floats(blocks, lead), floats(4, blocks) + 1, floats(lead),
        floats(lead), floats(lead), source, rows, floats(lead), np.zeros(n, np.int64),
        np.zeros(lead), np.full((2, lead), -1), closed,
    )  # fmt: skip


@kernel
def measure(s, k, x, now, eta):
    """Evaluate one candidate and keep its partial sums."""
    weight, total = s.weight.reshape(s.tiles.shape[1:]), s.total.reshape(s.tiles.shape[1:])
    least, most = np.float32(0), np.float32(0)
    down, up = np.float32(1 - eta), np.float32(1 + eta)
    for b in range(s.tiles.shape[1]):
        part = np.float32(0)
        for j in range(s.tiles.shape[2]):
            a = s.tiles[x, b, j]
            part += weight[b, j] * a / (total[b, j] + a)
        k.low[b, x] = part * down * k.shrink[2, b]
        k.high[b, x] = part * up * k.shrink[3, b]
        least += part * down
        most += part * up
    k.at_least[x] = least - s.cost[x] * up
    k.at_most[x] = most - s.cost[x] * down
    k.measured[0, x] = now


@kernel
def bracket(s, k, eta):
    """Brackets of all marginals in the present state."""
    k.at_least[:] = 0
    k.at_most[:] = 0
    for b in range(k.low.shape[0]):
        least, most = k.shrink[0, b], k.shrink[1, b]
        for y in range(k.at_least.shape[0]):
            k.at_least[y] += least * k.low[b, y]
            k.at_most[y] += most * k.high[b, y]
    for y in range(k.at_least.shape[0]):
        k.at_least[y] -= np.float32(eta) * abs(k.at_least[y]) + s.cost[y] * np.float32(1 + eta)
        k.at_most[y] += np.float32(eta) * abs(k.at_most[y]) - s.cost[y] * np.float32(1 - eta)
    close(k)


@kernel
def measure_all(s, k, eta):
    """Evaluate everybody on the empty set, which the first step need not do again."""
    k.before[:] = s.total
    for x in range(k.rows.shape[0]):
        measure(s, k, x, 0, eta)
    bracket(s, k, eta)


@kernel
def close(k):
    """What cannot be drawn is neither above nor below anything."""
    for y in range(k.at_least.shape[0]):
        k.at_least[y] = -FAR if k.closed[y] else k.at_least[y]
        k.at_most[y] = FAR if k.closed[y] else k.at_most[y]


@kernel
def withdraw(s, k, x, eta):
    """Subtract target x, revealed since the brackets were in step, from everybody's sums."""
    b = x // s.tiles.shape[2]
    total = k.before[x]
    weight = np.float32(s.lam[x] * s.s0) / total
    least = np.float32(1 + eta) * k.shrink[2, b]
    most = np.float32(1 - eta) * k.shrink[3, b]
    for y in range(k.rows.shape[0]):
        k.row[y] = k.source[x, k.rows[y]]
    for y in range(k.row.shape[0]):
        term = weight * k.row[y] / (total + k.row[y])
        k.low[b, y] -= term * least
        k.high[b, y] -= term * most


@kernel
def catch_up(s, k, waiting, eta):
    """Bring low_b, high_b and the sums in step with the present set."""
    for j in range(waiting):
        withdraw(s, k, k.waiting[j], eta)
    for i in range(s.total.shape[0]):
        old, new, most = k.before[i], s.total[i], s.most[i]
        r = old / new
        s.ratio[i] = s.live[i] * r * (old + most) / (new + most)
        k.before[i] = r * r * s.live[i] + (np.float32(1) - s.live[i])
    small = k.before.view(np.int32).reshape(s.tiles.shape[1:])
    large = s.ratio.view(np.int32).reshape(s.tiles.shape[1:])
    for b in range(s.tiles.shape[1]):
        low, high = np.int32(0x3F800000), np.int32(0)  # the bits of 1 and 0
        for j in range(s.tiles.shape[2]):
            low = min(low, small[b, j])
            high = max(high, large[b, j])
        s.word.view(np.int32)[0] = low
        k.shrink[0, b] *= s.word[0] * np.float32(1 - 1e-6)
        s.word.view(np.int32)[0] = high
        k.shrink[1, b] *= s.word[0] * np.float32(1 + 1e-6)
        fold(k.low, k.shrink, 0, b)
        fold(k.high, k.shrink, 1, b)
    k.before[:] = s.total


@kernel
def fold(sums, shrink, side, b):
    """Multiply a small factor into the sums, before float32 loses it; renew the reciprocal."""
    factor = shrink[side, b]
    if factor < TINY:
        for y in range(sums.shape[1]):
            sums[b, y] *= factor
        shrink[side, b] = 1
    shrink[side + 2, b] = np.float32(1) / shrink[side, b]


@kernel
def count_beyond(k, low, high):
    """(certainly above `high`, certainly below `low`)"""
    above, below = np.int32(0), np.int32(0)
    for y in range(k.at_least.shape[0]):
        above = np.int32(above + np.int32(k.at_least[y] > high))
        below = np.int32(below + np.int32(k.at_most[y] < low))
    return above, below


@kernel
def is_member(s, k, x, mine, m, budget, now, tie, eta):
    """(is x, with marginal `mine`, among the `budget` largest of m?, evaluations)"""
    high, low = np.float32(mine + tie), np.float32(mine - tie)
    outside = m - budget
    evaluations = 0
    above, below = count_beyond(k, low, high)
    if below >= outside or above >= budget:
        return below >= outside, evaluations
    n = k.rows.shape[0]
    likely_below = below
    for y in range(n):
        if k.at_least[y] <= high and k.at_most[y] >= low:
            likely_below += k.at_least[y] + k.at_most[y] < high + low
    for side in range(2):
        lower_side = (likely_below >= outside) == (side == 0)
        for y in range(n):
            if k.at_least[y] > high or k.at_most[y] < low or y == x or k.closed[y]:
                continue
            if k.measured[0, y] == now:
                continue
            if (k.at_least[y] + k.at_most[y] < high + low) != lower_side:
                continue
            measure(s, k, y, now, eta)
            evaluations += 1
            above += k.at_least[y] > high
            below += k.at_most[y] < low
            if below >= outside or above >= budget:
                return below >= outside, evaluations
    for y in range(n):
        if k.at_least[y] > high or k.at_most[y] < low or y == x or k.closed[y]:
            continue
        if k.measured[1, y] != now:
            k.exact[y] = delta64(s, y)
            k.measured[1, y] = now
            evaluations += 1
        gap = k.exact[y] - mine
        above += gap > tie or (gap >= -tie and y < x)
    return above < budget, evaluations


@kernel
def fill_keys(words, closed, keys):
    """The keys of a step, as `draws.step_keys`; `closed` is all ones where nothing can be drawn."""
    for x in range(keys.shape[0]):
        h = np.uint32(np.uint32(np.uint32(x) * C32) ^ words[0])
        h = np.uint32(np.uint32(h ^ np.uint32(h >> np.uint32(16))) * M32)
        h = np.uint32(np.uint32(np.uint32(h ^ np.uint32(h >> np.uint32(13))) + words[1]) * N32)
        h = np.uint32(np.uint32(h ^ np.uint32(h >> np.uint32(16))) >> np.uint32(1))
        keys[x] = np.uint32(h | closed[x])


@kernel
def lowest(keys):
    """Index of the lowest key."""
    least = CLOSED
    for x in range(keys.shape[0]):
        least = min(least, keys[x])
    for x in range(keys.shape[0]):
        if keys[x] == least:
            return x
    return -1


@kernel
def count_open(k, x):
    """How many candidates before x can be drawn."""
    count = 0
    for y in range(x):
        count += k.closed[y] == 0
    return count


@kernel
def run_sampled(s, k, budget, words, guide, guided, skip, measured, tie, eta, order, gains):
    """R, after `measure_all` if `measured`; P's second stage with `guide` closed for the first
    `guided` steps and `skip` true.

    Returns (reveals, evaluations). `words` [budget, 2] from `draws.step_words`.
    """
    n = k.rows.shape[0]
    count, evaluations, now, waiting = 0, 0, 0, 0
    seen = 0 if measured else -1  # the state that the brackets are in step with
    sure = 1e300
    alive = any_live(s)
    keys = np.empty(k.closed.shape[0], dtype=np.uint32)
    m = n
    for x in range(n):
        if guided > 0 and guide[x]:
            k.closed[x] = CLOSED
            m -= 1
    for step in range(budget):
        if step == guided and guided > 0:
            for x in range(n):
                if guide[x]:
                    k.closed[x] = 0
                    m += 1
            sure = 1e300
            if seen == now:
                bracket(s, k, eta)
        if m == 0:
            continue
        fill_keys(words[step], k.closed, keys)
        x, gain = -1, 0.0
        for _ in range(m):
            x = lowest(keys)
            gain = delta64(s, x) if alive else 0.0
            evaluations += 1
            if m <= budget or gain >= sure:
                break
            if not alive:  # all marginals are zero: the pool is the lowest indices
                if count_open(k, x) < budget:
                    break
                keys[x] = CLOSED
                continue
            if seen < 0:  # the first time: evaluate everybody
                k.before[:] = s.total
                for y in range(n):
                    measure(s, k, y, now, eta)
                evaluations += n
                bracket(s, k, eta)
            elif seen != now:
                catch_up(s, k, waiting, eta)
                bracket(s, k, eta)
            seen, waiting = now, 0
            inside, more = is_member(s, k, x, gain, m, budget, now, tie, eta)
            evaluations += more
            if inside:
                sure = gain + 3 * tie
                break
            keys[x] = CLOSED
        if skip and gain < -tie:
            continue
        order[count] = x
        gains[count] = gain
        count += 1
        k.closed[x] = CLOSED
        m -= 1
        now += 1
        alive = reveal(s, x) > 0
        if seen >= 0:
            k.waiting[waiting] = x
            waiting += 1
    return count, evaluations
