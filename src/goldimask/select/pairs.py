"""P's local search by exact best swaps: the best of all pairs, most of them never evaluated.

For u in Z and v outside, with T those of Z, a_u = A_iu, a_v = A_iv and tau = T - a_u,

    F(Z - u + v) - F(Z) = F(Z - u) - F(Z)  +  Delta_v(Z)                  two marginals
                          + lambda_v [phi(S_v) - phi(S_v - A_vu)]         v's cost falls
                          + lambda_u [phi(S_u + A_uv) - phi(S_u)]         u is a target again
                          + sum over i outside Z of cross_i

    cross_i = lambda_i s0 a_v [1/(tau (tau + a_v)) - 1/(T (T + a_v))]
            <= q_i  x_iu  y_iv,   q = lambda s0 / T^3,   x_u = a_u T (T + tau) / tau^2,
                                                         y_v = a_v T / (T + a_v)

The first two lines bound the swap from below, since F is submodular. From above, Cauchy-Schwarz
bounds the last sum by two norms, |x_u| |y_v| in the metric q, and tighter by the norms of every
block of targets. So a sweep needs one evaluation per candidate, a few operations for the pairs of
members whose removal costs little, and exact evaluations of the pairs whose bound reaches the best
one: a handful where attention is spread, more where a few entries hold all of it.
"""

from __future__ import annotations

import numpy as np

from goldimask.select.kernels import kernel

ROUNDING = 1e-6  # of the norms, which are kept in float32
NOTHING = -1e300


@kernel
def survey(s, inside, first, most, norm, norms):
    """The marginal of every removal and insertion, its largest loss, the norms of its x or y."""
    blocks, size = s.tiles.shape[1:]
    support, total = s.support.reshape(blocks, size), (s.support + s.s0).reshape(blocks, size)
    weight = s.mass.reshape(blocks, size) / total
    for x in range(inside.shape[0]):
        marginal, square, largest = 0.0, 0.0, 0.0
        for b in range(blocks):
            part = 0.0
            if inside[x]:
                for j in range(size):
                    a, t = np.float64(s.tiles[x, b, j]), total[b, j]
                    rest = max(support[b, j] - a, 0.0) + s.s0
                    share = a / rest
                    loss, bend = weight[b, j] * share, share * (t + rest) / rest
                    marginal -= loss
                    largest = max(largest, loss)
                    part += weight[b, j] * bend * bend
            else:
                for j in range(size):
                    a = np.float64(s.tiles[x, b, j])
                    share = a / (total[b, j] + a)
                    marginal += weight[b, j] * share
                    part += weight[b, j] * share * share
            square += part
            norms[x, b] = np.float32(np.sqrt(part) * (1 + ROUNDING))
        own = s.lam[x] * s.support[x] / (s.support[x] + s.s0)
        first[x] = marginal + own if inside[x] else marginal - own
        norm[x] = np.sqrt(square)
        most[x] = largest


@kernel
def known(s, source, rows, first, u, v):
    """All of a swap's value but the cross terms."""
    to_u, to_v = np.float64(s.at[u, v]), np.float64(source[u, rows[v]])
    t, total = s.support[u] + s.s0, s.support[v] + s.s0
    rest = max(s.support[v] - to_u, 0.0) + s.s0
    again = s.lam[u] * to_v / (t * (t + to_v))
    return first[u] + first[v] + s.s0 * (s.lam[v] * to_u / (total * rest) + again)


@kernel
def cross(s, u, v):
    """The sum of the cross terms, float64."""
    found = 0.0
    for i in range(s.support.shape[0]):
        a, b = np.float64(s.at[u, i]), np.float64(s.at[v, i])
        t = s.support[i] + s.s0
        rest = max(s.support[i] - a, 0.0) + s.s0
        found += s.mass[i] * a * b * (t + rest + b) / (rest * (rest + b) * t * (t + b))
    return found


@kernel
def most_of(s, source, rows, inside, first, norm, u):
    """(lower, upper) bound of the best swap that removes u."""
    low, high = NOTHING, NOTHING
    for v in range(inside.shape[0]):
        if not inside[v]:
            value = known(s, source, rows, first, u, v)
            low = max(low, value)
            high = max(high, value + norm[u] * norm[v] * (1 + ROUNDING))
    return low, high


@kernel
def scan(s, source, rows, inside, first, norm, norms, upper, floor, tie, stop):
    """(best value, u, v, evaluations) of the pairs that may reach `floor`; with `stop`, the first
    in order that does.
    """
    best, best_u, best_v, evaluations = NOTHING, -1, -1, 0
    n = inside.shape[0]
    for u in range(n):
        if upper[u] < floor - tie:
            continue
        for v in range(n):
            if inside[v]:
                continue
            value = known(s, source, rows, first, u, v)
            if value + norm[u] * norm[v] * (1 + ROUNDING) < floor - tie:
                continue
            more = np.float32(0)
            for b in range(norms.shape[1]):
                more += norms[u, b] * norms[v, b]
            if value + more * (1 + 10 * ROUNDING) < floor - tie:
                continue
            value += cross(s, u, v)
            evaluations += 1
            if value > best:
                best, best_u, best_v = value, u, v
                if stop and value >= floor - tie:
                    return best, best_u, best_v, evaluations
                floor = floor if stop else max(floor, value)
    return best, best_u, best_v, evaluations


@kernel
def best_swap(s, source, rows, inside, tie):
    """(improvement, u, v, evaluations): the best of all pairs, ties to the lowest u, then v.

    `source` [N, any] has a row of attention per candidate, `rows` its columns that are candidates.
    Where no swap improves F, u and v are -1.
    """
    n = inside.shape[0]
    first, most, norm = np.empty(n), np.empty(n), np.empty(n)
    norms = np.empty((n, s.tiles.shape[1]), dtype=np.float32)
    survey(s, inside, first, most, norm, norms)
    top, longest = NOTHING, 0.0
    for v in range(n):
        if not inside[v]:
            top, longest = max(top, first[v]), max(longest, norm[v])
    floor = tie  # what does not improve F is of no interest
    upper = np.full(n, NOTHING)
    for u in range(n):
        if inside[u]:  # a bound without v: its cost falls by at most u's largest term
            t, paid = s.support[u] + s.s0, np.float64(s.most[u])
            again = s.lam[u] * s.s0 * paid / (t * (t + paid))
            if first[u] + top + most[u] + again + norm[u] * longest * (1 + ROUNDING) >= floor - tie:
                low, upper[u] = most_of(s, source, rows, inside, first, norm, u)
                floor = max(floor, low)
    given = (s, source, rows, inside, first, norm, norms, upper)
    best, u, v, evaluations = scan(*given, floor, tie, False)
    if best <= tie:
        return 0.0, -1, -1, evaluations
    best, u, v, more = scan(*given, best, tie, True)
    return best, u, v, evaluations + more
