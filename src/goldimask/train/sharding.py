"""Whole parameters out of a sharded model (FSDP2), for saving."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from goldimask.train.ranks import rank


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
