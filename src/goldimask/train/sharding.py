"""Sharded models (FSDP2): on CPU too, and whole parameters for saving.

accelerate shards on accelerators only and, on CPUs, leaves a request for FSDP2 without a word: the
run would be DDP. The engine itself works there, so the request is put where accelerate looks.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from accelerate import DistributedType, FullyShardedDataParallelPlugin, PartialState
from torch import nn

from goldimask.processes import rank


def honour_request(accelerator: Any) -> bool:
    """Make FSDP2 the engine where it was asked for and accelerate would not; True if it was."""
    asked = os.environ.get("ACCELERATE_USE_FSDP", "false").lower() == "true"
    if not asked or accelerator.distributed_type != DistributedType.MULTI_CPU:
        return False
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin()  # reads the environment
    accelerator.state.distributed_type = DistributedType.FSDP
    PartialState._shared_state["distributed_type"] = DistributedType.FSDP
    return True


@torch.no_grad()
def gather_parameters(model: Any, only_trainable: bool) -> None:
    """Replace shards by whole tensors on rank 0; nothing happens to a model that is not sharded.

    Every rank takes part. The model can be saved afterwards, but no longer trained.
    """
    from torch.distributed.tensor import DTensor

    if hasattr(model, "reshard"):
        model.reshard()
    for module in model.modules():
        for name, p in list(module.named_parameters(recurse=False)):
            if not isinstance(p, DTensor) or (only_trainable and not p.requires_grad):
                continue
            whole = p.full_tensor()  # a collective
            if rank() == 0:
                module._parameters[name] = nn.Parameter(whole.cpu(), p.requires_grad)
