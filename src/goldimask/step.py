"""One training step (paper, Algorithm 1), free of any framework.

    1. corrupt     C, t, K                       from the keys
    2. probe       p1, A on x with C masked      no gradient, dropout off
    3. reveal      R subset of C, S = C \\ R
    4. train       p2 on x with S masked         with gradient
    5. weigh       w from p1, p2, detached
       loss_b = -scale_b * sum over S of w_i log p2_i,   loss = mean over examples
    6. observe     stateful parts (DRO normaliser, goldimask-a's memory), only while training

Contract, each line a test:
  * calls only `model(...)`, exactly `1 + bool(method.needs)` times, whatever the data;
  * never calls backward, an optimiser, a collective or a global generator, and restores every
    module's train/eval flag;
  * the loss is on the graph even when nothing is supervised;
  * results of an example do not depend on its batch mates, padding, rank or accumulation.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn

from goldimask.keys import Keys
from goldimask.types import Batch, Signal, Signals, StepOutput

if TYPE_CHECKING:
    from goldimask.methods import Method

LayerSpec = int | float | str


class Scorer(Protocol):
    """Knows the mask id, the logit alignment and the blocks of a backbone; not the method."""

    def __call__(
        self,
        model: nn.Module,
        batch: Batch,
        hidden: Tensor,
        want: frozenset[Signal] = frozenset({Signal.LOGP}),
        layer: LayerSpec = "last",
    ) -> Signals: ...


class MaskedStep:
    """The two-pass step that every loop shares; `clock` times the phases (`StepOutput.seconds`)."""

    def __init__(
        self, method: Method, scorer: Scorer, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.method = method
        self.scorer = scorer
        self.clock = clock

    def __call__(
        self, model: nn.Module, batch: Batch, keys: Keys, denominator: float | None = None
    ) -> StepOutput:
        """`denominator` replaces the number of examples in the mean, for uneven
        micro-batches (D4, docs/decisions.md)."""
        method, clock = self.method, self.clock
        # 1. corrupt
        ticks = [clock()]
        c = method.noise(batch, keys)
        ticks.append(clock())
        # 2. probe: what the model knows before the reveal
        signals = Signals()
        if method.needs:  # a property of the method, never of the data
            with torch.no_grad(), module_mode(model, train=method.probe_mode == "train"):
                signals = self.scorer(
                    model, batch, c.candidates, method.needs, method.attention_layer
                )
        elif method.memory is not None:  # goldimask-a: earlier visits instead of a pass
            signals = method.memory.recall(batch, c.candidates)
        ticks.append(clock())
        # 3. choose context; K = 0 leaves no target (D3, docs/decisions.md)
        reveal = method.select(c, signals, batch, keys)
        supervised = c.candidates & ~reveal.mask & (c.keep > 0)[:, None]
        ticks.append(clock())
        # 4. train on what is left
        trained = self.scorer(model, batch, supervised, method.captures, method.attention_layer)
        logp = trained.logp
        assert logp is not None
        ticks.append(clock())
        # 5. weigh by the measured response, detached
        with torch.no_grad():
            w = method.weigh(c, signals, batch, supervised, logp.detach(), keys)
        per_example = -(w.value * logp).sum(1) * w.scale
        ticks.append(clock())
        phases = ("corrupt", "probe", "select", "train", "weigh")
        out = StepOutput(
            loss=per_example.sum() / (denominator or batch.size),
            per_example=per_example.detach(),
            corruption=c,
            signals=signals,
            reveal=reveal,
            supervised=supervised,
            logp=logp.detach(),
            weights=w,
            seconds={p: b - a for p, a, b in zip(phases, ticks, ticks[1:], strict=False)},
            extra=method.shown,
        )
        if torch.is_grad_enabled():  # stateful parts learn from training, never from evaluation
            method.observe(out, batch, trained)
        return out


@contextmanager
def module_mode(model: nn.Module, train: bool) -> Iterator[None]:
    """Run with every module in one mode, then restore each flag as it was."""
    if train:
        yield
        return
    changed = [m for m in model.modules() if m.training]
    for module in changed:
        module.training = False
    try:
        yield
    finally:
        for module in changed:
            module.training = True
