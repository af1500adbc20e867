"""One row of a `StepOutput` as plain data, and many of them as a section of a page.

Everything here is read from the `StepOutput`; only two things are added to it: F along the order of
choice (and along random orders), and the attention mass S_i on the revealed tokens. Both need the
probe's attention, which a method without one does not have: pass the signals of a method with the
same candidates as `reference`, or leave them out.

A record:

    method, t, rho, length (L), keep (K), budget (B), scale, loss, n_eff, seconds
    example         id as text
    tokens          {"vocab", "index"} of `text.token_table`; "prompt": length of the prompt
    masked          candidates C;  before: p1 of each, entropy of each (null when not measured)
    order           revealed positions R; `ordered` when that is an order of choice; gains of each
    targets         supervised positions S;  after: p2, weight: w;  support: S_i
    supporters      per target [position, attention, ...] of its strongest revealed tokens
    objective       priority and support curve, F(R), F step by step against random; or null

Positions count from the first real token. Floats carry four significant digits, F five. A dense
attention map is never stored: `supporters` keeps the strongest few and `support` the whole mass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from goldimask.objective import Priority, Support
from goldimask.report.diagnostics import against_random
from goldimask.report.page import LIMIT, embed, section
from goldimask.report.page import significant as sig
from goldimask.report.text import token_table

if TYPE_CHECKING:
    from goldimask.methods import Method
    from goldimask.types import Batch, Signals, StepOutput

SUPPORTERS = 6


@dataclass(frozen=True)
class Cut:
    """One example cut out of a batch, as numpy arrays over its real positions."""

    at: np.ndarray  # real positions within the padded row
    masked: np.ndarray
    revealed: np.ndarray
    targets: np.ndarray


def step_record(
    out: StepOutput,
    batch: Batch,
    row: int,
    tokenizer: Any,
    method: Method | str,
    *,
    reference: Signals | None = None,
    supporters: int = SUPPORTERS,
    special: Sequence[int] | None = None,
) -> dict[str, Any]:
    """What one step did to example `row`, ready for `steps_section` (see the module's text)."""
    name = method if isinstance(method, str) else method.name
    cut = cut_row(out, batch, row)
    ids = batch.ids[row].cpu().numpy()[cut.at]
    response = batch.response[row].cpu().numpy()[cut.at].nonzero()[0]
    c, s = out.corruption, out.signals
    weight = values(out.weights.value, row, cut, cut.targets)
    record: dict[str, Any] = {
        "method": name,
        "example": str(int(batch.example_id[row])),
        "t": sig(float(c.t[row])),
        "rho": sig(float(c.rho[row])),
        "length": len(response),
        "keep": int(c.keep[row]),
        "budget": int(c.budget()[row]),
        "scale": sig(float(out.weights.scale[row]), 6),
        "loss": finite(float(out.per_example[row]), 6),
        "n_eff": sig(float(weight.sum() ** 2 / max(float(weight @ weight), 1e-300)))
        if len(weight)
        else 0.0,
        "cap": finite(getattr(getattr(method, "weigh", None), "cap", None)),
        "seconds": {phase: sig(x, 3) for phase, x in out.seconds.items()},
        "tokens": {
            **token_table(tokenizer, ids.tolist(), special),
            "prompt": int(response[0]) if len(response) else len(ids),
        },
        "masked": cut.masked.tolist(),
        "before": None if s.logp is None else floats(np.exp(values(s.logp, row, cut, cut.masked))),
        "entropy": None if s.entropy is None else floats(values(s.entropy, row, cut, cut.masked)),
        "targets": cut.targets.tolist(),
        "after": floats(np.exp(values(out.logp, row, cut, cut.targets))),
        "weight": floats(weight),
    }
    record |= reveal_part(out, row, cut)
    return record | attention_part(out, batch, row, cut, reference, supporters)


def cut_row(out: StepOutput, batch: Batch, row: int) -> Cut:
    """Positions of one example without its padding."""
    at = batch.valid[row].cpu().numpy().nonzero()[0]
    where = lambda mask: mask[row].cpu().numpy()[at].nonzero()[0]  # noqa: E731
    return Cut(at, where(out.corruption.candidates), where(out.reveal.mask), where(out.supervised))


def values(tensor: Any, row: int, cut: Cut, positions: np.ndarray) -> np.ndarray:
    """Float64 entries of a [B, T] tensor at real positions."""
    return tensor[row].detach().double().cpu().numpy()[cut.at[positions]]


def floats(array: np.ndarray) -> list[float | None]:
    """Four digits each; what is not finite (a forgotten signal) becomes null."""
    return [finite(float(x)) for x in array]


def finite(x: float | None, digits: int = 4) -> float | None:
    """A rounded number; None for an absent, infinite or undefined one, which JSON cannot hold."""
    return None if x is None or not np.isfinite(x) else sig(x, digits)


def reveal_part(out: StepOutput, row: int, cut: Cut) -> dict[str, Any]:
    """Order of choice and gains; reading order where the method ranks all at once."""
    order = out.reveal.order[row] if out.reveal.order is not None else None
    gains = out.reveal.gains[row] if out.reveal.gains is not None else None
    first = int(cut.at[0]) if len(cut.at) else 0
    known = order is not None and len(order) == len(cut.revealed)
    return {
        "order": [int(x) - first for x in order] if known and order else cut.revealed.tolist(),
        "ordered": bool(known and len(cut.revealed)),
        "gains": floats(np.asarray(gains)) if known and gains else None,
    }


def attention_part(
    out: StepOutput,
    batch: Batch,
    row: int,
    cut: Cut,
    reference: Signals | None,
    top: int,
) -> dict[str, Any]:
    """Supporters of the targets, and F; nulls where nothing measured attention."""
    s = out.signals
    if s.attention is None and reference is not None:
        s = reference
    nothing = {"support": None, "supporters": None, "objective": None}
    if s.attention is None or s.rows is None or not len(cut.masked):
        return nothing
    rows = s.rows[row].cpu().numpy()
    if not np.array_equal(rows[rows >= 0], cut.at[cut.masked]):
        return nothing  # a reference with other candidates says nothing about this step
    n = len(cut.masked)
    a = s.attention[row, :n].cpu().numpy()[:, cut.at[cut.masked]].astype(np.float64)  # [N, N]
    np.fill_diagonal(a, 0.0)
    place = {int(x): i for i, x in enumerate(cut.masked)}
    revealed = [place[int(x)] for x in cut.revealed]
    targets = [place[int(x)] for x in cut.targets]
    among = a[np.ix_(targets, revealed)]  # [|S|, |R|]
    part: dict[str, Any] = {
        "support": floats(among.sum(1)),
        "supporters": [strongest(line, cut.revealed, top) for line in among],
        "objective": None,
    }
    if s.logp is None:
        return part
    before = np.exp(np.minimum(values(s.logp, row, cut, cut.masked), 0.0))
    if not np.isfinite(before).all():
        return part
    order = [place[x] for x in reveal_part(out, row, cut)["order"]]
    example_id = int(batch.example_id[row])
    return part | {
        "objective": objective_part(a, before, order, out.extra.get("objective"), example_id)
    }


def strongest(line: np.ndarray, positions: np.ndarray, top: int) -> list[float]:
    """[position, attention, ...] of the largest entries, flat to save room."""
    best = np.argsort(-line, kind="stable")[:top]
    return [x for j in best if line[j] > 0 for x in (int(positions[j]), sig(float(line[j]), 3))]


def objective_part(
    a: np.ndarray, before: np.ndarray, order: list[int], curves: Any, example_id: int
) -> dict[str, Any]:
    """F of the chosen order and of random ones; `curves` are the method's own, or the paper's."""
    own = isinstance(curves, tuple)
    priority, support = curves if own else (Priority(), Support())
    paths = against_random(a, priority(before), order, support, example_id)
    return {
        "own": own,
        "priority": str(priority),
        "a": priority.a,
        "b": priority.b,
        "support": support.kind,
        "s0": support.s0,
        "tables": [None if t is None else [t.x, t.y] for t in (priority.table, support.table)],
        "value": paths["own"][-1],
        "paths": paths,
    }


def pack(records: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Group records by example; tokens, candidates and p1 that several share are stored once."""
    groups: dict[str, dict[str, Any]] = {}
    for record in records:
        group = groups.setdefault(
            record["example"],
            {"example": record["example"], "tokens": record["tokens"], "probes": [], "records": []},
        )
        probe = {key: record[key] for key in ("masked", "before", "entropy")}
        if probe not in group["probes"]:
            group["probes"].append(probe)
        rest = {k: v for k, v in record.items() if k not in ("tokens", "example", *probe)}
        group["records"].append({**rest, "probe": group["probes"].index(probe)})
    return list(groups.values())


def steps_section(
    records: Sequence[Mapping[str, Any]],
    title: str = "One training step",
    note: str = "",
    limit: int = LIMIT - 120_000,
    start: str = "",
) -> dict[str, Any]:
    """A section with every record that fits in `limit` bytes; the page says what was left out.

    It opens at the first record, or at the first one of the method `start`.
    """
    kept, top, said = list(records), SUPPORTERS, ""
    while True:
        groups = pack([trim(r, top) for r in kept])
        data = {"groups": groups, "supporters": top, "left_out": said, "start": start}
        if len(embed(data).encode()) <= limit or (top == 1 and len(kept) <= 1):
            return section("steps", title, data, note)
        if top > 2 or (top > 1 and len(levels(kept)) == 1):
            top -= 1
        elif len(levels(kept)) > 1:
            kept = drop_level(kept)
        else:
            kept = kept[:-1]
        dropped = len(records) - len(kept)
        said = f"{dropped} of {len(records)} steps were left out to keep the page small."
        said = said if dropped else ""


def trim(record: Mapping[str, Any], top: int) -> dict[str, Any]:
    """Keep the `top` strongest supporters of each target."""
    lines = record["supporters"]
    return {**record, "supporters": lines and [line[: 2 * top] for line in lines]}


def levels(records: Sequence[Mapping[str, Any]]) -> list[float]:
    return sorted({r["t"] for r in records})


def drop_level(records: list[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Leave out the noise level that is closest to another one, never the first record's."""
    found, first = levels(records), records[0]["t"]
    gaps = {t: min(abs(t - other) for other in found if other != t) for t in found if t != first}
    gone = min(gaps, key=lambda t: gaps[t])
    return [r for r in records if r["t"] != gone]
