"""Study 3: does support saturate, and whose attention measures it? (paper, appendix "Study 3")

    targets T and candidates C fixed; reveal sets R_1 .. R_m of one size, random halves of C \\ T
    y_ir = log p(i | R_r);   s_ir = sum over j in R_r of A_ij,  for every block, and
        before   A from the pass with C masked      (what a selector can know)
        after    A from the pass with C \\ R_r masked (what the prediction used)
    y and phi(s) centred within each target; one slope per noise interval, fitted on even examples
    and judged on odd ones, and the other way round; R2 averaged over the two directions
    phi(s) = s (linear) or s / (s + s0), s0 = 0.05;  best s0 on a grid, in sample

`distance` is a control without attention: s_ir = sum over j in R_r of exp(-|i - j| / 4). All
blocks are measured in one pass per reveal set, and one before. Intervals of the difference
saturating - linear resample examples.

`tabulate` fits any support instead of one family, on the attention before the reveal:

    phi(s) = sum over k of c_k min(s, k),  c_k >= 0      every concave, nondecreasing phi with
                                                         phi(0) = 0 that bends at the knots k

Deviation: the paper does not say how its
reveal sets relate to the candidates; here they are halves of the candidates that are not targets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goldimask.backbones import Backbone
from goldimask.backbones.scoring import block_index
from goldimask.bootstrap import interval, weights
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.noise import overmask
from goldimask.objective import Support
from goldimask.processes import torch_threads
from goldimask.step import LayerSpec, module_mode
from goldimask.studies.examples import (
    BATCH,
    Advance,
    quiet,
    study_batch,
    study_examples,
    study_groups,
)
from goldimask.studies.shards import Arrays, Gather, everything
from goldimask.train.attention_layer import draw_sets
from goldimask.types import Batch, Signal

INTERVALS = (0.0, 0.25, 0.5, 0.71, 0.84, 1.0)
SCALES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
REACH = 4.0  # tokens, of the distance control
DRAWS = 500
BOTH = frozenset({Signal.LOGP, Signal.ATTENTION})


@dataclass(frozen=True)
class Observed:
    """Measurements of all targets; targets are columns."""

    y: np.ndarray  # [sets, n] log p
    mass: dict[tuple[str, str], np.ndarray]  # (measured on, when) -> [sets, n]
    example: np.ndarray  # [n]
    t: np.ndarray  # [n]

    @classmethod
    def joined(cls, pieces: Sequence[Arrays]) -> Observed:
        """All targets of all batches."""

        def whole(name: str) -> np.ndarray:
            return np.concatenate([p[name] for p in pieces], -1)

        places = [tuple(k.split("/")[1:]) for k in pieces[0] if k.startswith("mass/")]
        mass = {(where, when): whole(f"mass/{where}/{when}") for where, when in places}
        return cls(whole("y"), mass, whole("example"), whole("t"))


def study_support(
    backbone: Backbone,
    corpus: str = "tiny-sft",
    *,
    examples: int = 128,
    sets: int = 8,
    seeds: Sequence[int] = (0,),
    s0: float = 0.05,
    layers: Sequence[LayerSpec] = (),
    turn_end: bool = True,
    batch_size: int = BATCH,
    gather: Gather = everything,
    advance: Advance = quiet,
) -> dict[str, Any]:
    """R2 per block, before and after the reveal; seeds draw new masks and are pooled.

    `layers` are the blocks that are looked at, by default all.
    """
    if sets < 2:
        raise GoldimaskError(f"sets: {sets} reveal sets leave nothing to compare; use at least 2")
    blocks = [block_index(x, backbone.layers) for x in layers or range(backbone.layers)]
    blocks = list(dict.fromkeys(blocks))
    data = study_examples(backbone, corpus, examples, turn_end=turn_end)

    def one(unit: tuple[int, np.ndarray]) -> Arrays:
        seed, chosen = unit
        found = observe(backbone, study_batch(backbone, data, chosen), sets, Keys(seed), blocks)
        advance(len(chosen), note=f"seed {seed}")
        return {**found, "example": chosen[found["example"]]}

    units = [(seed, chosen) for seed in seeds for chosen in study_groups(data, batch_size)]
    with torch_threads():
        found = Observed.joined(gather(units, one))
    if not len(found.t):
        raise GoldimaskError("study support: no targets with something to reveal; more examples")
    return {
        "study": "support",
        "backbone": backbone.name,
        "corpus": corpus,
        "examples": examples,
        "sets": sets,
        "seeds": list(seeds),
        "targets": len(found.t),
        "s0": s0,
        "rows": analyse(found, s0),
        "table": tabulate(found, blocks[-1]),
    }


@torch.no_grad()
def observe(
    backbone: Backbone, batch: Batch, sets: int, keys: Keys, layers: Sequence[int]
) -> Arrays:
    """One pass before the reveal and one after each, whatever the number of blocks."""
    c = overmask()(batch, keys)
    targets, reveals = draw_sets(c, batch, keys, sets)
    onto = torch.stack(reveals, 2).float()  # [B, T, S]
    with module_mode(backbone.model, train=False):
        before, _ = masses(backbone, batch, c.candidates, onto, layers)  # [L, B, T, S]
        passes = [
            masses(backbone, batch, c.candidates & ~r, r.float()[:, :, None], layers)
            for r in reveals
        ]
    after = torch.cat([mass for mass, _ in passes], 3)
    place = torch.arange(batch.ids.shape[1], device=batch.ids.device)
    near = torch.exp(-(place[:, None] - place[None]).abs() / REACH)
    where = targets.nonzero()[:, 0].cpu().numpy()

    def columns(values: Tensor) -> np.ndarray:
        """[B, T, S] -> [S, n]"""
        return values[targets].T.double().cpu().numpy()

    out = {"y": columns(torch.stack([logp for _, logp in passes], 2))}
    for i, layer in enumerate(layers):
        out[f"mass/{layer}/before"] = columns(before[i])
        out[f"mass/{layer}/after"] = columns(after[i])
    out["mass/distance/-"] = columns(torch.stack([r.float() @ near for r in reveals], 2))
    return {**out, "example": where, "t": c.t.cpu().numpy()[where]}


def masses(
    backbone: Backbone, batch: Batch, hidden: Tensor, onto: Tensor, layers: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Attention of every hidden position on sets of keys [L, B, T, S], and log p [B, T]."""
    s = backbone.scorer(backbone.model, batch, hidden, BOTH, layers, onto=onto)
    assert s.attention is not None and s.rows is not None and s.logp is not None
    blocks, b, _, sets = s.attention.shape
    t = batch.ids.shape[1]
    full = s.attention.new_zeros((blocks, b, t + 1, sets))  # the last row takes the padding
    index = torch.where(s.rows >= 0, s.rows, t)[None, :, :, None].expand_as(s.attention)
    return full.scatter_(2, index, s.attention)[:, :, :t], s.logp


