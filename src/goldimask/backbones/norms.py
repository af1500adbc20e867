"""RMSNorm with its own backward pass, for float32.

    y = w n,  n = x r,  r = (mean(x^2) + eps)^(-1/2)
    dw = sum over rows of dy n
    dx = r (w dy - n c),  c = mean over the row of w dy n

The stock module leaves the backward pass to autograd, in eleven passes over [B, T, D]; this takes
five, and both agree to rounding. Lower precisions keep the stock module, whose order of casts the
checkpoints were trained with.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm


class Normalise(torch.autograd.Function):
    """See the module's docstring."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:  # type: ignore[override]
        r = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
        n = x * r
        ctx.save_for_backward(n, r, weight)
        return weight * n

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # type: ignore[override]
        n, r, weight = ctx.saved_tensors
        product = grad * n
        c = product.matmul(weight).div_(n.shape[-1]).unsqueeze(-1)
        dw = product.flatten(0, -2).sum(0) if ctx.needs_input_grad[1] else None
        dx = torch.mul(grad, weight, out=product).addcmul_(n, c, value=-1.0).mul_(r)
        return dx, dw, None


def _with_backward(stock: type[nn.Module]) -> type[nn.Module]:
    class Norm(stock):  # type: ignore[valid-type, misc]
        def forward(self, hidden_states: Tensor) -> Tensor:
            plain = hidden_states.dtype == self.weight.dtype == torch.float32
            if not plain or not torch.is_grad_enabled():
                return super().forward(hidden_states)
            return Normalise.apply(hidden_states, self.weight, self.variance_epsilon)

    Norm.__name__ = Norm.__qualname__ = stock.__name__
    return Norm


NORMS: dict[type[nn.Module], type[nn.Module]] = {
    stock: _with_backward(stock) for stock in (LlamaRMSNorm, Qwen2RMSNorm)
}


def prepare_norms(model: nn.Module) -> None:
    """Give every RMSNorm of a stock model the backward pass above."""
    for module in model.modules():
        module.__class__ = NORMS.get(type(module), type(module))
