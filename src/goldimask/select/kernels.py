"""Numba primitives of the fast maximisers for saturating support.

With S_i the support of target i, T_i = S_i + s0 and a = A_ix, a marginal has the rational form

    Delta_x = G_x - c_x,   G_x = sum over i outside R of  w_i a / (T_i + a),
    w_i = lambda_i s0 / T_i,   c_x = lambda_x S_x / T_x

with one division per entry, nonnegative terms (so a float32 sum has a small relative error) and no
difference of nearly equal numbers. S is kept in float64, and float32 copies are made from it at
every reveal, so nothing drifts. Priorities are divided by the largest one.

Layout. `at[x, i] = A[i, x]`: a candidate's column is contiguous; `tiles` are its blocks. Columns,
and every vector, are padded with inert entries to whole blocks, so vector loops have no remainder;
for large N the number of blocks is odd, so a walk along a row of A does not fall on one cache set.
Loops index from zero (numba's wraparound of negative indices would block vectorisation).
"""

from __future__ import annotations

import hashlib
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

GONE = np.float32(-1e30)  # bound of a candidate that cannot be chosen
RATIO_SLACK = np.float32(1.0 + 5e-7)  # rounding of one float32 ratio


def _stamp() -> str:
    """A digest of every kernel's source: what is compiled and cached is valid for all or none.

    Numba looks only at the file a kernel stands in, not at those of the kernels it calls.
    """
    digest = hashlib.blake2b(digest_size=16)
    for name in ("kernels.py", "lazy.py", "sampled.py", "pairs.py", "swaps.py", "draws.py"):
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()


STAMP = _stamp()


def kernel(function: Any = None, *, strict: bool = False) -> Any:
    """Compile without the GIL and cache on disk (numba's user cache if the package is read-only).

    Numpy's error model and reassociation let sums vectorise; no kernel makes an inf or a nan.
    `strict` is for those that look for one.
    """
    if function is None:
        return partial(kernel, strict=strict)
    options = {"nogil": True, "error_model": "numpy", "fastmath": not strict}
    try:
        compiled = njit(cache=True, **options)(function)
    except RuntimeError:  # no folder can be written, not even the user's: compile in every process
        return njit(**options)(function)
    index = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(index, "_source_stamp"):
        index._source_stamp = STAMP  # pyright: ignore[reportOptionalMemberAccess]
    return compiled


class State(NamedTuple):
    """One reveal set under construction. All vectors have the padded length."""

    at: Float32  # [N, padded]
    tiles: Float32  # [N, blocks, size], the same memory
    s0: float
    lam: Float64  # priority / max priority
    mass: Float64  # lam * s0, zero once revealed
    support: Float64  # S
    lam32: Float32  # lam, zero once revealed
    total: Float32  # T = S + s0
    weight: Float32  # w
    cost: Float32  # c
    most: Float32  # largest attention a target pays to any candidate
    live: Float32  # 1 where mass > 0, else 0
    ratio: Float32  # scratch: how much a target's terms shrank in the last reveal
    word: Float32  # [1] scratch, to read bits as a number
    bound: Float32  # upper bound of G / scale, GONE for what cannot be chosen
    upper: Float32  # scratch: upper bounds of the marginals
    tops: NDArray[np.int32]  # scratch: largest upper bound of every 32 candidates, as ordered bits
    index: NDArray[np.int64]  # scratch: contenders
    height: Float32  # scratch: their upper bounds


