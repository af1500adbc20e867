"""What is logged of every step, under the same names for every method.

    ce                  unweighted cross-entropy on the targets
    gain_positive       share of targets that the reveal helped, log p2 > log p1
    n_eff_ratio         (sum w)^2 / (n sum w^2), mean over examples
    weight_max          largest weight of an example, mean over examples
    candidates          |C| per example
    supervised          |S| per example
    reveal_fraction     |R| / |C|
    kept_ratio          |S| / K, over examples with a budget and a target
    negative_reveals    share of reveals with a negative marginal gain
    value               F(R) per example that revealed something
    value_vs_random     F(R) against F of a random reveal of the same size, ratio of sums
    value_vs_greedy     F(R) against greedy's, for other maximisers; one example per log line
    examples_no_target  examples with K = 0, or nothing masked: counted, they add no loss
    examples_no_reveal  examples with targets whose context stayed as it was
    seconds/PHASE       per micro-batch

A metric is a pair (total, count), so that micro-batches and ranks pool exactly: the value is the
ratio of the sums. One that costs a selection of its own is a function that makes the pair, called
for the last micro-batch before a log line and for no other. What a method does not define has count
0 and is left out. Nothing here waits for the device; `MetricPool.pop` does. Several watch over
decisions (D23, D25, D26, D28, D29, docs/decisions.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from goldimask.baselines.ranking import highest
from goldimask.keys import Keys
from goldimask.objective import Priority, Support
from goldimask.processes import Span, send
from goldimask.types import Batch, StepOutput
from goldimask.weighting import n_eff

PHASES = ("corrupt", "probe", "select", "train", "weigh")
NAMES = (
    "ce",
    "gain_positive",
    "n_eff_ratio",
    "weight_max",
    "candidates",
    "supervised",
    "reveal_fraction",
    "kept_ratio",
    "negative_reveals",
    "value",
    "value_vs_random",
    "value_vs_greedy",
    "examples_no_target",
    "examples_no_reveal",
    *(f"seconds/{phase}" for phase in PHASES),
)
TOTALS = frozenset({"examples_no_target", "examples_no_reveal"})  # reported as counts
Pair = tuple[Any, Any]  # (total, count), tensors or numbers
Metric = Pair | Callable[[], Pair]


def step_metrics(out: StepOutput, batch: Batch) -> dict[str, Metric]:
    """Totals and counts of one step."""
    c, s = out.corruption, out.supervised
    candidates, targets, revealed = c.candidates.sum(), s.sum(), out.reveal.mask.sum()
    has_targets, opened = s.any(1), out.reveal.mask.any(1)
    w, n = out.weights.value, s.sum(1)
    ratio = torch.where(has_targets, n_eff(w) / n.clamp_min(1), 0.0)
    budgeted = (c.keep > 0) & (c.budget() > 0)
    metrics: dict[str, Metric] = {
        "ce": (-(out.logp * s).double().sum(), targets),
        "n_eff_ratio": (ratio.sum(), has_targets.sum()),
        "weight_max": (torch.where(has_targets, w.amax(1), 0.0).sum(), has_targets.sum()),
        "candidates": (candidates, batch.size),
        "supervised": (targets, batch.size),
        "reveal_fraction": (revealed, candidates),
        "kept_ratio": ((n * budgeted).sum(), (c.keep * budgeted).sum()),
        "examples_no_target": ((~has_targets).sum(), batch.size),
        "examples_no_reveal": ((has_targets & ~opened).sum(), batch.size),
        **{f"seconds/{phase}": (seconds, 1) for phase, seconds in out.seconds.items()},
    }
    if out.signals.logp is not None:
        before = out.signals.logp
        measured = s & opened[:, None] & before.isfinite()  # goldimask-a: NaN = never measured
        metrics["gain_positive"] = ((measured & (out.logp > before)).sum(), measured.sum())
    return metrics | _selection(out, batch)


def _selection(out: StepOutput, batch: Batch) -> dict[str, Metric]:
    metrics: dict[str, Metric] = {}
    reveal = out.reveal
    if reveal.gains is not None:
        gains = [g for row in reveal.gains for g in row]
        metrics["negative_reveals"] = (sum(g < 0 for g in gains), len(gains))
    if reveal.value is None or reveal.order is None:
        return metrics
    used = [bool(order) for order in reveal.order]
    total = sum(v for v, u in zip(reveal.value, used, strict=True) if u)
    metrics["value"] = (total, sum(used))
    objective = out.extra.get("objective")
    if objective is not None and out.signals.attention is not None:
        chosen = send(torch.tensor(used), batch.ids.device)
        control = random_reveal(out, batch)
        metrics["value_vs_random"] = (
            total,
            (reveal_value(out, control, *objective) * chosen).sum(),
        )
        if out.extra.get("maximiser") != "greedy" and any(used):
            b = used.index(True)
            bare = replace(out, loss=out.loss.detach())  # a log line must not keep the graph
            metrics["value_vs_greedy"] = lambda: _against_greedy(bare, batch, b, *objective)
    return metrics


def reveal_value(out: StepOutput, reveal: Tensor, priority: Priority, support: Support) -> Tensor:
    """F of any reveal set under the step's own signals. [B, T] bool -> [B] float64"""
    signals = out.signals
    assert signals.attention is not None and signals.rows is not None and signals.logp is not None
    rows = signals.rows.clamp_min(0)
    mass = torch.bmm(signals.attention, reveal.to(signals.attention.dtype)[:, :, None])[:, :, 0]
    lam = priority(signals.logp.double().gather(1, rows).exp().clamp(0.0, 1.0))
    target = (signals.rows >= 0) & ~reveal.gather(1, rows)  # a target's own column is not in R
    return torch.where(target, lam * support(mass.double()), 0.0).sum(1)