def tabulate(found: Observed, layer: int) -> dict[str, Any] | None:
    """phi of one block's attention, 1 at s = 1; None where attention foretells nothing."""
    from scipy.optimize import nnls

    s, knots = found.mass[str(layer), "before"], np.array(SCALES)
    parts = [centred(np.minimum(s, k)).ravel() for k in knots]
    y = centred(found.y).ravel()
    weights, error = nnls(np.stack(parts, 1), y)
    x = np.concatenate([[0.0], knots])
    phi = np.minimum(x[:, None], knots[None]) @ weights
    if not phi[-1] > 0:
        return None
    phi = np.maximum.accumulate(phi / phi[-1])
    r2 = 1 - error**2 / float((y**2).sum())
    return {"layer": layer, "x": x.tolist(), "y": phi.tolist(), "r2_in_sample": r2}


def analyse(found: Observed, s0: float) -> list[dict[str, Any]]:
    """One row per place of measurement and noise interval."""
    rows = []
    for (where, when), mass in found.mass.items():
        for low, high in pairwise(INTERVALS):
            inside = (found.t >= low) & (found.t < high if high < 1 else found.t <= 1)
            if len(np.unique(found.example[inside])) < 4:
                continue
            part = compare(found.y[:, inside], mass[:, inside], found.example[inside], s0)
            rows.append({"measured": where, "when": when, "from": low, "to": high, **part})
    if not rows:
        raise GoldimaskError("study support: no noise interval has four examples; more examples")
    return rows


def compare(y: np.ndarray, s: np.ndarray, example: np.ndarray, s0: float) -> dict[str, Any]:
    """Linear against saturating in one interval."""
    number = np.unique(example, return_inverse=True)[1]
    count = int(number.max()) + 1
    yc = centred(y)
    linear = cross_fit(yc, centred(s), number, count)
    curved = cross_fit(yc, centred(Support("saturating", s0)(s)), number, count)
    inside = [in_sample(yc, centred(Support("saturating", k)(s))) for k in SCALES]
    drawn = weights(count, DRAWS)
    apart = np.array([r2(curved, w) - r2(linear, w) for w in drawn])
    return {
        "targets": y.shape[1],
        "linear": r2(linear),
        "saturating": r2(curved),
        "difference": [r2(curved) - r2(linear), *interval(apart)],
        "best_s0": SCALES[int(np.argmax(inside))],
    }


Fold = tuple[np.ndarray, np.ndarray, np.ndarray]  # per example: error, total, half


def cross_fit(y: np.ndarray, x: np.ndarray, example: np.ndarray, count: int) -> Fold:
    """Squared errors of held-out predictions, summed per example."""
    half = np.arange(count) % 2
    error = np.zeros(count)
    for own in (0, 1):
        fit = half[example] != own
        square = float((x[:, fit] ** 2).sum())
        slope = float((x[:, fit] * y[:, fit]).sum()) / square if square > 0 else 0.0
        residual = ((y - slope * x) ** 2).sum(0)
        error += np.where(half == own, np.bincount(example, residual, minlength=count), 0.0)
    return error, np.bincount(example, (y**2).sum(0), minlength=count), half


def r2(fold: Fold, w: np.ndarray | None = None) -> float:
    """Mean over the two halves of 1 - error / total."""
    error, total, half = fold
    w = np.ones(len(error)) if w is None else w
    scores = []
    for own in (0, 1):
        t = float((w * total)[half == own].sum())
        scores.append(1 - float((w * error)[half == own].sum()) / t if t > 0 else 0.0)
    return float(np.mean(scores))


def in_sample(y: np.ndarray, x: np.ndarray) -> float:
    square, total = float((x**2).sum()), float((y**2).sum())
    return float((x * y).sum()) ** 2 / (square * total) if square > 0 and total > 0 else 0.0


def centred(values: np.ndarray) -> np.ndarray:
    """Without each target's mean over the reveal sets."""
    return values - values.mean(0, keepdims=True)
