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

A step has two halves, `begin` (1, 2, and the question of 3) and `finish` (its answer, 4-6). The
weights do not change within an accumulation group, so `accumulate` begins micro-batch i + 1 while a
thread of the host selects for micro-batch i: the same results, bit for bit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from goldimask.keys import Keys
from goldimask.processes import send
from goldimask.types import Batch, Corruption, Overlapping, Reveal, Signal, Signals, StepOutput

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
        where: np.ndarray | None = None,  # `hidden` on the host, so that nobody waits for its shape
    ) -> Signals: ...


@dataclass(frozen=True)
class Begun:
    """A step after its probe: what it knows, and the call that answers which tokens to reveal."""

    batch: Batch
    keys: Keys
    corruption: Corruption
    signals: Signals
    answer: Callable[[], Reveal]
    seconds: dict[str, float]


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
        return self.finish(model, self.begin(model, batch, keys), denominator)

    def accumulate(
        self, model: nn.Module, group: Sequence[tuple[Batch, Keys]]
    ) -> Iterator[StepOutput]:
        """The steps of one accumulation group, one at a time; the caller calls backward on each.

        The optimiser must not step before the group is used up. Where the probe depends on earlier
        steps, this is the plain loop. The order of the passes depends on the method alone, never on
        what a race of engines found: ranks that share a sharded model must call it alike.
        """
        ahead = len(group) > 1 and self.method.overlaps
        begun = None
        for i, (batch, keys) in enumerate(group):
            now = begun or self.begin(model, batch, keys, ahead)
            begun = None
            if ahead and i + 1 < len(group):
                begun = self.begin(model, *group[i + 1], ahead)
            yield self.finish(model, now)

    def begin(self, model: nn.Module, batch: Batch, keys: Keys, ahead: bool = False) -> Begun:
        """The first half; with `ahead` a thread of the host selects at once, where it can."""
        method, clock = self.method, self.clock
        # 1. corrupt
        start = clock()
        c = method.noise(batch, keys)
        corrupted = clock()
        # 2. probe: what the model knows before the reveal
        signals = Signals()
        if method.needs:  # a property of the method, never of the data
            with torch.no_grad(), module_mode(model, train=method.probe_mode == "train"):
                signals = self.scorer(
                    model, batch, c.candidates, method.needs, method.attention_layer,
                    **known(c.host and c.host[0], batch),
                )  # fmt: skip
        elif method.memory is not None:  # goldimask-a: earlier visits instead of a pass
            signals = method.memory.recall(batch, c.candidates)
        seconds = {"corrupt": corrupted - start, "probe": clock() - corrupted}
        # 3. choose context
        if isinstance(method.select, Overlapping):
            # a probe pass at least is what the loop does meanwhile
            beside = ahead and method.select.runs(batch.ids.device) == "host"
            spare = seconds["probe"] if ahead else 0.0
            answer = method.select.begin(c, signals, batch, keys, spare)
            answer = helper().submit(answer).result if beside else answer
        else:
            answer = lambda: method.select(c, signals, batch, keys)  # noqa: E731
        return Begun(batch, keys, c, signals, answer, seconds)

    def finish(
        self, model: nn.Module, begun: Begun, denominator: float | None = None
    ) -> StepOutput:
        """The second half; the phase `select` is what the step waited for."""
        method, clock = self.method, self.clock
        batch, c, signals = begun.batch, begun.corruption, begun.signals
        ticks = [clock()]
        reveal = begun.answer()
        if reveal.mask.device != c.candidates.device:
            reveal = replace(reveal, mask=send(reveal.mask, c.candidates.device))
        # K = 0 leaves no target (D3, docs/decisions.md)
        supervised = c.candidates & ~reveal.mask & (c.keep > 0)[:, None]
        ticks.append(clock())
        # 4. train on what is left
        on_host = None
        if c.host is not None and reveal.host is not None:
            on_host = c.host[0] & ~reveal.host & (c.host[1] > 0)[:, None]
        trained = self.scorer(
            model,
            batch,
            supervised,
            method.captures,
            method.attention_layer,
            **known(on_host, batch),
        )
        logp = trained.logp
        assert logp is not None
        ticks.append(clock())
        # 5. weigh by the measured response, detached
        with torch.no_grad():
            w = method.weigh(c, signals, batch, supervised, logp.detach(), begun.keys)
        per_example = -(w.value * logp).sum(1) * w.scale
        ticks.append(clock())
        spent = {
            p: b - a
            for p, a, b in zip(("select", "train", "weigh"), ticks, ticks[1:], strict=False)
        }
        out = StepOutput(
            loss=per_example.sum() / (denominator or batch.size),
            per_example=per_example.detach(),
            corruption=c,
            signals=signals,
            reveal=reveal,
            supervised=supervised,
            logp=logp.detach(),
            weights=w,
            seconds=begun.seconds | spent,
            extra=method.shown,
        )
        # 6. stateful parts learn from training, never from evaluation
        if torch.is_grad_enabled():
            method.observe(out, batch, trained)
        return out


def known(where: np.ndarray | None, batch: Batch) -> dict[str, np.ndarray]:
    """The hidden positions on the host, for a scorer that would have to wait for a device."""
    return {} if where is None or batch.ids.device.type == "cpu" else {"where": where}


@cache
def helper() -> ThreadPoolExecutor:
    """The thread that selects ahead; kernels run there without the interpreter's lock."""
    return ThreadPoolExecutor(1, thread_name_prefix="goldimask-ahead")


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
