"""Numba loops of the lean pass: what lies between two matrix products, without a temporary.

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
ZERO, ONE = F(0), F(1)
BITS = np.int32(23)


def kernel(function: Any = None, *, ordered: bool = False) -> Any:
    """Compile and cache on disk; in every process where no folder can be written."""
    if function is None:
        return partial(kernel, ordered=ordered)
    options = {"nogil": True, "error_model": "numpy", "fastmath": ORDERED if ordered else True}
    try:
        return njit(cache=True, **options)(function)
    except RuntimeError:
        return njit(**options)(function)


@kernel(ordered=True)
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