def random_reveal(out: StepOutput, batch: Batch) -> Tensor:
    """As many candidates as were revealed, chosen by a hash of (example, t, position).

    A control for a metric, so it neither draws from the step's streams nor waits for the device.
    """
    position = torch.arange(batch.ids.shape[1], device=batch.ids.device)[None]
    salt = out.corruption.t.view(torch.int32).long()[:, None]
    x = batch.example_id[:, None] ^ (salt << 24) ^ (position * -7046029254386353131)
    for shift, factor in ((30, -4658895280553007687), (27, -7723592293110705685)):
        x = (x ^ (x >> shift)) * factor  # splitmix64, wrapping
    rows = out.signals.rows
    known = out.corruption.candidates
    if rows is not None:  # goldimask-a scores only candidates it remembers
        scored = torch.zeros_like(batch.ids).scatter_add_(1, rows.clamp_min(0), (rows >= 0).long())
        known = known & (scored > 0)
    count = (out.reveal.mask & known).sum(1)
    return highest((x ^ (x >> 31)).double(), known, count)


def _against_greedy(
    out: StepOutput, batch: Batch, b: int, priority: Priority, support: Support
) -> Pair:
    """(F(R), F(greedy)) of one example."""
    from goldimask.select.reveal import SubmodularSelect

    c, s = out.corruption, out.signals
    one = slice(b, b + 1)
    attention = None if s.attention is None else s.attention[one]
    rows = None if s.rows is None else s.rows[one]
    logp = None if s.logp is None else s.logp[one]
    part = type(c)(c.candidates[one], c.t[one], c.rho[one], c.keep[one])
    alone = Batch(batch.ids[one], batch.response[one], batch.valid[one], batch.example_id[one])
    greedy = SubmodularSelect("greedy", priority, support)
    found = greedy(part, type(s)(logp, None, attention, rows), alone, Keys(0))
    assert found.value is not None and out.reveal.value is not None
    return out.reveal.value[b], found.value[0]


class MetricPool:
    """Adds up metrics between two log lines, exactly over micro-batches and ranks."""

    def __init__(self) -> None:
        self.sums: Tensor | None = None  # [2 x names] float64: total, count, total, ..
        self.spans: list[tuple[int, Span]] = []  # cell and time of the device, read when popped
        self.late: dict[str, Callable[[], Pair]] = {}  # of the last step

    def add(self, metrics: Mapping[str, Metric]) -> None:
        """Accumulate on the device of the tensors, without waiting for it."""
        self.late = {name: m for name, m in metrics.items() if callable(m)}
        pairs = {name: m for name, m in metrics.items() if not callable(m)}
        cells = [x for name in NAMES for x in pairs.get(name, (0.0, 0.0))]
        self.spans += [(i, x) for i, x in enumerate(cells) if isinstance(x, Span)]
        plain = [0.0 if isinstance(x, Tensor | Span) else float(x) for x in cells]
        sums = torch.tensor(plain, dtype=torch.float64)
        index = [i for i, x in enumerate(cells) if isinstance(x, Tensor)]
        if index:
            tensors = torch.stack([cells[i].detach().double() for i in index])
            sums = send(sums, tensors.device)
            sums[send(torch.tensor(index), tensors.device)] = tensors
        if self.sums is not None:
            where = (sums if sums.device.type != "cpu" else self.sums).device
            before, now = (x if x.device == where else send(x, where) for x in (self.sums, sums))
            sums = before + now
        self.sums = sums

    def settle(self) -> None:
        """Read the device's clock: what was timed since the last call goes into the sums."""
        for cell, span in self.spans:
            assert self.sums is not None
            self.sums[cell] += float(span)
        self.spans = []

    def pop(
        self,
        reduce: Callable[..., Any] | None = None,
        device: torch.device | str | None = None,
    ) -> dict[str, float]:
        """Values since the last call; `reduce(tensor, "sum")` adds over ranks."""
        if self.late:
            self.add({name: make() for name, make in self.late.items()})
        self.settle()
        sums = self.sums
        if sums is None:
            sums = torch.zeros(2 * len(NAMES), dtype=torch.float64)
        self.sums = None
        if reduce is not None:
            sums = reduce(sums.to(device or sums.device), "sum")
        return {
            name: total if name in TOTALS else total / count
            for name, (total, count) in zip(NAMES, sums.view(-1, 2).tolist(), strict=True)
            if count
        }
