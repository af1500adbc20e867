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
DONE = np.float32(-2e20)  # evaluated in this pick
LEAST, FLIP = np.int32(-0x80000000), np.int32(0x7FFFFFFF)


@kernel
def sweep(s, eta):
    """Evaluate every candidate: upper bounds of G on the empty set."""
    for x in range(s.at.shape[0]):
        s.bound[x] = gain32(s, x) * np.float32(1 + eta)


@kernel
def bound_all(s, scale, eta):
    """Upper bounds of the marginals, and the largest of every 32. Returns where the largest is.

    Flipping the lower bits of negative floats orders them like integers, whose maximum vectorises.
    """
    one_less = np.float32(1 - eta)
    for x in range(s.bound.shape[0]):
        s.upper[x] = s.bound[x] * scale - s.cost[x] * one_less
    bits = s.upper.view(np.int32).reshape(-1, BLOCK)
    best = 0
    for t in range(s.tops.shape[0]):
        top = LEAST
        for j in range(BLOCK):
            b = bits[t, j]
            top = max(top, np.int32(b ^ np.int32(np.int32(b >> np.int32(31)) & FLIP)))
        s.tops[t] = top
        best = t if top > s.tops[best] else best
    return best


@kernel
def ordered_bits(s, number):
    """A float32 as an integer of the same order."""
    s.word[0] = number
    b = s.word.view(np.int32)[0]
    return np.int32(b ^ np.int32(np.int32(b >> np.int32(31)) & FLIP))


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
def pick(s, scale, tie, eta):
    """(candidate with the largest marginal, evaluations); -1 if none can be chosen."""
    one_less, one_more = np.float32(1 - eta), np.float32(1 + eta)
    slack = np.float32(tie)
    first = bound_all(s, scale, eta)
    top = np.float32(-1e20)
    for j in range(BLOCK):
        top = max(top, s.upper[first * BLOCK + j])
    floor = np.float32(-1e20)  # far above GONE * scale
    floor_bits = ordered_bits(s, floor)
    count, evaluations = 0, 0
    for turn in range(-2, s.tops.shape[0]):
        # the candidate with the largest bound comes first, then its tile: they give a high floor
        tile = first if turn < 0 else turn
        if s.tops[tile] < floor_bits or turn == first:
            continue
        for j in range(BLOCK):
            x = tile * BLOCK + j
            if s.upper[x] < floor or (turn == -2 and s.upper[x] < top):
                continue
            gain = gain32(s, x)
            evaluations += 1
            s.bound[x] = gain * one_more / scale
            s.upper[x] = DONE
            high = gain * one_more - s.cost[x] * one_less
            if high >= floor:
                s.index[count] = x
                s.height[count] = high
                count += 1
                floor = max(floor, gain * one_less - s.cost[x] * one_more - slack)
        floor_bits = ordered_bits(s, floor)
    if count == 0:
        return -1, 0
    best, more = settle(s, count, floor, tie)
    return best, evaluations + more


@kernel
def rescale(s, scale):
    """Fold a small scale into the bounds, before float32 loses it."""
    for x in range(s.bound.shape[0]):
        s.bound[x] = s.bound[x] * scale if s.bound[x] > GONE else GONE
    return np.float32(1)


@kernel
def first_open(s):
    """The lowest candidate that can be chosen."""
    for x in range(s.bound.shape[0]):
        if s.bound[x] > GONE:
            return x
    return -1


@kernel
def follow(s, order, gains):
    """Reveal in a given order; `gains` become F's increments."""
    for k in range(order.shape[0]):
        gains[k] = delta64(s, order[k])
        reveal(s, order[k])


@kernel
def marginals64(s, out):
    """The marginals of all candidates."""
    for x in range(s.at.shape[0]):
        out[x] = delta64(s, x)


@kernel
def run_greedy(s, budget, stop, tie, eta, order, gains):
    """D on a swept state; ends before the first marginal at or below `stop`.

    Returns (reveals, evaluations).
    """
    scale = np.float32(any_live(s))
    evaluations = s.at.shape[0]
    for step in range(budget):
        if scale > 0:
            x, more = pick(s, scale, tie, eta)
            evaluations += more
            gain = delta64(s, x)
        else:  # no target with a priority is left: all marginals are zero, lowest index first
            x, gain = first_open(s), 0.0
        if gain <= stop:
            return step, evaluations
        order[step] = x
        gains[step] = gain
        scale *= reveal(s, x)
        if 0 < scale < TINY_SCALE:
            scale = rescale(s, scale)
    return budget, evaluations


@kernel
def run_twin(a, b, budget, tie, eta, order, gains):
    """T on two empty states, the first one swept. `order`, `gains` [2, budget].

    Returns (reveals of a, reveals of b, evaluations).
    """
    count_a, count_b, evaluations = 0, 0, a.at.shape[0]
    b.bound[:] = a.bound
    scale_a, scale_b = np.float32(any_live(a)), np.float32(any_live(b))
    x_a, x_b, gain_a, gain_b = -1, -1, 0.0, 0.0  # the pick of each set, kept while it is valid
    for _ in range(2 * budget):
        if x_a < 0 and count_a < budget and scale_a > 0:
            x_a, more = pick(a, scale_a, tie, eta)
            gain_a = delta64(a, x_a) if x_a >= 0 else 0.0
            evaluations += more
        if x_b < 0 and count_b < budget and scale_b > 0:
            x_b, more = pick(b, scale_b, tie, eta)
            gain_b = delta64(b, x_b) if x_b >= 0 else 0.0
            evaluations += more
        second = x_b >= 0 and (x_a < 0 or gain_b > gain_a + tie)
        if (gain_b if second else gain_a) <= tie or (x_a < 0 and x_b < 0):
            break
        if second:
            order[1, count_b], gains[1, count_b] = x_b, gain_b
            count_b += 1
            scale_b *= reveal(b, x_b)
            a.bound[x_b] = GONE
            x_a = -1 if x_a == x_b else x_a
            x_b = -1
        else:
            order[0, count_a], gains[0, count_a] = x_a, gain_a
            count_a += 1
            scale_a *= reveal(a, x_a)
            b.bound[x_a] = GONE
            x_b = -1 if x_b == x_a else x_b
            x_a = -1
        if 0 < scale_a < TINY_SCALE:
            scale_a = rescale(a, scale_a)
        if 0 < scale_b < TINY_SCALE:
            scale_b = rescale(b, scale_b)
    return count_a, count_b, evaluations
