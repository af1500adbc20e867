"""Exact best-pair swaps for P (`swap: pair`; D27, docs/decisions.md) without evaluating all pairs.

For u in Z and v outside, with S, T those of Z and a_u = A_iu, a_v = A_iv,

    F(Z - u + v) - F(Z) = removal_u + Delta_v(Z)
                          + lambda_v [phi(S_v) - phi(S_v - A_vu)]     v's cost is lower without u
                          + lambda_u [phi(S_u + A_uv) - phi(S_u)]     u is a target again
                          + sum over i outside Z of lambda_i cross_i

    cross_i = s0 a_v [1/((T-a_u)(T-a_u+a_v)) - 1/(T(T+a_v))]  <=  s0 a_v [1/(T-a_u)^2 - 1/T^2]

The bound on the last sum is one matrix product for all pairs; everything else is exact. Pairs are
then evaluated exactly from the largest bound down, until no bound reaches the best value. With
linear support the last sum vanishes and the formula is exact as it stands.
"""

from __future__ import annotations

import numpy as np

from goldimask.select.oracle import TIE, Mask, Problem, removals

CHUNK = 64  # pairs evaluated at a time
ROUNDING = 1e-9  # of a bound, relative to the terms it is made of


def best_pair(p: Problem, reveal: Mask) -> tuple[float, int, int]:
    """(improvement, u, v), as `oracle.swap_pair`."""
    inside, outside = np.flatnonzero(reveal), np.flatnonzero(~reveal)
    s = p.attention[:, reveal].sum(1)
    out, into = removals(p, reveal)[inside], p.delta(reveal)[outside]
    phi, lam = p.support, p.priority
    to_u = p.attention[np.ix_(outside, inside)]  # [v, u]: attention v -> u
    to_v = p.attention[np.ix_(inside, outside)]  # [u, v]
    less = np.maximum(s[outside][:, None] - to_u, 0.0)
    own = lam[outside][:, None] * (phi(s[outside])[:, None] - phi(less))  # [v, u]
    again = lam[inside][:, None] * (phi(s[inside][:, None] + to_v) - phi(s[inside])[:, None])
    fixed = out[:, None] + into[None] + own.T + again  # [u, v]
    if phi.kind == "linear":
        best = int(np.flatnonzero(fixed.ravel() >= fixed.max() - p.tie)[0])
        u, v = divmod(best, len(outside))
        return float(fixed[u, v]), int(inside[u]), int(outside[v])
    t = s[outside] + phi.s0
    shorter = less + phi.s0
    growth = (lam[outside] * phi.s0)[:, None] * (shorter**-2 - t[:, None] ** -2)  # [i, u]
    cross = growth.T @ p.attention[np.ix_(outside, outside)]
    bound = fixed + cross * (1 + ROUNDING) + ROUNDING * p.tie / TIE
    return _search(p, reveal, s, out, bound, inside, outside)


def _search(p, reveal, s, out, bound, inside, outside) -> tuple[float, int, int]:
    """Evaluate from the largest bound down; the lowest (u, v) among the best."""
    flat = bound.ravel()
    exact = np.full(flat.shape, -np.inf)
    top = -np.inf
    todo = flat.copy()
    while True:
        k = min(CHUNK, len(todo))
        at = np.argpartition(todo, len(todo) - k)[len(todo) - k :]
        at = at[todo[at] >= top - p.tie]
        at = at[np.isfinite(todo[at])]
        if not len(at):
            break
        u, v = np.divmod(at, len(outside))
        exact[at] = out[u] + _insertions(p, reveal, s, inside[u], outside[v])
        todo[at] = -np.inf
        top = max(top, float(exact[at].max()))
    best = int(np.flatnonzero(exact >= top - p.tie)[0])
    u, v = divmod(best, len(outside))
    return float(exact[best]), int(inside[u]), int(outside[v])


def _insertions(p: Problem, reveal: Mask, s, us: np.ndarray, vs: np.ndarray) -> np.ndarray:
    """Delta_v(Z - u) for pairs (u, v), O(N) each."""
    less = np.maximum(s[None] - p.attention[:, us].T, 0.0)  # [pairs, N]
    rest = np.where(reveal, 0.0, p.priority)[None].repeat(len(us), 0)
    pairs = np.arange(len(us))
    rest[pairs, us] = p.priority[us]
    gain = (rest * (p.support(less + p.attention[:, vs].T) - p.support(less))).sum(1)
    return gain - p.priority[vs] * p.support(less[pairs, vs])
