"""From problem numbers to batches without padding.

Decoding starts from a canvas of masks longer than the answer, so the model must learn where to
stop:

    <prompt> <response> <|eot_id|> <|endoftext|> ... <|endoftext|>

Everything after the prompt is supervised. The number of trailing `<|endoftext|>` is random: usually
a few, sometimes up to 32, sometimes as many as fill a decoding canvas. Examples of a window are
sorted by length and cut into batches, and the shorter ones of a batch get a few more
`<|endoftext|>`: no cell is wasted, and no attention mask is needed.

Example number i is a function of (seed, i) alone; a batch is a function of (seed, step) alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch

from goldimask.keys import Keys, Stream
from goldimask.tiny.families import PROBLEM_FAMILIES
from goldimask.tiny.problem import Problem, Split
from goldimask.types import Batch
from pretraining.recipe import CanvasSection, Pretraining, StageSection


class Renderer(Protocol):
    """The part of a backbone that turns text into ids."""

    @property
    def pad_id(self) -> int: ...
    def prompt_ids(self, messages: Any) -> list[int]: ...
    def response_ids(self, text: str, turn_end: bool = True) -> list[int]: ...


@dataclass(frozen=True)
class Canvas:
    """One example with its trailing end tokens."""

    ids: list[int]
    prompt_length: int
    number: int


def problem_number(recipe: Pretraining, number: int, stage: StageSection) -> Problem:
    """The `number`-th problem of the endless pretraining stream."""
    rng = Keys(recipe.seed).rng(number, Stream.ORDER)
    mix = stage.mix or recipe.mix or dict.fromkeys(PROBLEM_FAMILIES, 1.0)
    shares = np.array(list(mix.values()))
    choice = int(np.searchsorted(np.cumsum(shares / shares.sum()), rng.random(), side="right"))
    family = PROBLEM_FAMILIES[list(mix)[min(choice, len(mix) - 1)]]
    return family.problem(recipe.seed, number, Split.PRETRAIN, stage.hard)


def trailing(section: CanvasSection, rng: np.random.Generator, length: int) -> int:
    """How many end tokens follow a response of `length` tokens, the turn end included."""
    kind, amount = rng.random(2)
    if kind < section.full and section.lengths:
        goal = section.lengths[int(amount * len(section.lengths))]
        return max(0, goal - length)
    if kind < section.full + section.short:
        return int(amount * (section.short_length + 1))
    return 0


def make_canvas(
    recipe: Pretraining, renderer: Renderer, number: int, stage: StageSection
) -> Canvas:
    problem = problem_number(recipe, number, stage)
    prompt = renderer.prompt_ids(problem.prompt)
    response = renderer.response_ids(problem.response)
    extra = trailing(stage.canvas, Keys(recipe.seed, 1).rng(number, Stream.ORDER), len(response))
    return Canvas([*prompt, *response, *[renderer.pad_id] * extra], len(prompt), number)


def canvas_batch(canvases: list[Canvas], pad_id: int) -> Batch:
    """Fill up to the longest with supervised end tokens."""
    width = max(len(c.ids) for c in canvases)
    ids = np.full((len(canvases), width), pad_id, dtype=np.int64)
    response = np.ones((len(canvases), width), dtype=bool)
    for row, canvas in enumerate(canvases):
        ids[row, : len(canvas.ids)] = canvas.ids
        response[row, : canvas.prompt_length] = False
    return Batch(
        ids=torch.from_numpy(ids),
        response=torch.from_numpy(response),
        valid=torch.ones(ids.shape, dtype=torch.bool),
        example_id=torch.tensor([c.number for c in canvases], dtype=torch.int64),
        padded=False,
    )


def batches(recipe: Pretraining, renderer: Renderer) -> Callable[[int], Batch]:
    """A function step -> Batch; the window of the last step asked for is kept."""

    @lru_cache(maxsize=1)
    def window(number: int) -> list[list[Canvas]]:
        size, count = recipe.batch_size, recipe.window
        first = number * size * count
        stage = recipe.stage(number * count)[0]
        canvases = [make_canvas(recipe, renderer, first + i, stage) for i in range(size * count)]
        canvases.sort(key=lambda c: len(c.ids))  # stable
        cut = [canvases[i : i + size] for i in range(0, len(canvases), size)]
        order = Keys(recipe.seed, 2).rng(number, Stream.ORDER).permutation(count)
        return [cut[i] for i in order]

    def batch(step: int) -> Batch:
        number, inside = divmod(step, recipe.window)
        return canvas_batch(window(number)[inside], renderer.pad_id)

    return batch
