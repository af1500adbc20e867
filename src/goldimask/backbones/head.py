"""The vocabulary projection z = W h with float32 logits, whatever the precision of W and h.

A bfloat16 logit of size 20 is off by up to 0.06, which is noise in [log p2 - log p1]+. Products of
bfloat16 numbers are exact in float32, so it is enough to keep the sum: CUDA's kernel does when
asked for a float32 result; elsewhere W is converted a slice at a time. Gradients are made in the
precision of the product, as autocast makes them. In float32 without autocast this is nn.Linear.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

SLICE = 1 << 24  # entries of W in float32 at a time: 64 MB


class FloatHead(nn.Linear):
    """Called as a module, so that wrappers (PEFT, FSDP) see it run."""

    @classmethod
    def of(cls, head: nn.Linear) -> FloatHead:
        """The same parameters under this forward."""
        with torch.device("meta"):
            made = cls(head.in_features, head.out_features, bias=head.bias is not None)
        made.weight, made.bias = head.weight, head.bias
        return made

    def forward(self, input: Tensor) -> Tensor:
        kind = input.device.type
        fast = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        dtype = fast or self.weight.dtype
        with torch.autocast(kind, enabled=False):
            if dtype == torch.float32:
                return F.linear(input.float(), self.weight.float(), self.bias)
            flat = input.reshape(-1, input.shape[-1]).to(dtype)
            logits: Any = Product.apply(flat, self.weight.to(dtype))
            logits = logits if self.bias is None else logits + self.bias.float()
        return logits.view(*input.shape[:-1], -1)


class Product(torch.autograd.Function):
    """rows [n, D], weight [V, D] -> rows weight^T [n, V] in float32."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(rows, weight)
        if keeps_sums(rows.device.type, rows.dtype):
            return torch.mm(rows, weight.t(), out_dtype=torch.float32)
        out = rows.new_empty((len(rows), len(weight)), dtype=torch.float32)
        full, step = rows.float(), max(1, SLICE // weight.shape[1])
        for part, to in zip(weight.split(step), out.split(step, dim=1), strict=True):
            torch.mm(full, part.float().t(), out=to)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:  # type: ignore[override]
        rows, weight = ctx.saved_tensors
        grad = grad.to(rows.dtype)
        asked = ctx.needs_input_grad
        return grad @ weight if asked[0] else None, grad.t() @ rows if asked[1] else None


@cache
def keeps_sums(kind: str, dtype: torch.dtype) -> bool:
    """Does this device multiply in `dtype` with a float32 result?"""
    one = torch.ones((16, 16), dtype=dtype, device=kind)
    try:
        return torch.mm(one, one, out_dtype=torch.float32).dtype == torch.float32
    except (RuntimeError, TypeError):
        return False
