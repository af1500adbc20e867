"""`backbone.compile: blocks`: every transformer block runs as one compiled function.

The blocks share their code, so one graph serves all of them, whatever their number and the shape of
the batch; there is another one for each of: with and without gradient, with and without padding,
with and without dropout, and a batch of one. A block that is tapped writes what it saw to a Python
object, and a cached one to a store: these calls stay as they are. Hooks (FSDP2, accelerate) are on
the module and run outside of the compiled function; adapters are inside of it.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

Compile = Literal["blocks"]
GRAPHS = 32  # past torch's own limit of 8 it would go on without compiling


def compile_blocks(model: nn.Module, backend: Any = "inductor") -> int:
    """Compile in place, before or after adapters are added; returns the number of blocks."""
    from torch._dynamo import config as dynamo  # takes seconds to import

    dynamo.recompile_limit = max(GRAPHS, dynamo.recompile_limit)
    blocks = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
    for layer, block in enumerate(blocks):
        fast = torch.compile(block.forward, dynamic=True, backend=backend)
        block.forward = chosen(layer, block.forward, fast)
    return len(blocks)


def chosen(layer: int, plain: Any, compiled: Any) -> Any:
    """The compiled forward pass of a block, or its own where a call leaves something behind."""

    def forward(*args: Any, tap: Any = None, **kwargs: Any) -> Any:
        if tap is not None and layer in tap.layers:
            return plain(*args, tap=tap, **kwargs)
        if kwargs.get("past_key_values") is not None:
            return plain(*args, **kwargs)
        return compiled(*args, **kwargs)

    return forward
