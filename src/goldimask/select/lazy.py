"""D and T by scaled lazy evaluation (paper, "Maximizers for the reveal objective").

A marginal only shrinks while its set grows, so an old one bounds the present one (Minoux). Here the
bound also follows the growth of the set: when targets' T change from T to T', every term shrinks at
least by rho = max over live targets of h(T)/h(T'), h(T) = T (T + most), hence

    G_x <= bound_x * scale,      scale = product of the rho since x was last evaluated

and the cost c_x is known. `pick` evaluates the candidates whose bound exceeds the best lower bound
found so far, in float32 with an error margin, and compares in float64 only those whose float32
intervals overlap. A scan of the bounds replaces the heap: evaluations are too cheap to pay for one.
"""

from __future__ import annotations

import numpy as np

from goldimask.select.kernels import GONE, any_live, delta64, gain32, kernel, reveal

BLOCK = 32  # bounds scanned at a time; divides every padded length
TINY_SCALE = 1e-6


@kernel
def sweep(s, eta):
    """Evaluate every candidate that can be chosen; returns the index of the largest bound."""
    best, top = 0, GONE
    for x in range(s.at.shape[0]):
        if s.bound[x] > GONE:
            s.bound[x] = gain32(s, x) * (1 + eta)
            if s.bound[x] - s.cost[x] > top:
                best, top = x, s.bound[x] - s.cost[x]
    return best


@kernel
def settle(s, count, floor, tie):
    """The best of the contenders whose interval reaches `floor`, float64 if there are several."""
    kept = 0
    for k in range(count):
        if s.height[k] >= floor:
            s.index[kept] = s.index[k]
            kept += 1
    if kept == 1:
        return s.index[0], 0
    top = -1e300
    values = np.empty(kept)
    for k in range(kept):
        values[k] = delta64(s, s.index[k])
        top = max(top, values[k])
    best = s.bound.shape[0]
    for k in range(kept):
        if values[k] >= top - tie:
            best = min(best, s.index[k])
    return best, kept


@kernel
def pick(s, scale, hint, tie, eta):
    """(candidate with the largest marginal, a good first guess for the next pick, evaluations)."""
    length = s.bound.shape[0]
    one_less, one_more = np.float32(1 - eta), np.float32(1 + eta)
    slack = np.float32(tie)
    for x in range(length):
        s.upper[x] = s.bound[x] * scale - s.cost[x] * one_less
    floor = np.float32(-1e20)  # far above GONE * scale
    second = np.float32(-1e20)
    first_x, second_x, count, evaluations = hint, hint, 0, 0
    tiles = s.upper.reshape(-1, BLOCK)
    for turn in range(tiles.shape[0] + 1):
        block = turn - 1  # the first turn is the hint's alone: it gives a high floor at once
        hits = 0
        if turn > 0:
            for j in range(BLOCK):
                hits += tiles[block, j] >= floor
            if hits == 0:
                continue
        for j in range(BLOCK if turn > 0 else 1):
            x = block * BLOCK + j if turn > 0 else hint
            if s.upper[x] < floor:
                continue
            gain = gain32(s, x)
            evaluations += 1
            s.bound[x] = gain * one_more / scale
            high = gain * one_more - s.cost[x] * one_less
            low = gain * one_less - s.cost[x] * one_more - slack
            s.upper[x] = np.float32(-2e20)  # once per pick
            if high >= floor:
                s.index[count] = x
                s.height[count] = high
                count += 1
            if low > floor:
                second, second_x = floor, first_x
                floor, first_x = low, x
            elif low > second:
                second, second_x = low, x
    best, more = settle(s, count, floor, tie)
    return best, (second_x if best == first_x else first_x), evaluations + more


@kernel
def rescale(s, scale):
    """Fold a small scale into the bounds, before float32 loses it."""
    for x in range(s.bound.shape[0]):
        s.bound[x] = s.bound[x] * scale if s.bound[x] > GONE else GONE
    return np.float32(1)


@kernel
def open_hint(s, hint):
    """The hint, or the first candidate that can be chosen."""
    if s.bound[hint] > GONE:
        return hint
    for x in range(s.bound.shape[0]):
        if s.bound[x] > GONE:
            return x
    return -1


@kernel
def run_greedy(s, hint, budget, stop, tie, eta, order, gains):
    """D on a swept state; ends before the first marginal at or below `stop`.

    Returns (reveals, evaluations).
    """
    scale = np.float32(any_live(s))
    evaluations = s.at.shape[0]
    for step in range(budget):
        hint = open_hint(s, hint)
        if scale > 0:
            x, hint, more = pick(s, scale, hint, tie, eta)
            evaluations += more
            gain = delta64(s, x)
        else:  # no target with a priority is left: all marginals are zero, lowest index first
            x, gain = open_hint(s, 0), 0.0
        if gain <= stop:
            return step, evaluations
        order[step] = x
        gains[step] = gain
        scale *= reveal(s, x)
        if 0 < scale < TINY_SCALE:
            scale = rescale(s, scale)
    return budget, evaluations


@kernel
def run_twin(a, b, hint, budget, tie, eta, order, gains):
    """T on two empty states, the first one swept. `order`, `gains` [2, budget].

    Returns (reveals of a, reveals of b, evaluations).
    """
    count_a, count_b, evaluations = 0, 0, a.at.shape[0]
    hint_a, hint_b = hint, hint
    b.bound[:] = a.bound
    scale_a, scale_b = np.float32(any_live(a)), np.float32(any_live(b))
    x_a, x_b, gain_a, gain_b = -1, -1, 0.0, 0.0  # the pick of each set, kept while it is valid
    for _ in range(2 * budget):
        if x_a < 0 and count_a < budget and scale_a > 0:
            hint_a = open_hint(a, hint_a)
            if hint_a < 0:
                break
            x_a, hint_a, more = pick(a, scale_a, hint_a, tie, eta)
            gain_a = delta64(a, x_a)
            evaluations += more
        if x_b < 0 and count_b < budget and scale_b > 0:
            hint_b = open_hint(b, hint_b)
            if hint_b < 0:
                break
            x_b, hint_b, more = pick(b, scale_b, hint_b, tie, eta)
            gain_b = delta64(b, x_b)
            evaluations += more
        if x_b >= 0 and (x_a < 0 or gain_b > gain_a + tie):
            if gain_b <= tie:
                break
            x = x_b
            order[1, count_b], gains[1, count_b] = x, gain_b
            count_b += 1
            scale_b *= reveal(b, x)
            a.bound[x] = GONE
            x_b = -1
            x_a = x_a if x_a != x and count_a < budget else -1
        else:
            if x_a < 0 or gain_a <= tie:
                break
            x = x_a
            order[0, count_a], gains[0, count_a] = x, gain_a
            count_a += 1
            scale_a *= reveal(a, x)
            b.bound[x] = GONE
            x_a = -1
            x_b = x_b if x_b != x and count_b < budget else -1
        if 0 < scale_a < TINY_SCALE:
            scale_a = rescale(a, scale_a)
        if 0 < scale_b < TINY_SCALE:
            scale_b = rescale(b, scale_b)
    return count_a, count_b, evaluations
