"""Study 3: does support saturate, and whose attention measures it? (paper, appendix "Study 3")

    targets T and candidates C fixed; reveal sets R_1 .. R_m of one size, random halves of C \\ T
    y_ir = log p(i | R_r);   s_ir = sum over j in R_r of A_ij,  for every block, and
        before   A from the pass with C masked      (what a selector can know)
        after    A from the pass with C \\ R_r masked (what the prediction used)
    y and phi(s) centred within each target; one slope per noise interval, fitted on even examples
    and judged on odd ones, and the other way round; R2 averaged over the two directions
    phi(s) = s (linear) or s / (s + s0), s0 = 0.05;  best s0 on a grid, in sample

`distance` is a control without attention: s_ir = sum over j in R_r of exp(-|i - j| / 4). Intervals
of the difference saturating - linear resample examples. Deviation: the paper does not say how its
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
from goldimask.bootstrap import interval, weights
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.noise import overmask
from goldimask.objective import Support
from goldimask.processes import torch_threads
from goldimask.step import module_mode
from goldimask.studies.examples import Advance, quiet, study_batches, study_examples
from goldimask.train.attention_layer import draw_sets
from goldimask.types import Batch, Example, Signal

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


def study_support(
    backbone: Backbone,
    corpus: str = "tiny-sft",
    *,
    examples: int = 128,
    sets: int = 8,
    seeds: Sequence[int] = (0,),
    s0: float = 0.05,
    advance: Advance = quiet,
) -> dict[str, Any]:
    """R2 per block, before and after the reveal; seeds draw new masks and are pooled."""
    if sets < 2:
        raise GoldimaskError(f"sets: {sets} reveal sets leave nothing to compare; use at least 2")
    with torch_threads():
        data = study_examples(backbone, corpus, examples)
        parts = [observe(backbone, data, sets, seed, advance) for seed in seeds]
    found = joined(parts)
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
    }


@torch.no_grad()
def observe(
    backbone: Backbone,
    examples: Sequence[Example],
    sets: int,
    seed: int,
    advance: Advance = quiet,
    batch_size: int = 16,
) -> Observed:
    """All passes: blocks before the reveal, sets x blocks after it."""
    parts = []
    with module_mode(backbone.model, train=False):
        for chosen, batch in study_batches(backbone, examples, batch_size):
            parts.append(observe_batch(backbone, batch, chosen, sets, Keys(seed)))
            advance(len(chosen), note=f"seed {seed}")
    found = joined(parts)
    if not len(found.t):
        raise GoldimaskError("study support: no targets with something to reveal; more examples")
    return found


def joined(parts: Sequence[Observed]) -> Observed:
    return Observed(
        np.concatenate([p.y for p in parts], 1),
        {k: np.concatenate([p.mass[k] for p in parts], 1) for k in parts[0].mass},
        np.concatenate([p.example for p in parts]),
        np.concatenate([p.t for p in parts]),
    )


def observe_batch(
    backbone: Backbone, batch: Batch, numbers: np.ndarray, sets: int, keys: Keys
) -> Observed:
    c = overmask()(batch, keys)
    targets, reveals = draw_sets(c, batch, keys, sets)
    mass: dict[tuple[str, str], list[Tensor]] = {}
    layers = range(backbone.layers)
    for layer in layers:
        rows = attention_of(backbone, batch, c.candidates, layer)[0]
        mass[str(layer), "before"] = [(rows @ r.float()[:, :, None])[:, :, 0] for r in reveals]
    y = []
    for reveal in reveals:
        for layer in layers:
            rows, logp = attention_of(backbone, batch, c.candidates & ~reveal, layer)
            after = (rows @ reveal.float()[:, :, None])[:, :, 0]
            mass.setdefault((str(layer), "after"), []).append(after)
        y.append(logp)
    place = torch.arange(batch.ids.shape[1], device=batch.ids.device)
    near = torch.exp(-(place[:, None] - place[None]).abs() / REACH)
    mass["distance", "-"] = [r.float() @ near for r in reveals]
    where = targets.nonzero()[:, 0].cpu().numpy()

    def columns(found: list[Tensor]) -> np.ndarray:
        return torch.stack([x[targets] for x in found]).double().cpu().numpy()

    return Observed(
        columns(y),
        {k: columns(v) for k, v in mass.items()},
        numbers[where],
        c.t.cpu().numpy()[where],
    )


def attention_of(
    backbone: Backbone, batch: Batch, hidden: Tensor, layer: int
) -> tuple[Tensor, Tensor]:
    """Attention [B, T, T] (rows of hidden positions, zero elsewhere) and log p [B, T]."""
    signals = backbone.scorer(backbone.model, batch, hidden, BOTH, layer)
    assert signals.attention is not None and signals.rows is not None and signals.logp is not None
    b, _, t = signals.attention.shape
    full = torch.zeros((b, t + 1, t), device=hidden.device)  # the last row takes the padding
    index = torch.where(signals.rows >= 0, signals.rows, t)[:, :, None].expand(-1, -1, t)
    full.scatter_(1, index, signals.attention.float())
    return full[:, :t], signals.logp


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
