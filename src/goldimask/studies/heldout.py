"""Held-out denoising on fixed masks (paper, Study 1, "Measuring learning on unseen examples").

for t in (0.25, 0.5, 0.75):  mask each supervisable position with probability t, the same masks
                             for every model;  log p of the true token at the masked positions

NLL = mean of -log p over all targets;  dNLL its change, negative is better
dp  = mean change of p over the targets with initial p < 0.9

Changes are summed per example, so that the bootstrap can draw examples (and seeds) anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from goldimask.backbones import Backbone
from goldimask.bootstrap import drawn, interval, weights
from goldimask.keys import Keys, Stream
from goldimask.noise import Noise
from goldimask.stats import spread
from goldimask.step import MaskedStep
from goldimask.studies.shards import Arrays
from goldimask.train.validation import plain_denoising, score_bank
from goldimask.types import Batch, Corruption, Example

LEVELS = (0.25, 0.5, 0.75)
UNIFORM = "uniform"  # the rule that others are held to
UNSURE = 0.9  # dp counts targets below this initial probability
DRAWS = 2000


@dataclass(frozen=True)
class HeldOut:
    """Targets of all examples and levels, in one fixed order."""

    logp: np.ndarray  # [n] float64
    example: np.ndarray  # [n] int64
    level: np.ndarray  # [n] float64

    @property
    def nll(self) -> float:
        return float(-self.logp.mean())


def held_out(
    backbone: Backbone,
    examples: Sequence[Example],
    levels: Sequence[float] = LEVELS,
    seed: int = 0,
    batch_size: int = 16,
) -> HeldOut:
    """Score every masked target of every example at every level."""
    parts: list[tuple[int, np.ndarray, np.ndarray, np.ndarray]] = []
    for k, t in enumerate(levels):
        step = MaskedStep(plain_denoising(one_level(levels, k, seed)), backbone.scorer)
        scored = score_bank(
            backbone.model,
            step,
            examples,
            Keys(seed),
            pad_id=backbone.pad_id,
            batch_size=batch_size,
        )
        for number, (chosen, out) in enumerate(scored):
            hidden = out.supervised.cpu()
            rows = hidden.nonzero()[:, 0].numpy()
            logp = out.logp.double().cpu()[hidden].numpy()
            parts.append((number, logp, np.asarray(chosen)[rows], np.full(len(rows), t)))
    parts.sort(key=lambda part: part[0])  # batch by batch, its levels in turn
    return HeldOut(*(np.concatenate([part[i] for part in parts]) for i in (1, 2, 3)))


def one_level(levels: Sequence[float], k: int, seed: int) -> Noise:
    """Masks at the k-th level, from draws that all levels share."""

    def noise(batch: Batch, keys: Keys) -> Corruption:
        response = batch.response.cpu().numpy()
        drawn = uniforms(response, batch.example_id.tolist(), len(levels), seed)[k]
        hidden = torch.from_numpy(response & (drawn < levels[k])).to(batch.ids.device)
        level = torch.full((batch.size,), levels[k], device=batch.ids.device)
        return Corruption(hidden, level, torch.zeros_like(level), hidden.sum(1))

    return noise


def uniforms(response: np.ndarray, ids: Sequence[int], levels: int, seed: int) -> np.ndarray:
    """One draw per level and position, from the example's own stream. [levels, B, T]"""
    out = np.ones((levels, *response.shape))
    for b, example_id in enumerate(ids):
        places = np.flatnonzero(response[b])
        rng = Keys(seed).rng(example_id, Stream.STUDY)
        out[:, b, places] = rng.random((levels, len(places)))
    return out


def summarise(
    before: Arrays, after: dict[str, list[np.ndarray]], steps: Sequence[int], count: int
) -> dict[str, Any]:
    """Changes per rule, at the end and on the way, and paired differences against uniform."""
    changes = {
        rule: [[change(before, logp, count) for logp in run] for run in many]
        for rule, many in after.items()
    }
    out: dict[str, Any] = {"rules": {}, "paired": {}, "course": {}}
    for rule, many in changes.items():
        last = [run[-1] for run in many]
        values = {name: [total(c, name) for c in last] for name in ("nll", "p")}
        out["rules"][rule] = {
            f"delta_{name}": {"mean": spread(x).mean, "sd": spread(x).sd, "seeds": x}
            for name, x in values.items()
        }
        means = [
            [float(np.mean([total(run[i], name) for run in many])) for name in ("nll", "p")]
            for i in range(len(steps))
        ]
        out["course"][rule] = [[step, *mean] for step, mean in zip(steps, means, strict=True)]
        if rule != UNIFORM and UNIFORM in changes:
            uniform = [run[-1] for run in changes[UNIFORM]]
            out["paired"][rule] = {
                f"delta_{name}": paired(uniform, last, name) for name in ("nll", "p")
            }
    return out


Change = dict[str, np.ndarray]  # sums and counts per held-out example


def change(before: Arrays, after: np.ndarray, count: int) -> Change:
    p = np.exp(before["logp"])
    unsure = (p < UNSURE).astype(float)
    by = before["example"]
    return {
        "nll": np.bincount(by, before["logp"] - after, minlength=count),
        "nll_n": np.bincount(by, np.ones(len(p)), minlength=count),
        "p": np.bincount(by, (np.exp(after) - p) * unsure, minlength=count),
        "p_n": np.bincount(by, unsure, minlength=count),
    }


def total(c: Change, name: str) -> float:
    return float(c[name].sum() / max(1.0, c[f"{name}_n"].sum()))


def paired(first: list[Change], second: list[Change], name: str) -> dict[str, Any]:
    """Second minus first: value, interval, and the difference of every seed."""
    apart = np.array([b[name] - a[name] for a, b in zip(first, second, strict=True)])  # [S, E]
    counts = np.array([a[f"{name}_n"] for a in first])
    seeds, examples = weights(len(apart), DRAWS, salt=1), weights(apart.shape[1], DRAWS, salt=2)
    low, high = interval(drawn(apart, seeds, examples, counts))
    each = [float(a.sum() / n.sum()) for a, n in zip(apart, counts, strict=True)]
    return {"value": float(np.mean(each)), "low": low, "high": high, "seeds": each}
