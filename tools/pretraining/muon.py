"""Muon: momentum whose update is made orthogonal, for the matrices inside the blocks.

    m <- mu m + g,    u = g + mu m                       (Nesterov)
    U = u / |u|_F;    5 times:  A = U U^T,  U <- a U + (b A + c A^2) U      (Newton-Schulz)
    W <- (1 - lr wd) W - lr sqrt(max(1, rows / columns)) U

The quintic's coefficients drive every singular value of u to about one. It learns copying from the
prompt several times faster than AdamW at this size (docs/tiny.md). Everything stays in float32: the
usual bfloat16 iteration is slow on a CPU.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


def orthogonalise(u: Tensor) -> Tensor:
    """[N, rows, columns] -> the nearest matrices with singular values of about one."""
    a, b, c = COEFFICIENTS
    tall = u.shape[-2] > u.shape[-1]
    x = u.mT if tall else u
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(ITERATIONS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.mT if tall else x


@torch.no_grad()
def muon_step(
    parameters: Sequence[Tensor],
    momenta: Sequence[Tensor],
    lr: float,
    momentum: float = 0.95,
    weight_decay: float = 0.0,
) -> None:
    """One update in place; matrices of one shape are orthogonalised together."""
    by_shape: dict[torch.Size, list[int]] = defaultdict(list)
    for i, parameter in enumerate(parameters):
        by_shape[parameter.shape].append(i)
    for shape, members in by_shape.items():
        updates = []
        for i in members:
            gradient = parameters[i].grad
            assert gradient is not None
            momenta[i].mul_(momentum).add_(gradient)
            updates.append(gradient.add(momenta[i], alpha=momentum))
        scale = max(1.0, shape[0] / shape[1]) ** 0.5
        for i, update in zip(members, orthogonalise(torch.stack(updates)), strict=True):
            parameters[i].mul_(1 - lr * weight_decay).add_(update, alpha=-lr * scale)
