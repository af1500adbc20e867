"""goldimask-a: GoldiMask's selection and weighting without a scoring pass.

The paper mentions a single-pass variant and does not define it; this is the project's own. The
signals that pass 1 would measure are remembered from earlier visits of the same example, and
refreshed by the training pass itself, which captures attention at its targets while it computes
their loss:

    p1_i    <-  exp( m log p1_i + (1 - m) log p2_i )    for i in S, after the step; m = `momentum`
    A_i.    <-  the `top` largest attention weights of target i on supervisable positions

Per example, with `known` = candidates that have been a target before:

    known empty           Vanilla: the targets are exactly Vanilla's for the same seed, w = 1
    otherwise             candidates never measured stay targets first (so that coverage grows), and
                          the budget B is spent on the known ones: maximise F on remembered p1, A
    weights               unknown targets w = 1; known ones are water-filled on
                          u_i = [log p2_i - log p1_i]_+ lambda(p2_i), mean one

Where it differs from GoldiMask-D. p1 is a running mean over earlier contexts and older weights, not
the same model on the over-masked input, so the gain also holds what was learned in between. A was
measured with the other positions partly visible, and its small entries are dropped. The state is
large (`Memory.nbytes`: L (4 + 6 top) bytes per example) and belongs to one process; the trainer
exchanges it between ranks once an epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from goldimask.baselines.memory import Memory
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.noise import draw
from goldimask.objective import Priority, PrioritySpec
from goldimask.select.base import SELECTORS, Select
from goldimask.types import Batch, Corruption, Reveal, Signal, Signals, Weights
from goldimask.weighting import (
    WEIGHERS,
    KeptScale,
    Weigh,
    loss_scale,
    read_curve,
    utility,
    water_fill,
)


@dataclass(frozen=True)
class RecallSelect:
    """A maximiser fed from memory; candidates never measured are kept as targets first."""

    maximiser: Select
    memory: Memory
    needs: frozenset[Signal] = frozenset()

    def __call__(self, c: Corruption, s: Signals, batch: Batch, keys: Keys) -> Reveal:
        assert s.logp is not None
        known = c.candidates & s.logp.isfinite()
        unknown = c.candidates & ~known
        seen = known.any(1)
        keep = torch.where(seen, (c.keep - unknown.sum(1)).clamp_min(0), 0)
        clean = Signals(s.logp.nan_to_num(nan=0.0), None, s.attention, s.rows)
        inner = self.maximiser(Corruption(known, c.t, c.rho, keep), clean, batch, keys)
        first = self._vanilla(c, seen, batch, keys)
        full = self._all_known(c, known, unknown, seen & (keep == 0) & (c.keep > 0), keys, batch)
        return Reveal(inner.mask | first | full, inner.order, inner.gains, inner.value)

    def _vanilla(self, c: Corruption, seen: Tensor, batch: Batch, keys: Keys) -> Tensor:
        """Reveal what Vanilla would not have masked: u_i >= t, for examples never seen."""
        reveal = np.zeros(c.candidates.shape, dtype=bool)
        response, masked = batch.response.cpu().numpy(), c.candidates.cpu().numpy()
        ids, ts = batch.example_id.tolist(), c.t.tolist()
        for b in np.flatnonzero(~seen.cpu().numpy()):
            positions = np.flatnonzero(response[b])
            reveal[b, positions] = draw(keys, ids[b], len(positions)).u >= ts[b]
        return torch.from_numpy(reveal & masked).to(c.candidates.device)

    def _all_known(
        self,
        c: Corruption,
        known: Tensor,
        unknown: Tensor,
        which: Tensor,
        keys: Keys,
        batch: Batch,
    ) -> Tensor:
        """More unmeasured candidates than targets: reveal every known one, and random others."""
        reveal = (known & which[:, None]).cpu().numpy()
        others, budget = unknown.cpu().numpy(), c.budget().tolist()
        ids = batch.example_id.tolist()
        for b in np.flatnonzero(which.cpu().numpy()):
            positions = np.flatnonzero(others[b])
            rng = keys.rng(ids[b], Stream.SELECT)
            reveal[b, rng.permutation(positions)[: budget[b] - reveal[b].sum()]] = True
        return torch.from_numpy(reveal).to(c.candidates.device)


@dataclass(frozen=True)
class RecallWeigh:
    """Water-filling over the targets that have a remembered log p; the others count one."""

    priority: Priority
    cap: float
    kept_scale: KeptScale = "paper"
    needs: frozenset[Signal] = frozenset()

    def __call__(self, c, s, batch, supervised, logp, keys) -> Weights:
        if s.logp is None:  # composed with a selector that remembers nothing
            raise GoldimaskError("method.weigh.kind: 'recall' works only with select.kind 'recall'")
        known = supervised & s.logp.isfinite()
        u = utility(s.logp.nan_to_num(nan=0.0), logp, self.priority)
        w = water_fill(u, known, self.cap) + (supervised & ~known).double()
        return Weights(w.float(), loss_scale(c, batch, supervised, self.kept_scale))


@SELECTORS.register("recall")
def recall_select(
    maximiser: Literal["greedy", "randomized", "twin", "practical", "static"] = "greedy",
    top: int = 32,
    momentum: float = 0.5,
    priority: PrioritySpec = "p(1-p)^3",
    support: dict[str, Any] | None = None,
) -> Select:
    """Maximise F on signals remembered from earlier visits, without a scoring pass."""
    if top < 1:
        raise GoldimaskError(f"method.select.top: {top} must be at least 1")
    if not 0.0 <= momentum < 1.0:
        raise GoldimaskError(f"method.select.momentum: {momentum} must lie in [0, 1)")
    factory = SELECTORS.get(maximiser, "method.select.maximiser")
    options = {"priority": priority, **({"support": support} if support else {})}
    return RecallSelect(factory(**options), Memory(top, momentum))


@WEIGHERS.register("recall")
def recall_weigh(
    cap: float = 10.0,
    priority: PrioritySpec = "p(1-p)^3",
    kept_scale: KeptScale = "paper",
) -> Weigh:
    """Water-filling on gains over remembered log-probabilities (goldimask-a)."""
    return RecallWeigh(read_curve(priority, cap), cap, kept_scale)
