"""Study 1: which targets should carry a limited supervision budget? (paper, appendix "Study 1")

    k masked positions per example carry the loss, drawn in proportion to lambda(p), p the current
    model's probability; the other masked positions stay masked and carry none
    dNLL = change of the held-out denoising loss at t = .25, .5, .75 on fixed masks
    dp   = mean change of the gold probability on held-out targets with initial p < 0.9

Rules: `uniform`; a priority such as `p(1-p)^3`; a band of probabilities such as `0.1-0.5` (uniform
inside, positions outside only when the band has fewer than k); `all` (every masked position, the
reference without a budget). `PAPER` is the study as written, `LAB` its smaller version.

Every rule and seed is a run of `goldimask train`, from a recipe in which the study changes the data
(its rows), the method (`budget-sample`), the seed, and what its plan says:

    FOLDER/runs/rows-HASH.jsonl           the rows
    FOLDER/runs/RULE_sSEED-KEY/           a run folder; one that is finished is used again

All rules of a seed start from the same weights and see the same examples, order and masks. Paired
differences against uniform sampling carry a 95 % bootstrap over held-out examples and seeds.

What the paper leaves open: which 90 rows are held out (here the first ones), the normaliser of the
loss (the mean over the k targets), the schedule of the rate (linear, as in its training setup), and
the bands of the arms that it ran and left out (here three).
"""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from goldimask.backbones import Backbone, find_model, load_backbone
from goldimask.backbones.identity import weights_hash
from goldimask.config import MethodSection, Recipe
from goldimask.errors import GoldimaskError, nearest
from goldimask.files import write_text
from goldimask.jobs import partial_of
from goldimask.processes import torch_threads
from goldimask.records import digest, read_manifest
from goldimask.studies.examples import study_examples, study_rows
from goldimask.studies.heldout import LEVELS, UNIFORM, HeldOut, held_out, summarise
from goldimask.studies.shards import Arrays, Gather, everything
from goldimask.tables import file_name
from goldimask.tabulated import band
from goldimask.train.arguments import DEFAULTS
from goldimask.train.callbacks import Stopped
from goldimask.train.folders import last_sound
from goldimask.train.prepare import LONGEST, train_key
from goldimask.train.run import train

