"""`attention_layer: probe` becomes an index before the first step (D24).

The measurement (`layer_probe.py`) runs once, on held-out examples of the frozen model; training
examples stand in when there are too few. A resumed run takes the index that its first start wrote
down.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from goldimask.backbones import Backbone
from goldimask.data.batches import make_batch
from goldimask.keys import Keys
from goldimask.methods import Method
from goldimask.processes import on_main
from goldimask.train.layer_probe import choose_layer
from goldimask.types import Example, Signal

EXAMPLES, BATCH = 32, 8


def resolve_layer(
    method: Method,
    backbone: Backbone,
    validation: Sequence[Example],
    train: Sequence[Example],
    seed: int,
    known: dict[str, Any] | None,
    say: Callable[[str], None],
) -> tuple[Method, dict[str, Any] | None]:
    """The method with its layer as an index, and the table of the measurement."""
    if method.attention_layer != "probe":
        return method, None
    used = method.needs | method.captures
    if not used & {Signal.ATTENTION, Signal.RECEIVED}:
        return replace(method, attention_layer="last"), None  # nobody reads it
    table = known or on_main(lambda: measure(method, backbone, validation, train, seed))
    note = "" if table["informative"] else "; no block foretells the response on this model"
    say(f"layer     attention of block {table['best']}, chosen by measurement{note}")
    return replace(method, attention_layer=int(table["best"])), table


def measure(
    method: Method,
    backbone: Backbone,
    validation: Sequence[Example],
    train: Sequence[Example],
    seed: int,
) -> dict[str, Any]:
    """R2 of every block on a few examples."""
    chosen = sorted([*validation, *train][:EXAMPLES], key=len)
    device = next(backbone.model.parameters()).device
    batches = [
        make_batch(chosen[i : i + BATCH], backbone.pad_id).to(device)
        for i in range(0, len(chosen), BATCH)
    ]
    objective = method.shown["objective"]
    support = objective[1] if objective else None
    table = choose_layer(
        backbone.model, backbone.scorer, batches, Keys(seed), backbone.layers, support=support
    )
    return table.as_dict()
