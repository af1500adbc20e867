"""Study 1: which targets should carry a limited supervision budget? (paper, appendix "Study 1")

    k masked positions per example carry the loss, drawn in proportion to lambda(p), p the current
    model's probability; the other masked positions stay masked and carry none
    dNLL = change of the held-out denoising loss at t = .25, .5, .75 on fixed masks
    dp   = mean change of the gold probability on held-out targets with initial p < 0.9

Every rule and seed is a run of `goldimask train`, from a recipe in which the study changes the data
(the rows after the held-out ones), the method (`budget-sample`), steps, batch, rate and seed:

    FOLDER/runs/rows-HASH.jsonl           the rows
    FOLDER/runs/RULE_sSEED-KEY/           a run folder; one that is finished is used again

All rules of a seed start from the same weights and see the same examples, order and masks. Paired
differences against uniform sampling carry a 95 % bootstrap over held-out examples and seeds.

Deviations: k = 8 instead of 32 (responses of about 80 tokens), all weights tuned unless the
recipe's adapter is asked for, the loss is the mean over the k targets (the paper does not state its
normaliser).
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from goldimask.backbones import find_model, load_backbone
from goldimask.backbones.identity import weights_hash
from goldimask.bootstrap import drawn, interval, weights
from goldimask.config import MethodSection, Recipe
from goldimask.errors import GoldimaskError, nearest
from goldimask.files import write_text
from goldimask.jobs import partial_of
from goldimask.processes import torch_threads
from goldimask.records import digest, read_manifest
from goldimask.stats import spread
from goldimask.studies.examples import study_examples, study_rows
from goldimask.studies.heldout import HeldOut, held_out
from goldimask.tables import file_name
from goldimask.train.callbacks import Stopped
from goldimask.train.folders import last_sound
from goldimask.train.prepare import train_key
from goldimask.train.run import train

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
Say = Callable[[str], None]


@dataclass(frozen=True)
class Tuning:
    """What the study sets in the recipe of its runs; all else is the recipe's."""

    steps: int = 100
    batch_size: int = 16
    learning_rate: float = 3.0e-4
    lora: bool = False  # tune the recipe's adapter instead of all weights


def study_budget(
    base: str,
    recipe: Recipe,
    folder: Path,
    corpus: str = "tiny-sft",
    *,
    examples: int = 600,
    heldout: int = 200,
    seeds: Sequence[int] = (0, 1, 2),
    k: int = 8,
    tuning: Tuning | None = None,
    rules: Sequence[str] = tuple(RULES),
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Train every rule with every seed on `base`, in runs under `folder`."""
    tuning = tuning or Tuning()
    check(base, recipe, tuning, rules)
    rows = study_rows(corpus, examples, heldout)
    data = folder / "runs" / f"rows-{digest(rows)}.jsonl"
    write_text(data, "".join(json.dumps(row) + "\n" for row in rows))
    recipe, base_hash = study_recipe(recipe, base, data, tuning), weights_hash(base)
    with torch_threads():
        before = judged(base, corpus, heldout)
        after: dict[str, list[HeldOut]] = {rule: [] for rule in rules}
        for seed in seeds:
            for rule in rules:
                one = with_rule(recipe, rule, k, seed)
                name = f"{file_name(rule)}_s{seed}-{train_key(one, base_hash)}"
                run = trained(replace(one, output=str(folder / "runs" / name)), say)
                after[rule].append(judged(run, corpus, heldout))
    return {
        "study": "budget",
        "backbone": find_model(base).name,
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


def check(base: str, recipe: Recipe, tuning: Tuning, rules: Sequence[str]) -> None:
    """Refuse what could not be trained before anything is."""
    for rule in rules:
        if rule not in RULES:
            raise GoldimaskError(f"rules: unknown '{rule}'; {nearest(rule, RULES)}")
    if find_model(base).adapter is not None:
        raise GoldimaskError(
            f"study budget: '{base}' is an adapter on its base; make one model of them with "
            "`goldimask merge` and study that"
        )
    if tuning.lora and recipe.lora is None:
        raise GoldimaskError("--lora: the recipe has no section 'lora'; give one with --recipe")


def study_recipe(recipe: Recipe, base: str, data: Path, tuning: Tuning) -> Recipe:
    """What all runs of the study share; they end at their last step, without a held-out part."""
    own = {"max_steps": tuning.steps, "learning_rate": tuning.learning_rate}
    alone = {"save_strategy": "no", "eval_on_start": False, "load_best_model_at_end": False}
    rows = replace(
        recipe.data,
        path=str(data),
        corpus=None,
        split=None,
        subset=None,
        options={},
        mixture=(),
        mixture_size=None,
        limit=None,
        validation=0,
        supervise_turn_end=True,
    )
    return replace(
        recipe,
        backbone=replace(recipe.backbone, name=base, path=None, dtype="float32"),
        lora=recipe.lora if tuning.lora else None,
        data=rows,
        global_batch_size=tuning.batch_size,
        trainer={**recipe.trainer, **own, **alone},
        evaluation=replace(recipe.evaluation, patience=None),
    )


def with_rule(recipe: Recipe, rule: str, k: int, seed: int) -> Recipe:
    """The recipe of one run."""
    weigh = {"k": k, "priority": RULES[rule]}
    return replace(recipe, seed=seed, method=MethodSection("budget-sample", weigh=weigh))


def trained(recipe: Recipe, say: Say) -> Path:
    """The finished run of a recipe."""
    run = Path(recipe.output)
    if read_manifest(run) is not None:
        say(f"uses '{run}'")
        return run
    say(f"trains '{run}'")
    resume = last_sound(partial_of(run)) is not None  # a signal saves a checkpoint, a kill none
    if not resume:
        shutil.rmtree(partial_of(run), ignore_errors=True)
    try:
        train(recipe, resume=resume)
    except Stopped as error:
        raise Stopped(
            f"stopped while training '{run}'; with --out the same command goes on from there"
        ) from error
    return run


def judged(model: str | Path, corpus: str, count: int) -> HeldOut:
    """The held-out targets under one model."""
    backbone = load_backbone(model, dtype="float32")
    return held_out(backbone, study_examples(backbone, corpus, count))


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
    low, high = interval(drawn(apart, seeds, examples, counts))
    each = [float(a.sum() / n.sum()) for a, n in zip(apart, counts, strict=True)]
    return {"value": float(np.mean(each)), "low": low, "high": high, "seeds": each}
