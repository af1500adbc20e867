"""`goldimask selftest`: is this machine right for goldimask, and how fast is it?

    machine     versions, driver, devices, cores, disk
    arithmetic  the embedded model on the device against the CPU, float32 and bfloat16
    block       one block of the 8B model: kernels, speed, memory, hours of the paper's run
    selection   both engines: the same sets, and their time
    training    four steps, interrupted after two and resumed; several devices against one
    optional    nf4, Liger, the sandbox, the math checker

Each part is a function of a device that yields `Line`s; what it raises becomes a line that failed,
and the next part goes on. A check compares a number with a limit; a fact has no limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from goldimask.errors import GoldimaskError, nearest, short

if TYPE_CHECKING:
    import torch

PARTS = ("machine", "arithmetic", "block", "selection", "training", "optional")
GPUS = ("cuda", "xpu")  # elsewhere the heavy measurements are left out or small
Verdict = Literal["ok", "failed", "skipped", "fact"]


@dataclass(frozen=True)
class Line:
    """One row of the table."""

    check: str
    found: str
    verdict: Verdict = "fact"
    limit: str = ""
    value: float | None = None


def check(name: str, value: float, limit: float, least: bool = False) -> Line:
    """A number that may be at most `limit`, or must be at least that."""
    good = value >= limit if least else value <= limit
    sign = ">=" if least else "<="
    return Line(name, f"{value:.3g}", "ok" if good else "failed", f"{sign} {limit:g}", value)


def skipped(name: str, why: str) -> Line:
    return Line(name, why, "skipped")


def selftest(
    device: torch.device,
    parts: Sequence[str] = PARTS,
    advance: Callable[..., None] = lambda *a, **k: None,
) -> dict[str, Any]:
    """Run the parts in their order; `failed` counts the lines that did."""
    for name in parts:
        if name not in PARTS:
            raise GoldimaskError(f"--only: unknown '{name}'; {nearest(name, PARTS)}")
    rows: list[dict[str, Any]] = []
    for name in (p for p in PARTS if p in parts):
        advance(0, note=name)
        run = import_module(f"goldimask.selftest.{name}").run
        rows += [{"part": name, **asdict(line)} for line in guarded(name, run(device))]
        advance()
    return {
        "device": str(device),
        "parts": list(parts),
        "failed": sum(r["verdict"] == "failed" for r in rows),
        "lines": rows,
    }


def guarded(name: str, lines: Iterator[Line]) -> Iterator[Line]:
    """The lines, and one more where the part broke."""
    try:
        yield from lines
    except Exception as error:  # whatever a new device brings: it is what the test is for
        yield Line(name, short(f"{type(error).__name__}: {error}"), "failed")
