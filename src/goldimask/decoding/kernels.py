"""Numba loops of the lean pass: what lies between two matrix products, without a temporary.

And the choice of a token by the largest logit, for any pass.

    exp(x)   x = k ln 2 + r, |r| <= ln 2 / 2;  a polynomial of degree 7 in r (Cephes, 2 ulp) with k
             added to the exponent bits;  x is held between -87 and 80
    softmax  rows become exp(s - max s); the division by their sums waits until after the product
             with the values, where it is cheaper

Vector loops want arrays that do not overlap, hence the scratch rows, and float arithmetic in the
written order where k is rounded off by adding and subtracting 1.5 * 2^23, hence `ORDERED`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numba import njit

F = np.float32
ORDERED = {"contract", "nnan", "ninf", "nsz", "arcp"}  # all of fastmath but reassociation

LOG2E = F(1.4426950408889634)
LN2_HIGH, LN2_LOW = F(0.693359375), F(-2.12194440e-4)
P7, P6, P5 = F(1.9875691500e-4), F(1.3981999507e-3), F(8.3334519073e-3)
P4, P3, P2 = F(4.1665795894e-2), F(1.6666665459e-1), F(5.0000001201e-1)
ROUND = F(12582912.0)
LOWEST, HIGHEST = F(-87.0), F(80.0)
MUCH = F(1e30)
ZERO, ONE = F(0), F(1)
BITS = np.int32(23)


def kernel(function: Any = None, *, fastmath: bool | set[str] = True) -> Any:
    """Compile and cache on disk; in every process where no folder can be written."""
    if function is None:
        return partial(kernel, fastmath=fastmath)
    options = {"nogil": True, "error_model": "numpy", "fastmath": fastmath}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:
        return njit(**options)(function)


@kernel(fastmath=ORDERED)
def exp_row(x, shift, whole, whole_bits, part, part_bits, out_bits):
    """out <- exp(x - shift); the last five are scratch rows and views of their bits."""
    for i in range(x.shape[0]):
        v = min(max(x[i] - shift, LOWEST), HIGHEST)
        y = v * LOG2E + ROUND
        whole[i] = y
        k = y - ROUND
        r = (v - k * LN2_HIGH) - k * LN2_LOW
        p = P7 * r + P6
        p = p * r + P5
        p = p * r + P4
        p = p * r + P3
        p = p * r + P2
        part[i] = (p * r) * r + (r + ONE)
    for i in range(x.shape[0]):
        out_bits[i] = part_bits[i] + (whole_bits[i] << BITS)


@kernel
def largest(row, count):
    top = row[0]
    for i in range(count):
        top = max(top, row[i])
    return top


@kernel
def total(row):
    s = ZERO
    for i in range(row.shape[0]):
        s += row[i]
    return s


@kernel
def soften(scores, count, share):
    """Rows [R, W]: s -> exp(s - max), zero from `count` on; and 1 / sums. [R]"""
    width = scores.shape[1]
    bits = scores.view(np.int32)
    whole, part = np.empty(width, np.float32), np.empty(width, np.float32)
    whole_bits, part_bits = whole.view(np.int32), part.view(np.int32)
    for r in range(scores.shape[0]):
        row = scores[r]
        exp_row(row, largest(row, count), whole, whole_bits, part, part_bits, bits[r])
        for i in range(count, width):
            row[i] = ZERO
        share[r] = ONE / total(row)


@kernel
def dot(a, b):
    s = ZERO
    for i in range(a.shape[0]):
        s += a[i] * b[i]
    return s


@kernel
def combine(goal, rows, factors):
    """goal [T] += sum_r factors_r rows_r, four rows at a time"""
    count, whole = rows.shape[0], rows.shape[0] // 4 * 4
    for r in range(0, whole, 4):
        a, b, c, d = rows[r], rows[r + 1], rows[r + 2], rows[r + 3]
        e, f, g, h = factors[r], factors[r + 1], factors[r + 2], factors[r + 3]
        for i in range(goal.shape[0]):
            goal[i] += (a[i] * e + b[i] * f) + (c[i] * g + d[i] * h)
    for r in range(whole, count):
        a, e = rows[r], factors[r]
        for i in range(goal.shape[0]):
            goal[i] += a[i] * e


@kernel
def exchange(q, k, v, sign, over, under, top):
    """Terms of keys and values [H_kv, d, c], times `sign`, enter the sums."""
    heads, size, count = q.shape
    many, group = k.shape[2], heads // k.shape[0]
    s, made = np.empty(count, F), np.empty((many, count), F)
    whole, part = np.empty(count, F), np.empty(count, F)
    bits, whole_bits, part_bits = made.view(np.int32), whole.view(np.int32), part.view(np.int32)
    signs = np.full(many, sign)
    for h in range(heads):
        for n in range(many):
            for t in range(count):
                s[t] = -top[h, t]
            combine(s, q[h], k[h // group, :, n])
            exp_row(s, ZERO, whole, whole_bits, part, part_bits, bits[n])
        combine(under[h], made, signs)
        for i in range(size):
            combine(over[h, i], made, sign * v[h // group, i])


@kernel
def sum_rows(q, k, v, rows, over, under, top, peak):
    """The sums of some rows over all keys."""
    heads, size, count = q.shape
    group = heads // k.shape[0]
    s, made = np.empty(count, F), np.empty(count, F)
    whole, part, factors = np.empty(count, F), np.empty(count, F), np.empty(size, F)
    bits, whole_bits, part_bits = made.view(np.int32), whole.view(np.int32), part.view(np.int32)
    for h in range(heads):
        keys, values = k[h // group], v[h // group]
        for t in rows:
            s[:] = ZERO
            factors[:] = q[h, :, t]
            combine(s, keys, factors)
            top[h, t] = largest(s, count)
            exp_row(s, top[h, t], whole, whole_bits, part, part_bits, bits)
            under[h, t] = peak[h, t] = total(made)
            for i in range(size):
                over[h, i, t] = dot(made, values[i])


@kernel
def carry(canvas, seen, table, cos, sin, scale, q, k, v, over, under, top, peak, least, out):
    """The attention of the first block on `canvas` [T], from its sums on `seen`; see `sums`.

    Sums and what they are made of lie with the positions along rows, so that every loop over them
    is a vector loop. A row whose sum falls below `least` of its largest value, or is so large that
    an exponential may have been cut off, is summed afresh.
    """
    heads, size, count = q.shape
    queries, width = heads * size, k.shape[0] * size
    changed = np.flatnonzero(canvas != seen)
    anew = 3 * changed.shape[0] > count
    stale = np.full(count, anew)
    stale[changed] = True
    gone_k, gone_v = k[:, :, changed], v[:, :, changed]
    x = table[canvas[changed]]
    rotate(x, 0, cos, sin, changed, changed, scale, q.transpose(0, 2, 1))
    rotate(x, queries, cos, sin, changed, changed, ONE, k.transpose(0, 2, 1))
    place(x, queries + width, changed, v.transpose(0, 2, 1))
    seen[:] = canvas
    if not anew:
        exchange(q, gone_k, gone_v, -ONE, over, under, top)
        exchange(q, k[:, :, changed], v[:, :, changed], ONE, over, under, top)
        for h in range(heads):
            for t in range(count):
                peak[h, t] = max(peak[h, t], under[h, t])
                if under[h, t] < least * peak[h, t] or under[h, t] > MUCH:
                    stale[t] = True
    sum_rows(q, k, v, np.flatnonzero(stale), over, under, top, peak)
    for first in range(0, count, 16):
        for h in range(heads):
            for i in range(size):
                for t in range(first, min(first + 16, count)):
                    out[t, h * size + i] = over[h, i, t] / under[h, t]


@kernel
def merge(mixed, share, out):
    """[H, n, d] times [H n] -> [n, H d]"""
    heads, rows, size = mixed.shape
    for t in range(rows):
        for h in range(heads):
            scale, source, goal = (
                share[h * rows + t],
                mixed[h, t],
                out[t, h * size : (h + 1) * size],
            )
            for i in range(size):
                goal[i] = source[i] * scale


@kernel
def rotate(x, first, cos, sin, at, to, scale, out):
    """RoPE: columns `first`... of x [n, ...], positions `at` [n] -> rows `to` of out [H, N, d]."""
    heads, _, size = out.shape
    half = size // 2
    for t in range(x.shape[0]):
        c, s = cos[at[t]], sin[at[t]]
        for h in range(heads):
            begin = first + h * size
            source, goal = x[t, begin : begin + size], out[h, to[t]]
            for i in range(half):
                a, b = source[i] * scale, source[half + i] * scale
                goal[i] = a * c[i] - b * s[i]
                goal[half + i] = a * s[i] + b * c[i]


@kernel
def place(x, first, to, out):
    """Columns `first`... of x [n, ...] -> rows `to` of out [H, N, d]."""
    heads, _, size = out.shape
    for t in range(x.shape[0]):
        for h in range(heads):
            begin = first + h * size
            source, goal = x[t, begin : begin + size], out[h, to[t]]
            for i in range(size):
                goal[i] = source[i]


@kernel
def unit(x, eps, out):
    """x / rms(x)"""
    width = x.shape[1]
    for t in range(x.shape[0]):
        row, goal = x[t], out[t]
        s = ZERO
        for i in range(width):
            s += row[i] * row[i]
        scale = ONE / np.sqrt(s / F(width) + eps)
        for i in range(width):
            goal[i] = row[i] * scale


@kernel
def gate(both, out):
    """[n, 2 F] -> silu(first half) * second half. [n, F]"""
    width = out.shape[1]
    low, made = np.empty(width, np.float32), np.empty(width, np.float32)
    whole, part = np.empty(width, np.float32), np.empty(width, np.float32)
    made_bits, whole_bits, part_bits = (
        made.view(np.int32),
        whole.view(np.int32),
        part.view(np.int32),
    )
    for t in range(both.shape[0]):
        g, u, goal = both[t, :width], both[t, width:], out[t]
        for i in range(width):
            low[i] = -g[i]
        exp_row(low, ZERO, whole, whole_bits, part, part_bits, made_bits)
        for i in range(width):
            goal[i] = g[i] * u[i] / (ONE + made[i])


@kernel(fastmath=False)
def choose(logits, allowed, token, confidence):
    """Rows [n, V]: the largest allowed logit l (the first of equal ones), 1 / sum exp(l_i - l)."""
    for r in range(logits.shape[0]):
        row, best = logits[r], -1
        for i in range(row.shape[0]):
            if allowed[i] and (best < 0 or row[i] > row[best]):
                best = i
        top, s = np.float64(row[best]), 0.0
        for i in range(row.shape[0]):
            if allowed[i]:
                s += np.exp(np.float64(row[i]) - top)
        token[r], confidence[r] = best, 1.0 / s
