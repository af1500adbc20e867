"""The paper's runs as recipes, all from one template: `python -m goldimask.train.recipes recipes`.

    {llada8b, llada1.5, dream7b} x {s1k, lift-sft-12k, kodcode} x the main methods,
    and LLaDA-8B on s1k x the ablations of section 4.4

Every recipe can also be named without a file: `goldimask train llada8b-s1k-goldimask-d`. Settings
are the paper's (section 4.1, appendix "Training setup"; LIFT's launcher), with the project's
decisions D1-D4, D9, D13, D14, D22.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from goldimask.files import write_text
from goldimask.presets import MAIN, PRESETS

BACKBONES = {
    "llada8b": ("llada-8b-instruct", "LLaDA-8B-Instruct"),
    "llada1.5": ("llada-1.5", "LLaDA-1.5"),
    "dream7b": ("dream-7b-instruct", "Dream-v0-Instruct-7B"),
}
CORPORA = {"s1k": "s1K", "lift-sft-12k": "LIFT-SFT-12K", "kodcode": "KodCode-Light-RL-10K"}
OWN = {"goldimask-a": "not in the paper", "goldimask-t": "appendix", "goldimask-p": "appendix"}

TEMPLATE = """\
# {title} on {corpus_title}, {preset}. {where}.
# {summary}
#   goldimask train {name} --nproc 4
#   seeds of the paper: seed=42, seed=43, seed=44 (give each its own output=...)
seed: 42
output: runs/{name}-s42
backbone: {{name: {backbone}, dtype: bfloat16}}
lora: {{r: 128, alpha: 256, dropout: 0.05, targets: [q_proj, k_proj, v_proj]}}  # kept in float32
data: {{corpus: {corpus}, max_length: 4096, validation: 0.01}}
method: {{preset: {preset}}}
global_batch_size: 8
trainer:
  max_steps: 2480
  per_device_train_batch_size: 1
  learning_rate: 5.0e-6
  weight_decay: 0.1
  max_grad_norm: 1.0
  lr_scheduler_type: linear
  warmup_steps: 0
  bf16: true
  gradient_checkpointing: false  # true below 40 GB a card; the loss is the same
  logging_steps: 10
  eval_steps: 100                # and at the last step
  save_steps: 100
  save_total_limit: 2            # the best and the last ones
  report_to: [tensorboard]
evaluation: {{objective: vanilla, t_grid: 16, batch_size: 4}}
"""


def names() -> Iterator[tuple[str, str, str, str]]:
    """(recipe name, backbone, corpus, preset) of every recipe."""
    ablations = [n for n in PRESETS.names() if n not in MAIN and ":" not in n]
    for backbone in BACKBONES:
        for corpus in CORPORA:
            extra = ablations if (backbone, corpus) == ("llada8b", "s1k") else []
            for preset in (*MAIN, *extra):
                yield f"{backbone}-{corpus}-{preset}", backbone, corpus, preset


def where(backbone: str, corpus: str, preset: str) -> str:
    """The table of the paper that a run belongs to."""
    if preset not in MAIN:
        return f"Ablation: paper, {PRESETS.get(preset).paper}"
    if preset in OWN:
        return f"Maximiser: paper, {OWN[preset]}" if preset != "goldimask-a" else "Not in the paper"
    if corpus == "s1k":
        return "Paper: Table 1"
    if corpus == "kodcode":
        return "Paper: Table 3" if backbone != "llada1.5" else "Protocol of the paper's Table 3"
    return "Paper: Table 2" if backbone == "llada8b" else "Protocol of the paper's Table 2"


def recipe_text(name: str, backbone: str, corpus: str, preset: str) -> str:
    """One recipe from the template."""
    full, title = BACKBONES[backbone]
    return TEMPLATE.format(
        name=name,
        title=title,
        backbone=full,
        corpus=corpus,
        corpus_title=CORPORA[corpus],
        preset=preset,
        where=where(backbone, corpus, preset),
        summary=PRESETS.entry(preset).summary,
    )


def all_recipes() -> dict[str, str]:
    """Name -> text of every recipe."""
    return {row[0]: recipe_text(*row) for row in names()}


def write_recipes(folder: Path) -> int:
    """Write every recipe, and remove those that the template no longer makes."""
    recipes = all_recipes()
    for old in folder.glob("*.yaml"):
        if old.stem not in recipes:
            old.unlink()
    for name, text in recipes.items():
        write_text(folder / f"{name}.yaml", text)
    return len(recipes)


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "recipes")
    print(f"{write_recipes(place)} recipes in {place}")
