"""Selection quality on the frozen model: does a higher F mean targets that respond more?

For the same candidates and budget, for every block whose attention may be used and every selector:

    F          mean of F(R) per example under that block's attention
    kept       |S| / K (D, R and the controls keep exactly K; T and P may keep more)
    gain       mean over the kept targets of [log p2 - log p1]_+       realised gain
    dp         mean of p2 - p1
    priority   mean of lambda(p1)

Means are over all kept targets; differences against the random reveal carry a 95 % bootstrap over
examples. The random reveal does not look at attention: only its F differs between blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from goldimask.backbones import Backbone
from goldimask.bootstrap import interval, weights
from goldimask.keys import Keys
from goldimask.noise import overmask
from goldimask.objective import Priority, Support, value
from goldimask.processes import torch_threads
from goldimask.select.base import candidate_attention
from goldimask.select.reveal import RandomSelect, SubmodularSelect
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
from goldimask.types import Batch, Corruption, Signal, Signals

SELECTORS = {
    "random": None,
    "static": "static",
    "greedy (D)": "greedy",
    "randomised (R)": "randomized",
    "twin (T)": "twin",
    "practical (P)": "practical",
}
COLUMNS = ("value", "examples", "kept", "budget", "gain", "dp", "priority")
DRAWS = 1000
BOTH = frozenset({Signal.LOGP, Signal.ATTENTION})


def study_quality(
    backbone: Backbone,
    corpus: str = "tiny-sft",
    *,
    examples: int = 160,
    seeds: Sequence[int] = (0,),
    turn_end: bool = True,
    batch_size: int = BATCH,
    gather: Gather = everything,
    advance: Advance = quiet,
) -> dict[str, Any]:
    """One row per block and selector; seeds draw new masks and are pooled."""
    data = study_examples(backbone, corpus, examples, turn_end=turn_end)

    def one(unit: tuple[int, np.ndarray]) -> Arrays:
        seed, chosen = unit
        found = measure(backbone, study_batch(backbone, data, chosen), Keys(seed))
        advance(len(chosen), note=f"seed {seed}")
        return {"sums": found}

    units = [(seed, chosen) for seed in seeds for chosen in study_groups(data, batch_size)]
    with torch_threads():
        pieces = gather(units, one)
    shape = (backbone.layers, len(SELECTORS), examples, len(COLUMNS))
    sums = np.zeros(shape)  # per block, selector, example: sums over kept targets
    for (_, chosen), piece in zip(units, pieces, strict=True):
        sums[:, :, chosen] += piece["sums"]
    rows = [
        {"layer": layer, "selector": name, **summarise(sums[layer, k], sums[layer, 0])}
        for layer in range(backbone.layers)
        for k, name in enumerate(SELECTORS)
    ]
    return {
        "study": "quality",
        "backbone": backbone.name,
        "corpus": corpus,
        "examples": examples,
        "seeds": list(seeds),
        "layers": backbone.layers,
        "rows": rows,
    }


@torch.no_grad()
def measure(backbone: Backbone, batch: Batch, keys: Keys) -> np.ndarray:
    """[blocks, selectors, B, columns]"""
    priority, support = Priority(), Support()
    out = np.zeros((backbone.layers, len(SELECTORS), batch.size, len(COLUMNS)))
    with module_mode(backbone.model, train=False):
        c = overmask()(batch, keys)
        random = RandomSelect()(c, Signals(), batch, keys).mask
        plain = scored(backbone, batch, c.candidates & ~random)
        every = range(backbone.layers)
        probed = backbone.scorer(backbone.model, batch, c.candidates, BOTH, every)
        assert probed.attention is not None
        for layer in every:
            signals = replace(probed, attention=probed.attention[layer])
            for k, kind in enumerate(SELECTORS.values()):
                if kind is None:
                    mask, after = random, plain
                else:
                    select = SubmodularSelect(kind, priority, support)
                    mask = select(c, signals, batch, keys).mask
                    after = scored(backbone, batch, c.candidates & ~mask)
                out[layer, k] = columns(c, signals, mask, after, priority, support)
    return out


def scored(backbone: Backbone, batch: Batch, hidden: Tensor) -> Tensor:
    logp = backbone.scorer(backbone.model, batch, hidden).logp
    assert logp is not None
    return logp


def columns(
    c: Corruption, s: Signals, mask: Tensor, after: Tensor, priority: Priority, support: Support
) -> np.ndarray:
    """Sums per example; zero where nothing is revealed or nothing is kept."""
    assert s.logp is not None
    out = np.zeros((len(mask), len(COLUMNS)))
    first, second = s.logp.double().cpu().numpy(), after.double().cpu().numpy()
    candidates, revealed = c.candidates.cpu().numpy(), mask.cpu().numpy()
    for b, keep in enumerate(c.keep.tolist()):
        places = np.flatnonzero(candidates[b])
        if keep < 1 or len(places) <= keep:  # no target, or no budget
            continue
        kept = places[~revealed[b, places]]
        p1, p2 = np.exp(first[b, kept]), np.exp(second[b, kept])
        square = candidate_attention(s, b, len(places)).double().cpu().numpy()
        lam = priority(np.exp(np.minimum(first[b, places], 0.0)))
        out[b] = (
            value(square, lam, revealed[b, places], support),
            1,
            len(kept),
            keep,
            np.maximum(second[b, kept] - first[b, kept], 0.0).sum(),
            (p2 - p1).sum(),
            priority(p1).sum(),
        )
    return out


def summarise(own: np.ndarray, random: np.ndarray) -> dict[str, Any]:
    """Ratios of sums, and differences against the random reveal. [E, columns] each"""

    def means(sums: np.ndarray) -> dict[str, np.ndarray]:
        column = dict(zip(COLUMNS, np.moveaxis(sums, -1, 0), strict=True))
        with np.errstate(invalid="ignore", divide="ignore"):
            per_target = {n: column[n] / column["kept"] for n in ("gain", "dp", "priority")}
            return {"value": column["value"] / column["examples"], **per_target}

    whole = means(own.sum(0))
    drawn = weights(len(own), DRAWS)
    mine, chance, base = means(drawn @ own), means(drawn @ random), means(random.sum(0))
    total = own.sum(0)
    out: dict[str, Any] = {"kept": float(total[2] / max(1.0, total[3]))}
    for name, number in whole.items():
        out[name] = float(number)
        out[f"{name}_over_random"] = [
            float(number - base[name]),
            *interval(mine[name] - chance[name]),
        ]
    return out
