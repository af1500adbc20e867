"""`attention_layer: probe`: which block foretells what a reveal does (D24, docs/decisions.md).

The paper takes the final block. On small models that block can be uninformative, so this measures,
as in the paper's Study 3, on held-out examples of the frozen model, for every block l:

    targets T of C fixed; reveal sets R_1 .. R_m, random halves of C \\ T
    y_ir = log p(i | R_r)                              measured
    x_ir = phi( sum over j in R_r of A^l_ij )          foretold, A^l from the pass before any reveal
    both centred within each target i (over r): fixed differences in difficulty drop out
    one slope per noise bin, fitted on even examples and judged on odd ones, and the other way round
    R2_l = 1 - sum (y - slope x)^2 / sum y^2,  mean of the two directions

The block with the largest R2 is chosen. The table says whether any block is informative at all:
when the best R2 is not above zero, attention foretells nothing on this model, and the selection
cannot be better than chance. Costs blocks + sets passes per batch, once, without gradient, before
the first step; a resumed run takes the index that its first start wrote down.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from goldimask.backbones import Backbone
from goldimask.data.batches import make_batch
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.methods import Method
from goldimask.noise import overmask
from goldimask.objective import Support
from goldimask.processes import on_main
from goldimask.step import Scorer, module_mode
from goldimask.types import Batch, Corruption, Example, Signal

EXAMPLES, BATCH = 32, 8  # of the measurement
BINS = (0.25, 0.5, 0.75)  # edges of the noise bins, each with its own slope


@dataclass(frozen=True)
class LayerRow:
    """How well one block foretells the response."""

    layer: int
    r2: float  # with the method's support function
    r2_linear: float  # with phi(s) = s


@dataclass(frozen=True)
class LayerTable:
    """The measurement, recorded in the run."""

    rows: tuple[LayerRow, ...]
    best: int
    informative: bool  # is the best R2 above zero?
    examples: int
    targets: int
    sets: int

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "rows": [asdict(r) for r in self.rows]}


@dataclass(frozen=True)
class Observations:
    """Centred measurements; targets are columns."""

    y: np.ndarray  # [sets, n]
    x: np.ndarray  # [blocks, sets, n]
    linear: np.ndarray  # [blocks, sets, n]
    example: np.ndarray  # [n] running number of the example
    bin: np.ndarray  # [n]


def resolve_layer(
    method: Method,
    backbone: Backbone,
    validation: Sequence[Example],
    train: Sequence[Example],
    seed: int,
    known: dict[str, Any] | None,
    say: Callable[[str], None],
) -> tuple[Method, dict[str, Any] | None]:
    """The method with its layer as an index, and the table of the measurement."""
    if method.attention_layer != "probe":
        return method, None
    used = method.needs | method.captures
    if not used & {Signal.ATTENTION, Signal.RECEIVED}:
        return replace(method, attention_layer="last"), None  # nobody reads it
    table = known or on_main(lambda: measure(method, backbone, validation, train, seed))
    note = "" if table["informative"] else "; no block foretells the response on this model"
    say(f"layer     attention of block {table['best']}, chosen by measurement{note}")
    return replace(method, attention_layer=int(table["best"])), table


def measure(
    method: Method,
    backbone: Backbone,
    validation: Sequence[Example],
    train: Sequence[Example],
    seed: int,
) -> dict[str, Any]:
    """R2 of every block on a few examples; training ones stand in where too few are held out."""
    chosen = sorted([*validation, *train][:EXAMPLES], key=len)
    device = next(backbone.model.parameters()).device
    batches = [
        make_batch(chosen[i : i + BATCH], backbone.pad_id).to(device)
        for i in range(0, len(chosen), BATCH)
    ]
    objective = method.shown["objective"]
    support = objective[1] if objective else None
    table = choose_layer(
        backbone.model, backbone.scorer, batches, Keys(seed), backbone.layers, support=support
    )
    return table.as_dict()


def choose_layer(
    model: nn.Module,
    scorer: Scorer,
    batches: Iterable[Batch],
    keys: Keys,
    layers: int,
    sets: int = 8,
    support: Support | None = None,
) -> LayerTable:
    """Measure every block on held-out batches and pick the most informative one."""
    if sets < 2:
        raise GoldimaskError(f"sets: {sets} reveal sets leave nothing to compare; use at least 2")
    seen, parts = 0, []
    with torch.no_grad(), module_mode(model, train=False):
        for batch in batches:
            parts.append(
                _measure(model, scorer, batch, keys, layers, sets, support or Support(), seen)
            )
            seen += batch.size
    data = _join([p for p in parts if p.y.shape[1]])
    examples = 0 if data is None else int(data.example.max()) + 1
    if data is None or examples < 2:
        raise GoldimaskError(
            "method.attention_layer: probe needs at least two held-out examples with targets and "
            "something to reveal; add validation examples or name a layer"
        )
    rows = tuple(
        LayerRow(
            n,
            within_target_r2(data.y, data.x[n], data),
            within_target_r2(data.y, data.linear[n], data),
        )
        for n in range(layers)
    )
    best = max(rows, key=lambda row: row.r2)
    return LayerTable(rows, best.layer, best.r2 > 0, examples, data.y.shape[1], sets)


def within_target_r2(y: np.ndarray, x: np.ndarray, data: Observations) -> float:
    """Held-out R2 of centred y on centred x: a slope per noise bin from the other half."""
    scores = []
    for half in (0, 1):
        fit, judge = data.example % 2 == half, data.example % 2 != half
        whole = _slope(x[:, fit], y[:, fit], 0.0)
        error = 0.0
        for b in range(len(BINS) + 1):
            f, j = fit & (data.bin == b), judge & (data.bin == b)
            # a bin without data in this half takes the slope of the whole half
            slope = _slope(x[:, f], y[:, f], whole)
            error += float(((y[:, j] - slope * x[:, j]) ** 2).sum())
        total = float((y[:, judge] ** 2).sum())
        scores.append(1.0 - error / total if total > 0 else 0.0)
    return float(np.mean(scores))


def _slope(x: np.ndarray, y: np.ndarray, otherwise: float) -> float:
    square = float((x**2).sum())
    return float((x * y).sum()) / square if square > 0 else otherwise


def _measure(
    model: nn.Module,
    scorer: Scorer,
    batch: Batch,
    keys: Keys,
    layers: int,
    sets: int,
    support: Support,
    first: int,
) -> Observations:
    c = overmask()(batch, keys)
    targets, reveals = draw_sets(c, batch, keys, sets)
    y = torch.stack([_logp(scorer(model, batch, c.candidates & ~r).logp)[targets] for r in reveals])
    mass = torch.stack(
        [_masses(model, scorer, batch, c, reveals, layer)[:, targets] for layer in range(layers)]
    )
    where = targets.nonzero()[:, 0]
    t = c.t[where].cpu().numpy()
    return Observations(
        y=_centred(y),
        x=_centred(support(mass.double())),
        linear=_centred(mass),
        example=first + where.cpu().numpy(),
        bin=np.digitize(t, BINS),
    )


def draw_sets(c: Corruption, batch: Batch, keys: Keys, sets: int) -> tuple[Tensor, list[Tensor]]:
    """Fixed targets [B, T] and `sets` random halves of the other candidates."""
    candidates, keep = c.candidates.cpu().numpy(), c.keep.tolist()
    targets = np.zeros_like(candidates)
    reveals = np.zeros((sets, *candidates.shape), dtype=bool)
    for b, example_id in enumerate(batch.example_id.tolist()):
        rng = keys.rng(example_id, Stream.STUDY)
        order = rng.permutation(np.flatnonzero(candidates[b]))
        pool = order[keep[b] :]
        if keep[b] < 1 or len(pool) < 2:  # nothing to foretell, or nothing to vary
            continue
        targets[b, order[: keep[b]]] = True
        for r in range(sets):
            reveals[r, b, rng.permutation(pool)[: len(pool) // 2]] = True
    device = batch.ids.device
    return torch.from_numpy(targets).to(device), list(torch.from_numpy(reveals).to(device))


def _masses(
    model: nn.Module,
    scorer: Scorer,
    batch: Batch,
    c: Corruption,
    reveals: list[Tensor],
    layer: int,
) -> Tensor:
    """Attention mass of every candidate on each reveal set. [sets, B, T]"""
    signals = scorer(model, batch, c.candidates, frozenset({Signal.ATTENTION}), layer)
    assert signals.attention is not None and signals.rows is not None
    sums = signals.attention @ torch.stack(reveals, 2).to(signals.attention.dtype)  # [B, N, sets]
    out = torch.zeros((*batch.ids.shape, len(reveals)), dtype=sums.dtype, device=sums.device)
    index = signals.rows.clamp_min(0)[:, :, None].expand_as(sums)
    real = (signals.rows >= 0)[:, :, None]
    return out.scatter_add_(1, index, torch.where(real, sums, 0.0)).permute(2, 0, 1)


def _logp(logp: Tensor | None) -> Tensor:
    assert logp is not None
    return logp


def _centred(values: Tensor) -> np.ndarray:
    """Subtract each target's mean over the reveal sets (the axis before the last)."""
    array = values.double().cpu().numpy()
    return array - array.mean(-2, keepdims=True)


def _join(parts: list[Observations]) -> Observations | None:
    if not parts:
        return None
    names = ("y", "x", "linear", "example", "bin")
    joined = {n: np.concatenate([getattr(p, n) for p in parts], -1) for n in names}
    # number the examples that have targets, so that the halves are even
    joined["example"] = np.unique(joined["example"], return_inverse=True)[1]
    return Observations(**joined)
