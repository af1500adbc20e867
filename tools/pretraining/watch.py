"""What is measured while a model is pretrained; none of it touches the weights.

denoising loss   the vanilla loss on a fixed bank of (t, mask) draws (D14)
accuracy         threshold decoding of test problems, block by block, on a canvas of masks
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from goldimask.backbones import Backbone
from goldimask.decoding import decode
from goldimask.keys import Keys, content_id
from goldimask.step import MaskedStep, module_mode
from goldimask.tiny.families import PROBLEM_FAMILIES
from goldimask.tiny.problem import Problem, Split
from goldimask.train.validation import level_noise, plain_denoising
from pretraining.canvas import Canvas, canvas_batch
from pretraining.recipe import WatchSection

HELD_OUT_SEED = 10_007  # another seed than any run's: fresh problems
CHUNK = 40
LEVELS = 16


def denoising_loss(backbone: Backbone, problems: Sequence[Problem]) -> float:
    """Mean vanilla loss over the response and its turn end, at stratified noise levels."""
    total = 0.0
    by_length = sorted(problems, key=lambda p: len(p.response))
    for i, problem in enumerate(by_length):
        prompt = backbone.prompt_ids(problem.prompt)
        ids = [*prompt, *backbone.response_ids(problem.response)]
        number = content_id(problem.task, problem.key)
        # one at a time: no padding, so an example's loss does not depend on the others
        batch = canvas_batch([Canvas(ids, len(prompt), number)], 0)
        noise = level_noise({number: (i % LEVELS + 0.5) / LEVELS})
        step = MaskedStep(plain_denoising(noise), backbone.scorer)
        with torch.no_grad(), module_mode(backbone.model, train=False):
            total += float(step(backbone.model, batch, Keys(0)).loss)
    return total / len(problems)


def accuracy(
    backbone: Backbone, problems: Sequence[Problem], section: WatchSection, batch_size: int = CHUNK
) -> dict[str, float]:
    """Share of correct answers and mean number of decoding steps."""
    found = decode(
        backbone,
        [p.prompt for p in problems],
        "threshold",
        length=section.length,
        block=section.block,
        tau=section.tau,
        batch_size=batch_size,
    )
    correct = 0
    for problem, decoded in zip(problems, found, strict=True):
        family = PROBLEM_FAMILIES[problem.task]
        correct += family.check(problem, family.extract(decoded.text))
    steps = sum(d.steps for d in found) / len(found)
    return {"accuracy": round(correct / len(problems), 4), "steps": round(steps, 2)}


def measure(backbone: Backbone, section: WatchSection) -> dict[str, Any]:
    """One line of the log."""
    families = PROBLEM_FAMILIES.values()
    count = max(section.heldout, section.problems)
    fresh = [
        p for f in families for p in f.problems(section.heldout, HELD_OUT_SEED, Split.PRETRAIN)
    ]
    test = {family.name: family.problems(count, 0) for family in families}
    record: dict[str, Any] = {
        "heldout_loss": round(denoising_loss(backbone, fresh), 6),
        "test_loss": {
            name: round(denoising_loss(backbone, problems[: section.heldout]), 6)
            for name, problems in test.items()
        },
    }
    if section.problems:
        record["test"] = {
            name: accuracy(backbone, problems[: section.problems], section)
            for name, problems in test.items()
        }
    return record
