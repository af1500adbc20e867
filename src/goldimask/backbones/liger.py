"""The fused linear cross-entropy of Liger as an alternative to chunked logits (extra `liger`).

    log p_i = -CE(W h_i, x_i), one value per row, with an arbitrary gradient from above

The weights of a step depend on log p of the same pass, so the kernel must accept a different
upstream gradient for every row; earlier releases did not. `verify_liger` compares value and
gradients with plain torch before the first use, on the device that will run it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from goldimask.errors import GoldimaskError
from goldimask.keys import Stream, torch_seed


def liger_logp(rows: Tensor, targets: Tensor, head: nn.Module) -> Tensor:
    """[n, D] hidden rows -> log p of their targets [n], float32, on the graph."""
    weight = getattr(head, "weight", None)
    if not isinstance(head, nn.Linear) or weight is None:
        raise GoldimaskError(
            "backbone.kernel: liger needs a plain vocabulary projection; take lm_head out of "
            "lora.targets or use kernel: torch"
        )
    if len(rows) == 0:  # the kernel cannot launch; keep the graph
        return head(rows).sum(-1).float()
    return -fused_loss()(weight, rows, targets, head.bias).float()


@cache
def fused_loss() -> Any:
    try:
        from liger_kernel.transformers import (  # pyright: ignore[reportMissingImports]
            LigerFusedLinearCrossEntropyLoss,
        )
    except ImportError as error:
        raise GoldimaskError(
            "backbone.kernel: liger is not installed; pip install 'goldimask[liger]'"
        ) from error
    return LigerFusedLinearCrossEntropyLoss(reduction="none")


def verify_liger(device: torch.device | str, tolerance: float = 1e-4) -> float:
    """The largest deviation from plain torch in value and gradients; too large is an error."""
    generator = torch.Generator().manual_seed(torch_seed(0, Stream.STUDY))
    rows = torch.randn(13, 32, generator=generator).to(device).requires_grad_()
    weight = torch.randn(67, 32, generator=generator).to(device).requires_grad_()
    targets = torch.randint(67, (13,), generator=generator).to(device)
    upstream = torch.randn(13, generator=generator).to(device)  # a different one for every row
    results = []
    for fused in (True, False):
        if fused:
            logp = -fused_loss()(weight, rows, targets).float()
        else:
            logp = -F.cross_entropy(rows @ weight.T, targets, reduction="none")
        results.append((logp.detach(), *torch.autograd.grad(logp, (rows, weight), upstream)))
    deviation = max(float((a - b).abs().max()) for a, b in zip(*results, strict=True))
    if not deviation <= tolerance:
        raise GoldimaskError(
            f"backbone.kernel: this version of liger is off by {deviation:.3g} on {device}; "
            "use kernel: torch, or upgrade liger-kernel"
        )
    return deviation
