"""Which masked positions a step commits: pure functions of one example's score table.

The table holds the masked positions of the current window in ascending order. Ties are always
broken by (best score, lowest position). With c the confidence (probability of the chosen token), H
the entropy in nats and n the number of masked positions:

    threshold       c_i >= tau, and always the most confident    paper, app. on decoding; Fast-dLLM
    entropy         H_i <= tau, and always the least entropic    dParallel as released
    factor          longest prefix by rank r with c_(r) >= 1 - f / (r + 1), rank 1 always  Fast-dLLM
    low-confidence  the q most confident, q from the step quota  LLaDA, LIFT's protocol
    random          q at random                                  LLaDA
    dream-*         q best by c, by margin p1 - p2 or by -H of the filtered distribution; or each
                    position on its own with probability 1 - s/t (`dream-origin`)

Deviations: dParallel adds 1e-12 inside the logarithm of H and its Dream file compares strictly;
here H is exact and the comparison is <=. Fast-dLLM's released factor loop commits everything when
only the last rank fails; here the prefix ends before the failing rank.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from goldimask.decoding import plan
from goldimask.decoding.types import Settings
from goldimask.registry import Registry

Measure = Literal["confidence", "entropy", "margin", "negentropy"]


@dataclass(frozen=True)
class Table:
    """The window of one example at one step."""

    positions: np.ndarray  # [n] int64 ascending, from the start of the response
    score: np.ndarray  # [n] float64, the decoder's measure
    quota: plan.Quota | None = None  # how many, or exactly which; None when the rule decides
    rng: np.random.Generator | None = None


@dataclass(frozen=True)
class Decoder:
    """A rule with what it needs: `rule(table, settings) -> [n] bool`, never empty.

    An option that only some decoders use (`tau`, `factor`, `steps`, `alg_temp`, `eps`) is in
    `options` of those that do; the others refuse it.
    """

    rule: Callable[[Table, Settings], np.ndarray]
    options: Mapping[str, float | None] = field(default_factory=dict)  # its own, with defaults
    measure: Measure = "confidence"
    plan: plan.Planner | None = None  # quotas of a block; None for rules that decide by score
    rate: float = 0.5  # default steps per token of a plan (LIFT's protocol: length / 2)
    blocks: bool = True  # false: the whole response is one block unless told otherwise
    filtered: bool = False  # Dream: scores after temperature, top-p and top-k


DECODERS: Registry[Decoder] = Registry("decoder")


def at_least_one(chosen: np.ndarray, best: int) -> np.ndarray:
    chosen[best] = True
    return chosen


def above(table: Table, settings: Settings) -> np.ndarray:
    """Every score >= tau, and always the best."""
    return at_least_one(table.score >= settings.tau, int(np.argmax(table.score)))


def below(table: Table, settings: Settings) -> np.ndarray:
    """Every score <= tau, and always the least."""
    return at_least_one(table.score <= settings.tau, int(np.argmin(table.score)))


def factor(table: Table, settings: Settings) -> np.ndarray:
    """The longest prefix by rank whose r-th score reaches 1 - f / (r + 1)."""
    order = descending(table.score)
    rank = np.arange(1, len(order) + 1)
    accepted = table.score[order] >= 1.0 - settings.factor / (rank + 1)
    accepted[0] = True
    count = len(order) if accepted.all() else int(np.argmin(accepted))
    return pick(len(order), order[:count])


def best(table: Table, settings: Settings) -> np.ndarray:
    """The quota's number of best scores; drawn in proportion when `alg_temp` > 0."""
    assert isinstance(table.quota, int)
    score = table.score
    if settings.alg_temp > 0:  # the largest of perturbed scores = a draw without replacement
        assert table.rng is not None
        score = score / settings.alg_temp + table.rng.gumbel(size=len(score))
    return pick(len(score), descending(score)[: table.quota])


def at_random(table: Table, settings: Settings) -> np.ndarray:
    """The quota's number of positions, uniformly."""
    assert table.rng is not None and isinstance(table.quota, int)
    return pick(len(table.score), descending(table.rng.random(len(table.score)))[: table.quota])


def named(table: Table, settings: Settings) -> np.ndarray:
    """Exactly the positions the plan named."""
    return np.isin(table.positions, np.asarray(table.quota))


def descending(score: np.ndarray) -> np.ndarray:
    """Indices by (-score, position)."""
    return np.argsort(-score, kind="stable")


def pick(size: int, indices: np.ndarray) -> np.ndarray:
    chosen = np.zeros(size, dtype=bool)
    chosen[indices] = True
    return chosen


QUOTA = {"steps": None, "alg_temp": 0.0}
DREAM = {**QUOTA, "eps": 1e-3}

DECODERS.add(
    "threshold",
    Decoder(above, {"tau": 0.9}),
    aliases=("confidence", "fast-dllm"),
    summary="Every confidence >= tau, else the most confident (paper).",
)
DECODERS.add(
    "entropy",
    Decoder(below, {"tau": 0.5}, measure="entropy"),
    aliases=("dparallel",),
    summary="Every entropy <= tau nats, else the least (dParallel).",
)
DECODERS.add(
    "factor",
    Decoder(factor, {"factor": 1.0}),
    summary="By rank r while confidence >= 1 - f/(r+1) (Fast-dLLM).",
)
DECODERS.add(
    "low-confidence",
    Decoder(best, QUOTA, plan=plan.even),
    aliases=("low_confidence", "quota"),
    summary="The most confident, a fixed number per step (LLaDA, LIFT).",
)
DECODERS.add(
    "random",
    Decoder(at_random, {"steps": None}, plan=plan.even),
    summary="Random positions, a fixed number per step (LLaDA).",
)
DECODERS.add(
    "dream-maskgit-plus",
    Decoder(best, DREAM, plan=plan.dream, rate=1.0, blocks=False, filtered=True),
    aliases=("maskgit_plus", "maskgit-plus"),
    summary="Dream: the most probable tokens, on Dream's time schedule.",
)
DECODERS.add(
    "dream-topk-margin",
    Decoder(best, DREAM, measure="margin", plan=plan.dream, rate=1.0, blocks=False, filtered=True),
    aliases=("topk_margin", "topk-margin"),
    summary="Dream: the largest margins between the two best tokens.",
)
DECODERS.add(
    "dream-entropy",
    Decoder(
        best, DREAM, measure="negentropy", plan=plan.dream, rate=1.0, blocks=False, filtered=True
    ),
    summary="Dream: the least entropic positions.",
)
DECODERS.add(
    "dream-origin",
    Decoder(
        named, {"steps": None, "eps": 1e-3}, plan=plan.origin, rate=1.0, blocks=False, filtered=True
    ),
    aliases=("origin",),
    summary="Dream: each position on its own with probability 1 - s/t.",
)
