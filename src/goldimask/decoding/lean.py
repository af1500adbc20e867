"""The exact forward pass of one example, for small models on a CPU in float32 (`fused`).

The function of the model's own forward, arranged for one canvas and the rows that are asked for:

    block 1       queries, keys and values are looked up by token; the sums of its attention are
                  carried from step to step (`sums`)
    block L       keys of all T rows; queries, output, MLP, norm and head of the n predicting rows
                  alone (every other block needs all its rows); for few rows the values too are
                  projected after they were mixed:  sum_j a_ij (W h_j + b) = W (sum_j a_ij h_j) + b
    between the matrix products there is one loop each (`kernels`); large buffers are reused

Nothing is approximated; sums run in another order, so logits agree with the model's to rounding.
Examples are not padded into a batch: one canvas fills a core, and an example's numbers are bit for
bit the same in any batch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from goldimask.decoding import kernels
from goldimask.decoding.fused import Affine, Block, Lean, times
from goldimask.decoding.rows import Row
from goldimask.decoding.sums import Sums, carry, new_sums
from goldimask.decoding.types import Settings

LANES = 8  # rows of keys are padded to whole vectors
MOST_ARENAS = 100


class Pair(NamedTuple):
    """The same memory for both libraries."""

    t: Tensor
    n: np.ndarray


@dataclass(frozen=True)
class Keys:
    """Keys, values and what precedes them, of T positions."""

    h: Pair  # [T, D]
    flat: Pair  # [T, H_kv d] keys or values before they are spread
    k: Pair  # [H_kv, W, d], W >= T
    v: Pair  # [H_kv, W, d]
    at: np.ndarray  # [T] 0, 1, ...


@dataclass(frozen=True)
class Scores:
    """Queries of n rows, their scores against W keys, and what follows."""

    q: Pair  # [H, n, d]
    s: Pair  # [H_kv, g n, W] with g query heads to a key head
    share: np.ndarray  # [H n]

    @property
    def grouped(self) -> Tensor:
        return self.q.t.view(self.s.t.shape[0], -1, self.q.t.shape[2])

    @property
    def flat(self) -> np.ndarray:
        return self.s.n.reshape(-1, self.s.n.shape[2])


@dataclass(frozen=True)
class Rest:
    """Everything else of n rows."""

    qkv: Pair  # [n, (H + 2 H_kv) d]
    o: Pair  # [H, n, d]
    mix: Pair  # [n, H d]
    h: Pair  # [n, D]
    both: Pair  # [n, 2 F]
    act: Pair  # [n, F]


class Arena(NamedTuple):
    scores: Scores
    rest: Rest


@dataclass
class Pass:
    """A fused model and its scratch memory."""

    lean: Lean
    memory: dict[str, Tensor] = field(default_factory=dict)  # flat, shared by all shapes
    keys: dict[int, Keys] = field(default_factory=dict)
    arenas: dict[tuple[int, int], Arena] = field(default_factory=dict)
    sums: dict[tuple[int, bool], Sums] = field(default_factory=dict)  # of (example, blind)


def carve(work: Pass, name: str, *shape: int) -> Pair:
    """A view of the memory of this name: examples of all lengths work in the same cache lines."""
    size = math.prod(shape)
    if name not in work.memory or len(work.memory[name]) < size:
        work.memory[name] = torch.zeros(size)
    made = work.memory[name][:size].view(shape)
    return Pair(made, made.numpy())


def new_keys(work: Pass, size: int) -> Keys:
    block, width = work.lean.blocks[0], work.lean.embed.shape[1]
    d, heads, padded = block.size, block.kv_heads, -(-size // LANES) * LANES
    return Keys(
        h=carve(work, "before", size, width),
        flat=carve(work, "flat", size, heads * d),
        k=carve(work, "k", heads, padded, d),
        v=carve(work, "v", heads, padded, d),
        at=np.arange(size),
    )


def new_scores(work: Pass, rows: int, size: int) -> Scores:
    block, padded = work.lean.blocks[0], -(-size // LANES) * LANES
    group = block.heads // block.kv_heads
    return Scores(
        q=carve(work, "q", block.heads, rows, block.size),
        s=carve(work, "s", block.kv_heads, group * rows, padded),
        share=np.zeros(block.heads * rows, np.float32),
    )


def new_rest(work: Pass, rows: int) -> Rest:
    block, width = work.lean.blocks[0], work.lean.embed.shape[1]
    hidden = block.down[0].shape[0]
    return Rest(
        qkv=carve(work, "qkv", rows, block.qkv[0].shape[1]),
        o=carve(work, "o", block.heads, rows, block.size),
        mix=carve(work, "mix", rows, block.heads * block.size),
        h=carve(work, "h", rows, width),
        both=carve(work, "both", rows, 2 * hidden),
        act=carve(work, "act", rows, hidden),
    )


def arena(work: Pass, rows: int, size: int) -> tuple[Keys, Scores, Rest]:
    """Scratch for `rows` queries against `size` keys."""
    if len(work.arenas) > MOST_ARENAS:
        work.arenas.clear()
        work.keys.clear()
    if size not in work.keys:
        work.keys[size] = new_keys(work, size)
    if (rows, size) not in work.arenas:
        work.arenas[rows, size] = Arena(new_scores(work, rows, size), new_rest(work, rows))
    found = work.arenas[rows, size]
    return work.keys[size], found.scores, found.rest


def lean_logits(
    work: Pass, rows: Sequence[Row], windows: Sequence[np.ndarray], settings: Settings, mask_id: int
) -> Tensor:
    """[n, V] logits of all windows in order, like `forward.exact_logits`."""
    tables, active = [], {row.index for row in rows}
    work.sums = {key: kept for key, kept in work.sums.items() if key[0] in active}
    for row, where in zip(rows, windows, strict=True):
        wanted = row.prompt + where
        if work.lean.shift:
            wanted = np.maximum(wanted - 1, 0)
        logits = one(work, row.canvas, wanted, (row.index, False))
        if settings.cfg:
            blind = row.canvas.copy()
            blind[: row.prompt] = mask_id
            free = one(work, blind, wanted, (row.index, True))
            logits = free + (settings.cfg + 1) * (logits - free)
        tables.append(logits)
    return tables[0] if len(tables) == 1 else torch.cat(tables)


def one(work: Pass, canvas: np.ndarray, wanted: np.ndarray, example: tuple[int, bool]) -> Tensor:
    """Logits of the rows `wanted` [n] of a canvas [T]: [n, V]."""
    lean, size = work.lean, len(canvas)
    ids = torch.from_numpy(canvas)
    keys, scores, rest = arena(work, size, size)
    x = F.embedding(ids, lean.embed)  # [T, D]; faster than indexing
    for i, block in enumerate(lean.blocks[:-1]):
        if i == 0 and lean.table is not None:
            if example not in work.sums:
                work.sums[example] = new_sums(block, size)
            carry(work.sums[example], lean, canvas, rest.mix.n)
        else:
            kernels.unit(x.numpy(), block.eps, rest.h.n)
            times(rest.h.t, block.qkv, rest.qkv.t)
            spread(lean, block, rest.qkv.n, scores, keys)
            weigh(scores, keys)
            mix(block, scores, keys, rest)
        x = finish(block, x, rest)
    return last(work, x, wanted, keys)


def last(work: Pass, x: Tensor, wanted: np.ndarray, keys: Keys) -> Tensor:
    """The last block of the wanted rows alone, and the head. x [T, D] -> [n, V]."""
    lean, block = work.lean, work.lean.blocks[-1]
    project_q, project_k, project_v = block.parts
    _, scores, rest = arena(work, len(wanted), len(x))
    kernels.unit(x.numpy(), block.eps, keys.h.n)
    times(keys.h.t, project_k, keys.flat.t)
    kernels.rotate(keys.flat.n, 0, lean.cos, lean.sin, keys.at, keys.at, kernels.ONE, keys.k.n)
    rows = torch.from_numpy(wanted)
    q = times(keys.h.t.index_select(0, rows), project_q).numpy()
    at = np.arange(len(wanted))
    kernels.rotate(q, 0, lean.cos, lean.sin, wanted, at, block.scaling, scores.q.n)
    weigh(scores, keys)
    if mixing_first_pays(block, len(wanted), *x.shape):
        mix_first(block, scores, keys, rest)
    else:
        times(keys.h.t, project_v, keys.flat.t)
        kernels.place(keys.flat.n, 0, keys.at, keys.v.n)
        mix(block, scores, keys, rest)
    x = finish(block, x.index_select(0, rows), rest)
    kernels.unit(x.numpy(), lean.eps, rest.h.n)
    return times(rest.h.t, lean.head)


def spread(lean: Lean, block: Block, qkv: np.ndarray, scores: Scores, keys: Keys) -> None:
    """Rows [T, (H + 2 H_kv) d] -> rotated queries and keys, and values."""
    queries, width = block.heads * block.size, block.kv_heads * block.size
    turns = (lean.cos, lean.sin, keys.at, keys.at)
    kernels.rotate(qkv, 0, *turns, block.scaling, scores.q.n)
    kernels.rotate(qkv, queries, *turns, kernels.ONE, keys.k.n)
    kernels.place(qkv, queries + width, keys.at, keys.v.n)


def weigh(scores: Scores, keys: Keys) -> None:
    """exp(q k^T - max) of every head, and the reciprocals of their sums."""
    torch.bmm(scores.grouped, keys.k.t.transpose(1, 2), out=scores.s.t)
    kernels.soften(scores.flat, len(keys.at), scores.share)


def mixing_first_pays(block: Block, rows: int, size: int, width: int) -> bool:
    """Products of n T H D + n H D d against T D H_kv d + n T H d."""
    first = rows * block.heads * width * (size + block.size)
    return first < size * block.size * (width * block.kv_heads + rows * block.heads)


def mix_first(block: Block, scores: Scores, keys: Keys, rest: Rest) -> None:
    """`mix` with the values projected last."""
    heads, d, size = block.kv_heads, block.size, len(keys.at)
    weight, bias = block.parts[2]
    mixed = torch.mm(torch.from_numpy(scores.flat)[:, :size], keys.h.t)  # [H n, D]
    by_head = weight.unflatten(1, (heads, d)).transpose(0, 1)  # [H_kv, D, d]
    torch.bmm(mixed.view(heads, -1, len(weight)), by_head, out=rest.o.t.view(heads, -1, d))
    kernels.merge(rest.o.n, scores.share, rest.mix.n)
    if bias is not None:
        rest.mix.t.add_(bias.view(heads, 1, d).expand(-1, block.heads // heads, -1).reshape(-1))


def mix(block: Block, scores: Scores, keys: Keys, rest: Rest) -> None:
    """The values of every head by the weights of `weigh`, into `rest.mix`."""
    torch.bmm(scores.s.t, keys.v.t, out=rest.o.t.view(block.kv_heads, -1, block.size))
    kernels.merge(rest.o.n, scores.share, rest.mix.n)


def finish(block: Block, x: Tensor, rest: Rest) -> Tensor:
    """Output projection and MLP, after `rest.mix` was filled."""
    x = plus(x, rest.mix.t, block.out)
    kernels.unit(x.numpy(), block.eps, rest.h.n)
    times(rest.h.t, block.gate_up, rest.both.t)
    kernels.gate(rest.both.n, rest.act.n)
    return plus(x, rest.act.t, block.down)


def plus(x: Tensor, h: Tensor, affine: Affine) -> Tensor:
    """x + W h + b, in place"""
    x.addmm_(h, affine[0])
    return x if affine[1] is None else x.add_(affine[1])
