"""P's local search: swaps while they improve F, each the best of all pairs (`pairs.py`), or
decoupled: the best removal u, then the best insertion into Z - u (D27, docs/decisions.md).

    F(Z - u) - F(Z) = lambda_u S_u / T_u  -  sum over i outside Z of  w_i a / (T_i - a),   a = A_iu

and the insertion is a marginal. Removing invalidates lazy bounds, so both are swept densely, one
sweep of N evaluations per swap, in float32 intervals; float64 decides among those that overlap.
"""

from __future__ import annotations

import numpy as np

from goldimask.select.kernels import GONE, delta64, gain32, kernel, refresh, reveal
from goldimask.select.pairs import best_swap

REBUILD = 64  # swaps after which S is summed anew, so that rounding cannot build up
SMALL = 1e-3  # below this s0, S is summed anew after every removal: phi would magnify the rounding


@kernel
def loss32(s, u):
    """What the other targets lose when u leaves the set, float32."""
    loss = np.float32(0)
    least = np.float32(s.s0)
    for i in range(s.total.shape[0]):
        a = s.at[u, i]
        rest = s.total[i] - a
        rest = rest if rest > least else least
        loss += s.weight[i] * a / rest
    return loss


@kernel
def removal64(s, u):
    """F(Z - u) - F(Z), float64."""
    loss = 0.0
    for i in range(s.support.shape[0]):
        a = np.float64(s.at[u, i])
        rest = max(s.support[i] - a, 0.0) + s.s0  # in this order: s0 may be far below S
        loss += s.mass[i] * a / ((s.support[i] + s.s0) * rest)
    return s.lam[u] * s.support[u] / (s.support[u] + s.s0) - loss


@kernel
def best_of(s, inside, removing, barred, tie, eta):
    """(index, value) of the best removal from, or insertion into, the set; -1 if there is none."""
    n = inside.shape[0]
    floor = np.float32(-1e20)
    down, up = np.float32(1 - eta), np.float32(1 + eta)
    for x in range(n):
        s.upper[x] = GONE
        if inside[x] != removing or x == barred:
            continue
        if removing:
            own = np.float32(s.lam[x] * s.support[x] / (s.support[x] + s.s0))
            part = loss32(s, x)
            low, s.upper[x] = own * down - part * up, own * up - part * down
        else:
            part = gain32(s, x)
            low, s.upper[x] = part * down - s.cost[x] * up, part * up - s.cost[x] * down
        floor = max(floor, low - np.float32(tie))
    top = -1e300
    for x in range(n):
        if s.upper[x] >= floor:
            top = max(top, removal64(s, x) if removing else delta64(s, x))
    for x in range(n):
        if s.upper[x] >= floor:
            found = removal64(s, x) if removing else delta64(s, x)
            if found >= top - tie:
                return x, found
    return -1, -1e300


@kernel
def conceal(s, inside, u, anew):
    """Take u out of the set."""
    inside[u] = False
    s.mass[u] = s.lam[u] * s.s0
    s.lam32[u] = np.float32(s.lam[u])
    s.live[u] = np.float32(s.lam[u] > 0)
    if anew:
        s.support[:] = 0
        for x in range(inside.shape[0]):
            if inside[x]:
                for i in range(s.support.shape[0]):
                    s.support[i] += np.float64(s.at[x, i])
    else:
        for i in range(s.support.shape[0]):
            s.support[i] = max(s.support[i] - np.float64(s.at[u, i]), 0.0)
    refresh(s)


@kernel
def decoupled_swap(s, inside, anew, tie, eta):
    """(improvement, u, v); leaves u out of the set."""
    top = np.float32(0)
    for i in range(inside.shape[0]):
        top = max(top, s.total[i])
    # T - a loses digits when a is most of T
    u, first = best_of(s, inside, True, -1, tie, eta + 3e-7 * top / s.s0)
    conceal(s, inside, u, anew)
    v, second = best_of(s, inside, False, u, tie, eta)
    return first + second, u, v


@kernel
def run_swaps(s, source, rows, order, count, cap, exact, tie, eta):
    """Swap while it improves F, at most `cap` times; the newcomers end the order.

    Returns (swaps, evaluations of pairs).
    """
    n = s.at.shape[0]
    inside = np.zeros(n, dtype=np.bool_)
    for k in range(count):
        inside[order[k]] = True
    pairs = 0
    if count == 0 or count == n:
        return 0, pairs
    for swap in range(cap):
        anew = s.s0 < SMALL or swap % REBUILD == REBUILD - 1
        if exact:
            gain, u, v, more = best_swap(s, source, rows, inside, tie)
            pairs += more
            if u < 0:
                return swap, pairs
            conceal(s, inside, u, anew)
        else:
            gain, u, v = decoupled_swap(s, inside, anew, tie, eta)
            if gain <= tie:
                reveal(s, u)
                return swap, pairs
        reveal(s, v)
        inside[v] = True
        at = 0
        for k in range(count):
            order[at] = order[k]
            at += order[k] != u
        order[count - 1] = v
    return cap, pairs
