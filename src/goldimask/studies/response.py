"""Study 2: which targets respond to context? (paper, appendix "Study 2")

    frozen model, nested masks S within C (over-masking, then a random reveal of B = |C| - K)
    dp = p2 - p1  on the targets S,   p1 with C masked, p2 with S masked
    profile: mean dp by bins of p1;  power family  f(p) = A p^a (1-p)^b,  peak at a / (a + b)

The curve is fitted to the profile (bins with at least `MIN_COUNT` targets, equally weighted) of all
examples; the peak's interval resamples examples. Held-out R2: fitted on the even examples, judged
on the profile of the odd ones, and the other way round, averaged. The peak is called interior when
the best bin is above the first and the last bin with 95 % intervals that exclude zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from goldimask.backbones import Backbone
from goldimask.bootstrap import interval, weights
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.noise import overmask
from goldimask.processes import torch_threads
from goldimask.select.reveal import RandomSelect
from goldimask.step import module_mode
from goldimask.studies.examples import (
    BATCH,
    Advance,
    quiet,
    study_batch,
    study_examples,
    study_groups,
)
from goldimask.studies.shards import Arrays, Gather, everything
from goldimask.types import Example, Signals

EDGES = (0.0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
MIN_COUNT = 20
DRAWS = 300
EDGE = 0.01  # an exponent a below it is a peak at zero


@dataclass(frozen=True)
class Responses:
    """Targets of all draws."""

    before: np.ndarray  # [n] p1
    after: np.ndarray  # [n] p2
    example: np.ndarray  # [n]


@dataclass(frozen=True)
class Curve:
    """A p^a (1-p)^b."""

    scale: float
    a: float
    b: float

    @property
    def peak(self) -> float:
        return self.a / (self.a + self.b)

    def __call__(self, p: np.ndarray) -> np.ndarray:
        return self.scale * p**self.a * (1 - p) ** self.b


def study_response(
    backbone: Backbone,
    corpus: str = "tiny-sft",
    *,
    examples: int = 300,
    draws: int = 4,
    seeds: Sequence[int] = (0, 1, 2),
    turn_end: bool = True,
    batch_size: int = BATCH,
    gather: Gather = everything,
    advance: Advance = quiet,
) -> dict[str, Any]:
    """Profiles per seed (new masks) and over all of them."""
    data = study_examples(backbone, corpus, examples, turn_end=turn_end)

    def one(unit: tuple[int, np.ndarray]) -> Arrays:
        seed, chosen = unit
        found = measure(backbone, data, chosen, draws, seed)
        advance(len(chosen), note=f"seed {seed}")
        return vars(found)

    units = [(seed, chosen) for seed in seeds for chosen in study_groups(data, batch_size)]
    with torch_threads():
        pieces = gather(units, one)
    found = {
        seed: joined([p for (s, _), p in zip(units, pieces, strict=True) if s == seed])
        for seed in seeds
    }
    pooled = analyse(joined(pieces), examples)
    return {
        "study": "response",
        "backbone": backbone.name,
        "corpus": corpus,
        "examples": examples,
        "draws": draws,
        "pooled": pooled,
        "seeds": {
            str(seed): pooled if len(found) == 1 else analyse(r, examples)
            for seed, r in found.items()
        },
        "table": tabulate(pooled["bins"]),
    }


@torch.no_grad()
def measure(
    backbone: Backbone, examples: Sequence[Example], chosen: np.ndarray, draws: int, seed: int
) -> Responses:
    """p1 and p2 of every target of a batch that stays masked while something is revealed."""
    noise, select = overmask(), RandomSelect()
    batch = study_batch(backbone, examples, chosen)
    before, after, where = [], [], []
    with module_mode(backbone.model, train=False):
        for draw in range(draws):
            keys = Keys(seed, draw)
            c = noise(batch, keys)
            reveal = select(c, Signals(), batch, keys).mask
            targets = c.candidates & ~reveal & (reveal.any(1) & (c.keep > 0))[:, None]
            for hidden, out in ((c.candidates, before), (c.candidates & ~reveal, after)):
                logp = backbone.scorer(backbone.model, batch, hidden).logp
                assert logp is not None
                out.append(logp.double()[targets].exp().cpu().numpy())
            where.append(chosen[targets.nonzero()[:, 0].cpu().numpy()])
    return Responses(np.concatenate(before), np.concatenate(after), np.concatenate(where))


def joined(pieces: Sequence[Arrays]) -> Responses:
    names = ("before", "after", "example")
    return Responses(*(np.concatenate([p[name] for p in pieces]) for name in names))


def tabulate(bins: Sequence[dict[str, Any]]) -> dict[str, list[float]] | None:
    """The profile as a priority: its largest value is 1, and a sure token has none.

    Below the first bin it stays level. None where nothing responds.
    """
    points = [(b["p"], max(0.0, b["dp"])) for b in bins if b["interval"] and 0 < b["p"] < 1]
    top = max((y for _, y in points), default=0.0)
    if not top > 0:
        return None
    points = [(0.0, points[0][1]), *points, (1.0, 0.0)]
    return {"x": [x for x, _ in points], "y": [y / top for _, y in points]}


def analyse(r: Responses, examples: int) -> dict[str, Any]:
    """Profile, fit, peak with interval, held-out R2."""
    if not len(r.before):
        raise GoldimaskError("study response: no target saw new context; use more examples")
    sums = Sums.of(r, examples)
    everyone = np.ones(examples)
    x, y, n = sums.profile(everyone)
    used = n >= MIN_COUNT
    drawn = weights(examples, DRAWS)
    profiles = np.array([sums.profile(w)[1] for w in drawn])  # [draws, bins]
    curve = fit(x[used], y[used]) if used.sum() >= 4 else None
    peaks = np.array([peak_of(*sums.profile(w)) for w in drawn])
    bins = [
        {
            "from": EDGES[i],
            "to": EDGES[i + 1],
            "targets": int(n[i]),
            "p": None if not n[i] else float(x[i]),
            "dp": None if not n[i] else float(y[i]),
            "interval": None if not used[i] else list(interval(profiles[:, i])),
        }
        for i in range(len(n))
    ]
    return {
        "targets": len(r.before),
        "bins": bins,
        "fit": None if curve is None else {"scale": curve.scale, "a": curve.a, "b": curve.b},
        "edge": curve is not None and curve.a < EDGE,  # the curve falls from p = 0 on
        "peak": None if curve is None else curve.peak,
        "peak_interval": None if curve is None else list(interval(peaks)),
        "heldout_r2": heldout_r2(sums),
        "interior": interior(y, used, profiles),
    }


@dataclass(frozen=True)
class Sums:
    """Counts and sums per example and bin; a weighted profile is then three products."""

    n: np.ndarray  # [E, bins]
    p: np.ndarray
    dp: np.ndarray

    @classmethod
    def of(cls, r: Responses, examples: int) -> Sums:
        bins = np.clip(np.searchsorted(EDGES, r.before, side="right") - 1, 0, len(EDGES) - 2)
        cell = r.example * (len(EDGES) - 1) + bins
        size = examples * (len(EDGES) - 1)
        found = (np.bincount(cell, v, minlength=size).reshape(examples, -1)
                 for v in (np.ones(len(cell)), r.before, r.after - r.before))  # fmt: skip
        return cls(*found)

    def profile(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(mean p1, mean dp, targets) per bin; NaN where a bin is empty."""
        n = w @ self.n
        with np.errstate(invalid="ignore", divide="ignore"):
            return w @ self.p / n, w @ self.dp / n, n


