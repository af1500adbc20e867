"""The two optimisers of pretraining under one schedule.

Muon moves the matrices inside the blocks, AdamW the embedding, the head and the norms (which are
not decayed). Both rates follow the same curve: linear warm-up, constant, linear decay to `floor`.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pretraining.muon import muon_step
from pretraining.recipe import OptimSection


@dataclass(frozen=True)
class Optimisers:
    """Parameters by name, with the state that a checkpoint has to keep."""

    section: OptimSection
    adam: torch.optim.AdamW
    named: dict[str, nn.Parameter]  # all of them
    momenta: dict[str, Tensor]  # of the matrices that Muon moves


def make_optimisers(model: nn.Module, section: OptimSection) -> Optimisers:
    named = dict(model.named_parameters())
    inner = [name for name, p in named.items() if p.ndim == 2 and ".layers." in name]
    outer = [name for name in named if name not in inner]
    groups = [
        {
            "params": [named[n] for n in outer if named[n].ndim > 1],
            "weight_decay": section.weight_decay,
        },
        {"params": [named[n] for n in outer if named[n].ndim <= 1], "weight_decay": 0.0},
    ]
    adam = torch.optim.AdamW(groups, lr=section.lr, betas=section.betas, foreach=False)
    return Optimisers(section, adam, named, {n: torch.zeros_like(named[n]) for n in inner})


def rate(section: OptimSection, step: int, steps: int) -> float:
    """The share of the full rate: the step after the last would have `floor`."""
    if step < section.warmup:
        return (step + 1) / section.warmup
    left = (steps - step) / max(1, section.decay)
    return section.floor + (1 - section.floor) * min(1.0, left)


def update(optimisers: Optimisers, share: float) -> float:
    """Clip the gradient, move every parameter, clear the gradient; returns the gradient's norm."""
    section, named = optimisers.section, optimisers.named
    norm = nn.utils.clip_grad_norm_(named.values(), section.clip)
    for group in optimisers.adam.param_groups:
        group["lr"] = section.lr * share
    optimisers.adam.step()
    muon_step(
        [named[name] for name in optimisers.momenta],
        list(optimisers.momenta.values()),
        section.muon_lr * share,
        section.momentum,
        section.weight_decay,
    )
    for parameter in named.values():
        parameter.grad = None
    return float(norm)