ALL = "all"
RULES: dict[str, list[float]] = {
    UNIFORM: [0.0, 0.0],
    "1-p": [0.0, 1.0],
    "p(1-p)": [1.0, 1.0],
    "p(1-p)^2": [1.0, 2.0],
    "p(1-p)^3": [1.0, 3.0],
}
BAND = re.compile(r"([01]?\.?\d*)-([01]?\.?\d+)")
EVERY = 10**6  # positions: more than any example has
Say = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What the study does; None is as the recipe says."""

    recipe: str = "tiny"
    corpus: str = "tiny-sft"
    heldout: int = 200  # the first rows
    first: int | None = None  # training row; None: the first one that is not held out
    examples: int = 600
    steps: int | None = 100
    at: tuple[int, ...] = ()  # steps before the last that are measured too
    batch_size: int | None = 16  # examples per step
    rate: float | None = 3.0e-4
    lora: bool = False  # tune the recipe's adapter instead of all weights
    k: int = 8
    seeds: int = 3
    rules: tuple[str, ...] = tuple(RULES)

    @property
    def rows(self) -> tuple[int, int]:
        """Training rows, the first one and the one after the last."""
        first = self.heldout if self.first is None else self.first
        return first, first + self.examples

    def measured(self, recipe: Recipe) -> tuple[int, ...]:
        """The steps after which held-out text is scored."""
        last = int(self.steps or recipe.trainer["max_steps"])
        if any(not 0 < step < last for step in self.at):
            raise GoldimaskError(f"--at: steps must lie between 0 and the last one, {last}")
        return (*sorted(set(self.at)), last)


LAB = Plan()
PAPER = Plan(
    recipe="study1",
    corpus="s1k",
    heldout=90,
    first=300,
    examples=600,
    steps=None,
    at=(100,),
    batch_size=None,
    rate=None,
    lora=True,
    k=32,
    seeds=2,
    rules=(UNIFORM, "1-p", "p(1-p)", "p(1-p)^3", "0-0.1", "0.1-0.5", "0.5-1", ALL),
)
PAPER_MODELS = ("llada-8b-instruct", "llada-1.5")


def study_budget(
    base: str,
    plan: Plan,
    recipe: Recipe,
    folder: Path,
    *,
    device: str | None = None,
    gather: Gather = everything,
    say: Say = lambda _: None,
) -> dict[str, Any]:
    """Train every rule with every seed on `base`, in runs under `folder`.

    `recipe` is the plan's, as `study_recipe` makes it. A unit is a run, or the untuned model.
    """
    check(base, recipe, plan)
    steps = plan.measured(recipe)
    rows = study_rows(plan.corpus, plan.examples, plan.rows[0])
    data = folder / "runs" / f"rows-{digest(rows)}.jsonl"
    write_text(data, "".join(json.dumps(row) + "\n" for row in rows))
    recipe = replace(recipe, data=replace(recipe.data, path=str(data)))
    base_hash = weights_hash(base)

    def judged(backbone: Backbone) -> HeldOut:
        examples = study_examples(
            backbone,
            plan.corpus,
            plan.heldout,
            turn_end=recipe.data.supervise_turn_end,
            max_length=recipe.data.max_length or LONGEST,
        )
        return held_out(backbone, examples, batch_size=recipe.evaluation.batch_size)

    def one(unit: tuple[int, str] | None) -> Arrays:
        if unit is None:
            before = judged(loaded(base, recipe, device))
            return {"logp": before.logp, "example": before.example}
        seed, rule = unit
        mine = with_rule(recipe, rule, plan.k, seed)
        name = f"{file_name(rule)}_s{seed}-{train_key(mine, base_hash)}"
        run = trained(replace(mine, output=str(folder / "runs" / name)), say)
        found = [judged(at_step(run, step, steps[-1], base, recipe, device)) for step in steps]
        return {"logp": np.stack([x.logp for x in found])}

    units = [None, *((seed, rule) for seed in range(plan.seeds) for rule in plan.rules)]
    with torch_threads():
        before, *pieces = gather(units, one)
    after: dict[str, list[np.ndarray]] = {rule: [] for rule in plan.rules}
    for (_, rule), piece in zip(units[1:], pieces, strict=True):  # type: ignore[misc]
        after[rule].append(piece["logp"])
    return {
        "study": "budget",
        "backbone": find_model(base).name,
        "corpus": plan.corpus,
        "rows": list(plan.rows),
        "heldout": plan.heldout,
        "targets": len(before["logp"]),
        "k": plan.k,
        "seeds": list(range(plan.seeds)),
        "steps": list(steps),
        "batch_size": recipe.global_batch_size,
        "nll_before": float(-before["logp"].mean()),
        **summarise(before, after, steps, plan.heldout),
    }


def check(base: str, recipe: Recipe, plan: Plan) -> None:
    """Refuse what could not be trained before anything is."""
    for rule in plan.rules:
        weigh_of(rule, plan.k)
    plan.measured(recipe)
    if plan.rows[0] < plan.heldout:
        raise GoldimaskError(
            f"--first: training rows [{plan.rows[0]}, {plan.rows[1]}) overlap the held-out rows "
            f"[0, {plan.heldout})"
        )
    if find_model(base).adapter is not None:
        raise GoldimaskError(
            f"study budget: '{base}' is an adapter on its base; make one model of them with "
            "`goldimask merge` and study that"
        )


def plan_facts(plan: Plan, recipe: Recipe, models: Sequence[str]) -> dict[str, str]:
    """All settings in words; nothing is loaded."""
    check(models[0], recipe, plan)
    trainer, lora = {**DEFAULTS, **recipe.trainer}, recipe.lora
    tuned = f"LoRA r {lora.r}, alpha {lora.alpha:g}, dropout {lora.dropout:g}" if lora else "all"
    return {
        "models": ", ".join(models),
        "precision": recipe.backbone.dtype,
        "training rows": f"{plan.corpus} [{plan.rows[0]}, {plan.rows[1]})",
        "held-out rows": f"[0, {plan.heldout}), masked at {', '.join(map(str, LEVELS))}",
        "turn end supervised": "yes" if recipe.data.supervise_turn_end else "no",
        "weights tuned": tuned,
        "adapter on": ", ".join(lora.targets) if lora else "-",
        "learning rate": f"{trainer['learning_rate']:g}, {trainer['lr_scheduler_type']}",
        "warm-up steps": str(trainer["warmup_steps"]),
        "weight decay": f"{trainer['weight_decay']:g}",
        "gradient clip": f"{trainer['max_grad_norm']:g}",
        "global batch": str(recipe.global_batch_size),
        "measured at steps": ", ".join(map(str, (0, *plan.measured(recipe)))),
        "supervised positions": f"{plan.k} per example",
        "rules": ", ".join(plan.rules),
        "seeds": ", ".join(map(str, range(plan.seeds))),
        "runs": str(len(models) * len(plan.rules) * plan.seeds),
    }


def study_recipe(
    recipe: Recipe, base: str, plan: Plan, dtype: str | None = None, device: str | None = None
) -> Recipe:
    """What all runs of the study share, but for the file of their rows.

    They end at their last step, without a held-out part.
    """
    if plan.lora and recipe.lora is None:
        raise GoldimaskError("--lora: the recipe has no section 'lora'; give one with --recipe")
    if device not in (None, "cpu", "cuda"):
        raise GoldimaskError(
            f"--device: '{device}': training takes cpu or cuda; choose one of several cards with "
            "CUDA_VISIBLE_DEVICES"
        )
    own: dict[str, Any] = {"max_steps": plan.steps, "learning_rate": plan.rate}
    own = {key: value for key, value in own.items() if value is not None}
    own |= {"eval_on_start": False, "load_best_model_at_end": False, "save_strategy": "no"}
    if plan.at:  # checkpoints to measure
        every = math.gcd(*plan.measured(recipe))
        own |= {"save_strategy": "steps", "save_steps": every, "save_total_limit": None}
    if device == "cpu":
        own["use_cpu"] = True
    if dtype is not None:
        own["bf16"] = dtype == "bfloat16"
    rows = replace(
        recipe.data,
        corpus=None,
        split=None,
        subset=None,
        options={},
        mixture=(),
        mixture_size=None,
        limit=None,
        validation=0,
    )
    backbone = replace(recipe.backbone, name=base, path=None)
    if dtype is not None:
        backbone = replace(backbone, dtype=dtype)  # type: ignore[arg-type]
    return replace(
        recipe,
        backbone=backbone,
        lora=recipe.lora if plan.lora else None,
        data=rows,
        global_batch_size=plan.batch_size or recipe.global_batch_size,
        trainer={**recipe.trainer, **own},
        evaluation=replace(recipe.evaluation, patience=None),
    )


def with_rule(recipe: Recipe, rule: str, k: int, seed: int) -> Recipe:
    """The recipe of one run."""
    return replace(
        recipe, seed=seed, method=MethodSection("budget-sample", weigh=weigh_of(rule, k))
    )


def weigh_of(rule: str, k: int) -> dict[str, Any]:
    """The `weigh` section of a rule."""
    if rule == ALL:
        return {"k": EVERY, "priority": RULES[UNIFORM]}
    if rule in RULES:
        return {"k": k, "priority": RULES[rule]}
    found = BAND.fullmatch(rule)
    if found is not None and 0 <= float(found[1] or 0) < float(found[2]) <= 1:
        return {"k": k, "priority": band(float(found[1] or 0), float(found[2]))}
    raise GoldimaskError(
        f"rules: unknown '{rule}'; {nearest(rule, [*RULES, ALL])}; or a band such as 0.1-0.5"
    )


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


def loaded(model: str | Path, recipe: Recipe, device: str | None) -> Backbone:
    """A model in the precision of the study's runs."""
    dtype = recipe.backbone.dtype
    return load_backbone(model, dtype=None if dtype == "auto" else dtype, device=device)


def at_step(
    run: Path, step: int, last: int, base: str, recipe: Recipe, device: str | None
) -> Backbone:
    """The model that a run had after a step: the finished one, or that of a checkpoint."""
    if step == last:
        return loaded(run, recipe, device)
    backbone, folder = loaded(base, recipe, device), run / f"checkpoint-{step}"
    if recipe.lora is not None:
        from goldimask.backbones.lora import load_adapter

        return load_adapter(backbone, folder)
    from safetensors.torch import load_file

    backbone.model.load_state_dict(load_file(folder / "model.safetensors"))
    return backbone