def fit(x: np.ndarray, y: np.ndarray) -> Curve:
    """Least squares: a grid of exponents, then a simplex from the best one."""
    from scipy.optimize import minimize

    def loss(logs: np.ndarray) -> float:
        shape = x ** np.exp(logs[0]) * (1 - x) ** np.exp(logs[1])
        return float(((y - scale_of(shape, y) * shape) ** 2).sum())

    grid = [(la, lb) for la in np.linspace(-4, 1.5, 12) for lb in np.linspace(-3, 3, 13)]
    start = np.array(min(grid, key=lambda g: loss(np.array(g))))
    best = minimize(loss, start, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-9}).x
    best = np.clip(best, -7, 4)
    a, b = np.exp(best)
    return Curve(scale_of(x**a * (1 - x) ** b, y), float(a), float(b))


def scale_of(shape: np.ndarray, y: np.ndarray) -> float:
    square = float((shape**2).sum())
    return max(0.0, float((shape * y).sum()) / square) if square > 0 else 0.0


def peak_of(x: np.ndarray, y: np.ndarray, n: np.ndarray) -> float:
    used = n >= MIN_COUNT
    return fit(x[used], y[used]).peak if used.sum() >= 4 else float("nan")


def heldout_r2(sums: Sums) -> float | None:
    """Mean of the two directions; None when a half has fewer than four bins."""
    even = (np.arange(len(sums.n)) % 2 == 0).astype(float)
    scores = []
    for own in (even, 1 - even):
        (x, y, n), (u, v, m) = sums.profile(own), sums.profile(1 - own)
        used = (n >= MIN_COUNT) & (m >= MIN_COUNT)
        if used.sum() < 4:
            return None
        curve = fit(x[used], y[used])
        total = float(((v[used] - v[used].mean()) ** 2).sum())
        scores.append(1 - float(((v[used] - curve(u[used])) ** 2).sum()) / total)
    return float(np.mean(scores))


def interior(y: np.ndarray, used: np.ndarray, profiles: np.ndarray) -> dict[str, Any]:
    """Is the best bin above both ends?"""
    places = np.flatnonzero(used)
    if len(places) < 3:
        return {"holds": False, "bin": None}
    best = int(places[np.argmax(y[places])])
    ends = {}
    for name, end in (("above_first", int(places[0])), ("above_last", int(places[-1]))):
        ends[name] = [float(y[best] - y[end]), *interval(profiles[:, best] - profiles[:, end])]
    inside = best not in (places[0], places[-1])
    holds = bool(inside and all(x[1] > 0 for x in ends.values()))
    return {"holds": holds, "bin": [EDGES[best], EDGES[best + 1]], **ends}
