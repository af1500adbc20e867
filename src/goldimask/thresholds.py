"""Accuracy against decoding steps over thresholds, on equal terms (paper, Figures 2 and 3).

    reduction   1 - steps / steps(most accurate baseline), at each threshold (paper, section
                "Accuracy and Parallel-Decoding Cost"); an untuned model is one only where nothing
                else is; it compares calls of the model, and seconds stand beside it for those who
                ran on one machine
    AUP         rho_1 y_1 + 1/2 sum_{i>=2} (rho_i - rho_{i-1}) (y_i W(y_i) + y_{i-1} W(y_{i-1}))
                W(y) = min(exp(-alpha (1 - y / y_max)), 1),  alpha = 3
                Accuracy under parallelism, of d3LLM (Qian et al., arXiv 2601.07568): rho is tokens
                a call, ascending; y is accuracy in per cent; points below y_1 - 5 are left out;
                y_max is the highest accuracy that any row reaches on the task

Points are compared within a panel (backbone and corpus), a decoder and its other options, a task
and a length, on the problems that were judged at every threshold; never across. Tokens are those
before the first end token, over all calls: padding that a full canvas commits for nothing does not
count as parallelism.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from goldimask.records import Decoding, Outcome
from goldimask.stats import result_of

THRESHOLDS = ("tau", "factor")  # options by which a decoder trades steps for accuracy
ALPHA, DROP = 3.0, 5.0  # of AUP


@dataclass(frozen=True)
class Point:
    """One row on one task at one length and threshold; its runs and seeds are pooled."""

    run: str
    task: str
    length: int
    tau: float
    accuracy: float  # share
    steps: float  # mean model calls per example
    n: int
    baseline: bool
    seconds: float = 0.0  # per answer, wall clock
    tokens_a_call: float | None = None
    decoder: str = ""  # with its options but the threshold
    panel: str = ""  # backbone and corpus
    untuned: bool = False  # a baseline that was not fine-tuned

    @property
    def place(self) -> tuple[str, str, str, int]:
        """Within which points may be compared."""
        return (self.panel, self.decoder, self.task, self.length)


@dataclass(frozen=True)
class Reduction:
    """A row against the most accurate baseline at the same threshold."""

    point: Point
    against: Point
    reduction: float  # share of the baseline's steps that is saved
    accuracy_difference: float  # in points


@dataclass(frozen=True)
class Parallelism:
    """AUP of one row at one place; None where fewer than two points count, or no tokens."""

    point: Point  # the first one, of the fewest tokens a call
    aup: float
    kept: int  # points within reach of the first one's accuracy
    of: int


def threshold(decoding: Decoding) -> tuple[str, float] | None:
    """(the decoding without its threshold, as a label; the threshold), None where it has none."""
    options = dict(decoding.options)
    name = next((t for t in THRESHOLDS if options.get(t) is not None), None)
    if name is None:
        return None
    value = float(options.pop(name) or 0)
    return Decoding(decoder=decoding.decoder, options=options).label, value


def shared(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those with a threshold, to problems that were judged at every threshold of their decoder."""
    asked: dict[tuple[str, str, int], dict[float, set[str]]] = {}
    placed = [(o, at) for o in outcomes if (at := threshold(o.decoding)) is not None]
    for o, (decoder, tau) in placed:
        asked.setdefault((decoder, o.task, o.length), {}).setdefault(tau, set()).add(o.item)
    common = {place: set.intersection(*taus.values()) for place, taus in asked.items()}
    return [o for o, (decoder, _) in placed if o.item in common[decoder, o.task, o.length]]


def points(
    run: str,
    outcomes: Iterable[Outcome],
    baseline: bool,
    panel: str = "",
    untuned: bool = False,
) -> list[Point]:
    """Accuracy and cost of a row at each of its thresholds; decodings without one have none."""
    groups: dict[tuple[str, str, int, float], list[Outcome]] = {}
    for o in outcomes:
        if (found := threshold(o.decoding)) is not None:
            groups.setdefault((found[0], o.task, o.length, found[1]), []).append(o)
    out = []
    for (decoder, task, length, tau), group in sorted(groups.items()):
        x = result_of(group)
        cost = (x.seconds, x.tokens_a_call, decoder, panel, untuned)
        out.append(Point(run, task, length, tau, x.accuracy, x.steps, x.n, baseline, *cost))
    return out


def reductions(found: Sequence[Point]) -> list[Reduction]:
    """Candidates against the most accurate baseline of their place, at each threshold."""
    out = []
    for p in found:
        rivals = [q for q in found if q.baseline and (q.place, q.tau) == (p.place, p.tau)]
        if p.baseline or not rivals:
            continue
        rivals = [q for q in rivals if not q.untuned] or rivals
        best = max(rivals, key=lambda q: (q.accuracy, -q.steps))  # a tie goes to the cheaper one
        saved = 1 - p.steps / best.steps if best.steps else 0.0
        out.append(Reduction(p, best, saved, 100 * (p.accuracy - best.accuracy)))
    return out


def aup(curve: Sequence[tuple[float, float]], top: float) -> tuple[float, int]:
    """(AUP, points that count) of (tokens a call, accuracy in %); `top` is y_max."""
    ordered = sorted(curve)
    kept = [(x, y) for x, y in ordered if y >= ordered[0][1] - DROP]
    weighted = [y * min(math.exp(-ALPHA * (1 - y / top)), 1.0) if top else 0.0 for _, y in kept]
    area = kept[0][0] * kept[0][1]
    for i in range(1, len(kept)):
        area += (kept[i][0] - kept[i - 1][0]) * (weighted[i] + weighted[i - 1]) / 2
    return area, len(kept)


def parallelism(found: Sequence[Point]) -> list[Parallelism]:
    """AUP of every row at every place where its tokens were counted at two thresholds or more."""
    out = []
    for place in dict.fromkeys(p.place for p in found):
        here = [p for p in found if p.place == place]
        top = 100 * max(p.accuracy for p in here)
        for run in dict.fromkeys(p.run for p in here):
            mine = [p for p in here if p.run == run]
            curve = [(p.tokens_a_call, 100 * p.accuracy) for p in mine if p.tokens_a_call]
            if len(curve) == len(mine) > 1:
                area, kept = aup(curve, top)
                first = min(mine, key=lambda p: p.tokens_a_call or 0.0)
                out.append(Parallelism(first, area, kept, len(mine)))
    return out
