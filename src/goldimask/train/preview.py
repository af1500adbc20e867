"""What is about to be trained: counts, lengths, and a few examples with the boundary marked.

A look at these before a long run finds most mistakes in data: a lost answer, a doubled header, a
prompt that is supervised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from goldimask.data.batches import EpochSampler, pad_share
from goldimask.keys import Keys, Stream
from goldimask.processes import devices, own_device, world
from goldimask.train.arguments import epochs_warning, micro_batches, planned_steps
from goldimask.train.prepare import Prepared, few_held_out
from goldimask.types import Example

BOUNDARY = "┃"
QUANTILES = (("min", 0.0), ("10%", 0.1), ("median", 0.5), ("90%", 0.9), ("99%", 0.99), ("max", 1.0))


def summary_lines(ready: Prepared) -> list[str]:
    """Counts, a table of lengths, padding, backbone and method."""
    recipe, backbone, train = ready.recipe, ready.backbone, ready.data.train
    each, _ = micro_batches(recipe.trainer, recipe.global_batch_size, world())
    lengths = [len(e) for e in train]
    sampler = EpochSampler(
        lengths, recipe.global_batch_size, recipe.seed, recipe.data.group_by_length
    )
    share = pad_share(train, sampler, each, recipe.data.pad_to_multiple)
    shared = f" on {world()} processes" if world() > 1 else ""
    idle = devices() > 1 and world() == 1
    others = f", one of {devices()}; --nproc {devices()} trains on all of them" if idle else ""
    steps = planned_steps(recipe.trainer, recipe.global_batch_size, len(train))
    epochs = steps * recipe.global_batch_size / len(train)
    warnings = [
        ready.data.report.warning(),
        epochs_warning(steps, recipe.global_batch_size, len(train)),
        few_held_out(recipe.data, len(ready.data.validation)),
    ]
    return [
        f"device    {own_device()}{others}",
        f"data      {', '.join(ready.data.report.lines())}: {len(train)} to train on, "
        f"{len(ready.data.validation)} held out",
        *(f"warning   {warning}" for warning in warnings if warning),
        *length_table(train),
        f"batches   {recipe.global_batch_size} examples a step, {each} at a time{shared}; "
        f"{share:.1%} padding",
        f"steps     {steps:,}, {epochs:.3g} epochs",
        f"backbone  {backbone.name}, {backbone.layers} blocks",
        f"method    {recipe.method.preset}, {ready.method.passes} forward pass(es) a step",
    ]


def length_table(examples: Sequence[Example]) -> list[str]:
    """Quantiles of prompt, response, supervisable and total length, in tokens."""
    return quantile_lines(
        {
            "prompt": [e.prompt_length for e in examples],
            "response": [len(e) - e.prompt_length for e in examples],
            "supervised": [sum(e.supervisable) for e in examples],
            "total": [len(e) for e in examples],
        }
    )


def quantile_lines(rows: Mapping[str, Sequence[int]]) -> list[str]:
    """A table of quantiles, one line per kind of length."""
    head = "tokens    " + " " * 10 + "".join(f"{name:>8}" for name, _ in QUANTILES)
    lines = [head]
    for name, values in rows.items():
        cells = quantiles(values).values()
        lines.append(" " * 10 + f"{name:<10}" + "".join(f"{x:>8}" for x in cells))
    return lines


def quantiles(values: Sequence[int]) -> dict[str, int]:
    """`{"min": ..., "median": ..., "max": ...}`."""
    found = np.quantile(values, [q for _, q in QUANTILES], method="inverted_cdf")
    return {name: int(x) for (name, _), x in zip(QUANTILES, found, strict=True)}


def shown_examples(
    tokenizer: Any, examples: Sequence[Example], count: int, seed: int, width: int = 400
) -> list[str]:
    """`count` examples as the model sees them, cut in the middle of long parts."""
    order = Keys(seed).rng(0, Stream.TASK).permutation(len(examples))[:count]
    lines = []
    for number in order.tolist():
        example = examples[number]
        cut = example.prompt_length
        targets = sum(example.supervisable)
        lines.append(
            f"example {example.example_id}: {cut} prompt tokens {BOUNDARY} {len(example) - cut} "
            f"response tokens, {targets} supervisable"
        )
        prompt = _text(tokenizer, example.ids[:cut], width)
        lines.append(f"{prompt}{BOUNDARY}{_text(tokenizer, example.ids[cut:], width)}")
    return lines


def _text(tokenizer: Any, ids: Sequence[int], width: int) -> str:
    text = tokenizer.decode(list(ids), skip_special_tokens=False)
    half = width // 2
    return text if len(text) <= width else f"{text[:half]} … {text[-half:]}"
