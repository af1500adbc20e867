"""Study 1: which targets should carry a limited supervision budget? (paper, appendix "Study 1")

    k masked positions per example carry the loss, drawn in proportion to lambda(p), p the current
    model's probability; the other masked positions stay masked and carry none
    dNLL = change of the held-out denoising loss at t = .25, .5, .75 on fixed masks
    dp   = mean change of the gold probability on held-out targets with initial p < 0.9

All rules of a seed start from the same weights and see the same examples, order and masks. Paired
differences against uniform sampling carry a 95 % bootstrap over held-out examples and seeds.

Deviations: k = 8 instead of 32 (responses of about 80 tokens), full fine-tuning instead of LoRA,
the loss is the mean over the k targets (the paper does not state its normaliser).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from goldimask.backbones import Backbone
from goldimask.bootstrap import interval, weights
from goldimask.errors import GoldimaskError
from goldimask.methods import method
from goldimask.processes import torch_threads
from goldimask.stats import spread
from goldimask.studies.heldout import HeldOut, held_out
from goldimask.studies.schedule import Tuning
from goldimask.studies.tuning import study_examples, tune

UNIFORM = "uniform"
RULES: dict[str, list[float]] = {
    UNIFORM: [0.0, 0.0],
    "1-p": [0.0, 1.0],
    "p(1-p)": [1.0, 1.0],
    "p(1-p)^2": [1.0, 2.0],
    "p(1-p)^3": [1.0, 3.0],
}
UNSURE = 0.9  # dp counts targets below this initial probability
DRAWS = 2000


def study_budget(
    load: Callable[[], Backbone],
    corpus: str = "tiny-sft",
    *,
    examples: int = 600,
    heldout: int = 200,
    seeds: Sequence[int] = (0, 1, 2),
    k: int = 8,
    tuning: Tuning | None = None,
    rules: Sequence[str] = tuple(RULES),
    advance: Callable[..., None] = lambda *a, **b: None,
) -> dict[str, Any]:
    """Train every rule with every seed; `advance` is called after each run."""
    tuning = tuning or Tuning()
    for rule in rules:
        if rule not in RULES:
            raise GoldimaskError(f"rules: unknown '{rule}'; valid: {', '.join(RULES)}")
    with torch_threads():
        first = load()
        held = study_examples(first, corpus, heldout)
        train = study_examples(first, corpus, examples, heldout)
        before = held_out(first, held)
        after: dict[str, list[HeldOut]] = {rule: [] for rule in rules}
        for seed in seeds:
            for rule in rules:
                backbone = load()
                budget = method("budget-sample", weigh={"k": k, "priority": RULES[rule]})
                tune(backbone, train, budget, tuning, seed)
                after[rule].append(held_out(backbone, held))
                advance(1, note=f"seed {seed}, {rule}")
    return {
        "study": "budget",
        "backbone": first.name,
        "corpus": corpus,
        "examples": examples,
        "heldout": heldout,
        "targets": len(before.logp),
        "k": k,
        "seeds": list(seeds),
        "tuning": vars(tuning),
        "nll_before": before.nll,
        **summarise(before, after, heldout),
    }


def summarise(before: HeldOut, after: dict[str, list[HeldOut]], count: int) -> dict[str, Any]:
    """Changes per rule, and paired differences against uniform sampling."""
    changes = {rule: [change(before, x, count) for x in many] for rule, many in after.items()}
    out: dict[str, Any] = {"rules": {}, "paired": {}}
    for rule, many in changes.items():
        values = {name: [total(c, name) for c in many] for name in ("nll", "p")}
        out["rules"][rule] = {
            f"delta_{name}": {"mean": spread(x).mean, "sd": spread(x).sd, "seeds": x}
            for name, x in values.items()
        }
        if rule != UNIFORM and UNIFORM in changes:
            out["paired"][rule] = {
                f"delta_{name}": paired(changes[UNIFORM], many, name) for name in ("nll", "p")
            }
    return out


Change = dict[str, np.ndarray]  # sums and counts per held-out example


def change(before: HeldOut, after: HeldOut, count: int) -> Change:
    p = np.exp(before.logp)
    unsure = (p < UNSURE).astype(float)
    by = before.example
    return {
        "nll": np.bincount(by, before.logp - after.logp, minlength=count),
        "nll_n": np.bincount(by, np.ones(len(p)), minlength=count),
        "p": np.bincount(by, (np.exp(after.logp) - p) * unsure, minlength=count),
        "p_n": np.bincount(by, unsure, minlength=count),
    }


def total(c: Change, name: str) -> float:
    return float(c[name].sum() / max(1.0, c[f"{name}_n"].sum()))


def paired(first: list[Change], second: list[Change], name: str) -> dict[str, Any]:
    """Second minus first: value, interval, and the difference of every seed."""
    apart = np.array([b[name] - a[name] for a, b in zip(first, second, strict=True)])  # [S, E]
    counts = np.array([a[f"{name}_n"] for a in first])
    seeds, examples = weights(len(apart), DRAWS, salt=1), weights(apart.shape[1], DRAWS, salt=2)
    top, bottom = ((seeds @ x) * examples for x in (apart, counts))
    low, high = interval(top.sum(1) / bottom.sum(1))
    each = [float(a.sum() / n.sum()) for a, n in zip(apart, counts, strict=True)]
    return {"value": float(np.mean(each)), "low": low, "high": high, "seeds": each}
