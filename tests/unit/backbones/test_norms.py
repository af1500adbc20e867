"""RMSNorm with its own backward pass against the stock module."""

from __future__ import annotations

import pytest
import torch
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

from goldimask.backbones import Backbone
from goldimask.backbones.norms import NORMS, prepare_norms


@pytest.mark.parametrize("stock", [LlamaRMSNorm, Qwen2RMSNorm])
@pytest.mark.parametrize("shape", [(2, 5, 24), (7, 24), (0, 24)])
def test_values_and_gradients(stock: type, shape: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    plain, own = stock(24), stock(24)
    prepare_norms(own)
    assert type(plain) is stock and type(own) is NORMS[stock]
    weight = torch.rand(24, generator=generator) + 0.5
    x, grad = torch.randn(2, *shape, generator=generator)
    if x.numel():
        x.view(-1, 24)[0] *= 1e-4  # where eps matters
    found = []
    for module in (plain, own):
        module.weight.data.copy_(weight)
        leaf = x.clone().requires_grad_()
        y = module(leaf)
        y.backward(grad)
        found.append((y.detach(), leaf.grad, module.weight.grad))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_exact_gradients() -> None:
    norm = LlamaRMSNorm(6)
    prepare_norms(norm)
    from goldimask.backbones.norms import Normalise

    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 6, dtype=torch.float64, generator=generator, requires_grad=True)
    w = torch.randn(6, dtype=torch.float64, generator=generator, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: Normalise.apply(a, b, 1e-5), (x, w))


def test_other_precisions_and_scoring_keep_the_stock_module() -> None:
    plain, own = LlamaRMSNorm(8).bfloat16(), LlamaRMSNorm(8).bfloat16()
    prepare_norms(own)
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(2)).bfloat16()
    assert torch.equal(plain(x), own(x)) and own(x).grad_fn.name() != "NormaliseBackward"
    with torch.no_grad():
        assert torch.equal(plain.float()(x.float()), own.float()(x.float()))


def test_every_norm_of_a_backbone(backbone: Backbone) -> None:
    norms = [m for m in backbone.model.modules() if type(m).__name__.endswith("RMSNorm")]
    assert len(norms) == 2 * backbone.layers + 1
    assert all(type(m) in NORMS.values() for m in norms)
