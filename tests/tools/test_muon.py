"""The orthogonalised update, against the singular value decomposition, and the initial weights."""

from __future__ import annotations

import pytest
import torch

from pretraining.model import SPREAD, new_backbone
from pretraining.muon import muon_step, orthogonalise
from pretraining.recipe import ModelSection


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("shape", [(3, 16, 16), (2, 24, 8), (2, 8, 24)])
def test_singular_vectors_are_kept_and_values_go_to_one(shape):
    u = normal(*shape) * 1e-3
    made = orthogonalise(u)
    values = torch.linalg.svdvals(made)
    assert values.min() > 0.3 and values.max() < 1.35
    left, _, right = torch.linalg.svd(u, full_matrices=False)
    polar = left @ right  # the exact answer: all singular values one
    cosine = (made * polar).sum((1, 2)) / (made.norm(dim=(1, 2)) * polar.norm(dim=(1, 2)))
    assert cosine.min() > 0.95


def test_a_step_equals_the_written_rule():
    """Parameters of two shapes, two steps, against the formula one matrix at a time."""
    shapes = [(8, 8), (16, 8), (8, 8), (8, 16)]
    parameters = [normal(*s, seed=i).requires_grad_() for i, s in enumerate(shapes)]
    expected = [p.detach().clone() for p in parameters]
    momenta = [torch.zeros(s) for s in shapes]
    slow = [torch.zeros(s) for s in shapes]
    for step in range(2):
        for i, p in enumerate(parameters):
            p.grad = normal(*p.shape, seed=10 + 4 * step + i)
        muon_step(parameters, momenta, lr=0.1, momentum=0.9, weight_decay=0.5)
        for i, p in enumerate(parameters):
            slow[i] = 0.9 * slow[i] + p.grad
            update = orthogonalise((p.grad + 0.9 * slow[i])[None])[0]
            scale = max(1.0, p.shape[0] / p.shape[1]) ** 0.5
            expected[i] = expected[i] * (1 - 0.1 * 0.5) - 0.1 * scale * update
    for p, e in zip(parameters, expected, strict=True):
        torch.testing.assert_close(p.detach(), e, atol=1e-5, rtol=1e-5)


def test_initial_weights_depend_on_the_seed_alone():
    section = ModelSection(width=32, layers=2, heads=2, mlp=48)
    before = torch.random.get_rng_state()
    one, same, other = (new_backbone(section, seed).model for seed in (3, 3, 4))
    assert torch.equal(torch.random.get_rng_state(), before)
    for (name, a), b, c in zip(
        one.named_parameters(), same.parameters(), other.parameters(), strict=True
    ):
        assert torch.equal(a, b)
        assert a.ndim == 1 or not torch.equal(a, c), name
    embedding = one.get_input_embeddings().weight.detach()
    assert embedding.mean(0).std() == pytest.approx(SPREAD, rel=0.5)  # what all tokens share
    assert (embedding - embedding.mean(0)).std() == pytest.approx(SPREAD, rel=0.1)