def shape_of(n: int) -> tuple[int, int, int]:
    """Shape of `tiles`: at most 33 blocks up to N = 4096."""
    size = 32 if n <= 1024 else 64 if n <= 2048 else 128
    blocks = max(1, -(-n // size))
    return n, blocks + (blocks % 2 == 0 and n >= 512), size


def margin_of(n: int) -> float:
    """Relative error of a float32 G or c, with room: worst case of eight partial sums."""
    return 2e-6 + 8e-9 * n


def new_state(at: Float32, priority: Float64, most: Float32, s0: float) -> State:
    """The empty set. `at` [N, padded]; `priority` [N] is already divided by its maximum."""
    n, lead = at.shape

    def vector(dtype: type, fill: float = 0.0) -> np.ndarray:
        return np.full(lead, fill, dtype=dtype)

    lam = vector(np.float64)
    lam[:n] = priority
    bound = vector(np.float32, float(GONE))
    bound[:n] = 0.0
    lam32 = lam.astype(np.float32)
    return State(
        at, at.reshape(shape_of(n)), float(s0), lam, lam * s0, vector(np.float64), lam32,
        vector(np.float32, s0), lam32.copy(), vector(np.float32), most,
        (lam > 0).astype(np.float32), vector(np.float32), np.zeros(1, np.float32), bound,
        vector(np.float32), np.zeros(lead // 32, np.int32), vector(np.int64), vector(np.float32),
    )  # fmt: skip


@kernel(strict=True)
def columns(attention, rows, at, most, received):
    """Cut the candidates out of `attention` [N, any], transposed, with a zero diagonal.

    `at` is flat here, [N, padded]. `most` and `received` become the largest and the total attention
    of each target. Returns False if an entry is negative or not finite. Eight rows at a time: more
    of them would evict each other where the row length is a power of two.
    """
    n = rows.shape[0]
    for i0 in range(0, n, 8):
        stop = min(i0 + 8, n)
        for x in range(n):
            r = rows[x]
            for i in range(i0, stop):
                at[x, i] = attention[i, r] + np.float32(0)  # no negative zero
    bits = at.view(np.uint32)  # nonnegative floats are ordered like their bits, others are larger
    top = most.view(np.uint32)
    for x in range(n):
        at[x, x] = 0
        for i in range(n):
            top[i] = max(top[i], bits[x, i])
        for i in range(n):
            received[i] += at[x, i]
    worst = np.uint32(0)
    for i in range(n):
        worst = max(worst, top[i])
    return worst < np.uint32(0x7F800000)


@kernel
def gain32(s, x):
    """G_x, float32."""
    g = np.float32(0)
    for i in range(s.total.shape[0]):
        a = s.at[x, i]
        g += s.weight[i] * a / (s.total[i] + a)
    return g


@kernel
def delta64(s, x):
    """Delta_x, float64."""
    g = 0.0
    for i in range(s.support.shape[0]):
        a = np.float64(s.at[x, i])
        t = s.support[i] + s.s0
        g += s.mass[i] * a / (t * (t + a))
    return g - s.lam[x] * s.support[x] / (s.support[x] + s.s0)


@kernel
def refresh(s):
    """Float32 copies from the float64 support; `ratio` bounds how much any term of a target shrank.

    A term is proportional to 1/(T(T+a)); its ratio new/old grows with a, so a = `most` bounds it.
    """
    s0 = np.float32(s.s0)
    for i in range(s.total.shape[0]):  # a loop of its own: mixed precision would not vectorise
        s.ratio[i] = np.float32(s.support[i])
    for i in range(s.total.shape[0]):
        now, old, most = s.ratio[i], s.total[i], s.most[i]
        t = now + s0
        inverse = np.float32(1) / t
        s.total[i] = t
        s.weight[i] = s.lam32[i] * s0 * inverse
        s.cost[i] = s.lam32[i] * now * inverse
        s.ratio[i] = s.live[i] * (old * (old + most)) * inverse / (t + most)


@kernel
def reveal(s, x):
    """Add x to the set. Returns the largest ratio over the live targets, 0 when none is left."""
    s.mass[x] = 0.0
    s.lam32[x] = 0
    s.live[x] = 0
    s.bound[x] = GONE
    for i in range(s.support.shape[0]):
        s.support[i] += np.float64(s.at[x, i])
    refresh(s)
    # nonnegative floats are ordered like their bits, and an integer maximum vectorises
    bits = s.ratio.view(np.int32)
    top = np.int32(0)
    for i in range(bits.shape[0]):
        top = max(top, bits[i])
    s.word.view(np.int32)[0] = top
    return s.word[0] * RATIO_SLACK


@kernel
def any_live(s):
    """Is there a target with a priority? Without one every marginal is zero for good."""
    return s.live.max() > 0


@kernel
def value64(s):
    """F of the set."""
    f = 0.0
    for i in range(s.support.shape[0]):
        if s.mass[i] > 0:
            f += s.lam[i] * s.support[i] / (s.support[i] + s.s0)
    return f
