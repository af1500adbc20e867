"""What is a revealed token worth? Leave-one-out reveals as the ground truth of the objective.

    C masked, token j of C shown alone:   b_ij = log p(i | C \\ j masked) - log p(i | C masked)
    B_j = sum over i of [b_ij]_+          benefit of j to all the others

    pairs     within an example, the rank correlation of b_ij with what is known before the reveal
    tokens    the same of B_j with a score of j, and the share of the attainable benefit that the
              best quarter by that score holds: sum of B over it / sum over the best quarter by B
    R2        b_ij, centred within each example, from several of these together by least squares,
              fitted on one half of the examples and judged on the other, both ways

`F` is the paper's marginal of an empty reveal, sum over i of lambda(p_i) phi(A_ij), its pairs the
terms of that sum, on the last block; `F of surprises` has A_ij (1 - p_j) in the place of A_ij.
`near` needs no model: exp(-|i - j| / 4). One pass per shown token; intervals resample examples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from goldimask.backbones import Backbone
from goldimask.bootstrap import interval, weights
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.noise import overmask
from goldimask.objective import Priority, Support
from goldimask.processes import torch_threads
from goldimask.select.base import candidate_attention
from goldimask.step import module_mode
from goldimask.studies.examples import BATCH, Advance, quiet, study_batch, study_examples
from goldimask.studies.shards import Arrays, Gather, everything
from goldimask.types import Example, Signal

REACH = 4.0  # tokens, of `near`
BEST = 0.25  # share of the shown tokens
DRAWS = 500
BOTH = frozenset({Signal.LOGP, Signal.ATTENTION})


def study_benefit(
    backbone: Backbone,
    corpus: str = "tiny-sft",
    *,
    examples: int = 200,
    reveals: int = 24,
    seeds: Sequence[int] = (0,),
    turn_end: bool = True,
    batch_size: int = BATCH,
    gather: Gather = everything,
    advance: Advance = quiet,
) -> dict[str, Any]:
    """Correlations and R2; seeds draw new masks, and are examples of their own."""
    if reveals < 4:
        raise GoldimaskError(f"reveals: {reveals} tokens have no best quarter; use at least 4")
    data = study_examples(backbone, corpus, examples, turn_end=turn_end)

    def one(unit: tuple[int, int]) -> Arrays:
        seed, number = unit
        found = observe(backbone, data[number], Keys(seed), reveals, batch_size)
        advance(1, note=f"seed {seed}")
        return found

    units = [(seed, number) for seed in seeds for number in range(examples)]
    with torch_threads():
        pieces = [p for p in gather(units, one) if p["benefit"].size]
    if len(pieces) < 4:
        raise GoldimaskError("study benefit: fewer than four examples have enough to reveal")
    drawn = weights(len(pieces), DRAWS)
    predictors = [name for name in pieces[0] if name not in ("benefit", "real")]
    return {
        "study": "benefit",
        "backbone": backbone.name,
        "corpus": corpus,
        "examples": len(pieces),
        "seeds": list(seeds),
        "revealed": sum(p["benefit"].shape[1] for p in pieces),
        "benefit": float(np.mean([token_benefit(p).mean() for p in pieces])),
        "rows": [*(row(name, pieces, drawn) for name in predictors), chance(pieces, drawn)],
        "r2": [explained(name, parts, pieces, drawn) for name, parts in groups(predictors)],
    }


@torch.no_grad()
def observe(
    backbone: Backbone, example: Example, keys: Keys, reveals: int, batch_size: int
) -> Arrays:
    """`benefit` and predictors of one example, [targets, shown tokens] each; empty if too few."""
    single = study_batch(backbone, [example], np.array([0]))
    c = overmask()(single, keys)
    places = np.flatnonzero(c.candidates[0].cpu().numpy())
    if len(places) < 5:
        return {"benefit": np.zeros((0, 0))}
    rng = keys.rng(int(single.example_id[0]), Stream.STUDY)
    shown = np.sort(rng.permutation(len(places))[:reveals])
    after = []
    with module_mode(backbone.model, train=False):
        every = range(backbone.layers)
        s = backbone.scorer(backbone.model, single, c.candidates, BOTH, every)
        for start in range(0, len(shown), batch_size):
            part = places[shown[start : start + batch_size]]
            batch = study_batch(backbone, [example] * len(part), np.arange(len(part)))
            hidden = torch.zeros_like(batch.ids, dtype=torch.bool)
            hidden[:, places] = True
            hidden[torch.arange(len(part)), torch.from_numpy(part)] = False
            logp = backbone.scorer(backbone.model, batch, hidden).logp
            assert logp is not None
            after.append(logp[:, places].double().cpu().numpy())
    assert s.logp is not None and s.attention is not None
    before = s.logp[0, places].double().cpu().numpy()
    benefit = np.concatenate(after).T - before[:, None]  # [targets, shown]
    real = np.arange(len(places))[:, None] != shown[None]  # a shown token is no target
    p, shape, priority = np.exp(np.minimum(before, 0.0)), benefit.shape, Priority()
    blocks = [replace(s, attention=one) for one in s.attention]
    square = [candidate_attention(one, 0, len(places)) for one in blocks]
    attention = [a.double().cpu().numpy()[:, shown] for a in square]
    near = np.exp(-np.abs(places[:, None] - places[shown][None]) / REACH)
    found = {f"attention, block {i}": a for i, a in enumerate(attention)}
    found |= {"F": priority(p)[:, None] * Support()(attention[-1]), "near": near}
    surprise = Support()(attention[-1] * (1 - p[shown])[None])
    found |= {"F of surprises": priority(p)[:, None] * surprise}
    found |= {"lambda of the target": np.broadcast_to(priority(p)[:, None], shape)}
    found |= {"1 - p of the target": np.broadcast_to(1 - p[:, None], shape)}
    found |= {"1 - p of the token": np.broadcast_to(1 - p[shown][None], shape)}
    return {"benefit": np.where(real, benefit, 0.0), "real": real, **found}


def token_benefit(piece: Arrays) -> np.ndarray:
    """B of every shown token."""
    return np.maximum(piece["benefit"], 0.0).sum(0)


def row(name: str, pieces: Sequence[Arrays], drawn: np.ndarray) -> dict[str, Any]:
    """How well one predictor orders pairs and tokens; what is constant orders nothing."""
    pairs, tokens, held, best = [], [], [], []
    for piece in pieces:
        real, score = piece["real"], np.where(piece["real"], piece[name], 0.0)
        pairs.append(rank_correlation(piece["benefit"][real], piece[name][real]))
        mine, truth = score.sum(0), token_benefit(piece)
        if "token" in name:
            mine = piece[name][0]
        constant = name.endswith("target")  # every token has nearly the same targets
        tokens.append(np.nan if constant else rank_correlation(truth, mine))
        count = quarter(truth)
        held.append(np.nan if constant else truth[np.argsort(-mine, kind="stable")[:count]].sum())
        best.append(np.sort(truth)[-count:].sum())
    return {
        "predictor": name,
        "pairs": mean_within(np.array(pairs), drawn),
        "tokens": mean_within(np.array(tokens), drawn),
        "held": ratio_within(np.array(held), np.array(best), drawn),
    }


def chance(pieces: Sequence[Arrays], drawn: np.ndarray) -> dict[str, Any]:
    """What a quarter drawn at random holds, in expectation."""
    many = [token_benefit(piece) for piece in pieces]
    held = np.array([quarter(b) * b.mean() for b in many])
    best = np.array([np.sort(b)[-quarter(b) :].sum() for b in many])
    found = ratio_within(held, best, drawn)
    return {"predictor": "chance", "pairs": None, "tokens": None, "held": found}


def quarter(tokens: np.ndarray) -> int:
    return max(1, round(BEST * len(tokens)))


def rank_correlation(x: np.ndarray, y: np.ndarray) -> float:
    """Spearman's; 0 where one of them does not vary."""
    from scipy.stats import rankdata

    a, b = rankdata(x), rankdata(y)
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a**2).sum() * (b**2).sum()))
    return float((a * b).sum()) / size if size > 0 else 0.0


def mean_within(values: np.ndarray, drawn: np.ndarray) -> list[float] | None:
    """[mean, low, high] over examples."""
    return ratio_within(values, np.ones(len(values)), drawn)


def ratio_within(top: np.ndarray, bottom: np.ndarray, drawn: np.ndarray) -> list[float] | None:
    if np.isnan(top).any() or not bottom.sum() > 0:
        return None
    return [float(top.sum() / bottom.sum()), *interval((drawn @ top) / (drawn @ bottom))]


def groups(predictors: Sequence[str]) -> list[tuple[str, list[str]]]:
    """What is asked for its R2: one thing at a time, then together."""
    attention = [name for name in predictors if name.startswith("attention")]
    confidence = [name for name in predictors if name.startswith(("lambda", "1 - p"))]
    return [
        ("attention of the last block", attention[-1:]),
        ("attention of all blocks", attention),
        ("confidences", confidence),
        ("F", ["F"]),
        ("near", ["near"]),
        ("attention, confidences and F", [*attention, *confidence, "F"]),
    ]


def explained(
    name: str, parts: Sequence[str], pieces: Sequence[Arrays], drawn: np.ndarray
) -> dict[str, Any]:
    """Held-out R2 of the pairs' benefit."""
    y = [centred(p["benefit"][p["real"]]) for p in pieces]
    x = [np.stack([centred(p[n][p["real"]]) for n in parts], 1) for p in pieces]
    error = np.zeros(len(pieces))
    for own in (0, 1):
        fit = [i for i in range(len(pieces)) if i % 2 != own]
        slope = np.linalg.lstsq(
            np.concatenate([x[i] for i in fit]), np.concatenate([y[i] for i in fit]), rcond=None
        )[0]
        for i in range(own, len(pieces), 2):
            error[i] = ((y[i] - x[i] @ slope) ** 2).sum()
    total = np.array([(v**2).sum() for v in y])
    return {"from": name, "r2": ratio_within(total - error, total, drawn)}


def centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean()
