"""A curve as a table: lambda(p) or phi(s) as a study measured it on the user's own model.

    {"curve": "priority" | "support", "x": [0, ..., 1], "y": [...], "source": {...}}

    x strictly increasing from 0 to 1; between two points the curve is linear
    priority   y >= 0, and not zero everywhere
    support    y[0] = 0, nondecreasing and concave: what keeps F submodular

A recipe names such a file, `priority: {kind: table, file: lambda.json}`, or gives `x` and `y`
instead of it. `source` says where a file comes from (model, weights, data); it changes nothing. A
result depends on the points alone, so the key of a training holds them and not the file's name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from goldimask.errors import GoldimaskError, nearest
from goldimask.files import write_json

Kind = Literal["priority", "support"]
FIELDS = ("curve", "x", "y", "source")
ROUNDING = 1e-9  # of a slope, relative to the steepest


@dataclass(frozen=True)
class Tabulated:
    """Points and what lies linearly between them; constant outside."""

    x: tuple[float, ...]
    y: tuple[float, ...]
    name: str = "table"

    def __call__(self, at: Any) -> Any:
        """Elementwise, on numpy arrays or torch tensors; exact at the points."""
        if isinstance(at, np.ndarray | float | int):
            return np.interp(at, self.x, self.y)
        import torch

        x, y = (torch.tensor(v, dtype=at.dtype, device=at.device) for v in (self.x, self.y))
        right = torch.searchsorted(x, at.contiguous(), right=True).clamp(1, len(x) - 1)
        left = right - 1
        share = ((at - x[left]) / (x[right] - x[left])).clamp(0.0, 1.0)
        return torch.lerp(y[left], y[right], share)


def band(low: float, high: float) -> dict[str, Any]:
    """The priority that is 1 for low <= p < high and 0 elsewhere, as a recipe gives it."""
    edge = 1e-9
    points = [(0.0, float(low <= 0)), (low - edge, 0.0), (low, 1.0), (high - edge, 1.0)]
    points += [(high, 0.0), (1.0, float(high >= 1))]
    kept = [(x, y) for i, (x, y) in enumerate(points) if i in (0, 5) or 0 < x < 1]
    return {"kind": "table", "x": [x for x, _ in kept], "y": [y for _, y in kept]}


def write_table(file: Path, curve: Kind, x: list[float], y: list[float], **source: Any) -> Path:
    """A checked table as a file; `source` is kept beside the points."""
    check_points(x, y, curve, str(file))
    return write_json(file, {"curve": curve, "x": x, "y": y, "source": source})


def read_table(spec: Mapping[str, Any], curve: Kind, where: str) -> Tabulated:
    """`{kind: table, file: ...}` or `{kind: table, x: [...], y: [...]}`."""
    for key in spec:
        if key not in ("kind", "file", "x", "y"):
            raise GoldimaskError(f"{where}.{key}: unknown key; {nearest(key, ('file', 'x', 'y'))}")
    if "file" not in spec:
        return Tabulated(*check_points(spec.get("x"), spec.get("y"), curve, where))
    if "x" in spec or "y" in spec:
        raise GoldimaskError(f"{where}: give the points as a file, or as x and y, not both")
    file = Path(str(spec["file"])).expanduser()
    kind, table = read_file(file, f"{where}.file")
    if kind != curve:
        raise GoldimaskError(f"{file}: curve: '{kind}' where a {curve} is needed")
    return table


def read_file(file: Path, where: str = "table") -> tuple[Kind, Tabulated]:
    """Which curve a file holds, and its points."""
    values = _read_json(file, where)
    curve = values.get("curve")
    if curve not in ("priority", "support"):
        raise GoldimaskError(f"{file}: curve: {curve!r} must be 'priority' or 'support'")
    points = check_points(values.get("x"), values.get("y"), curve, str(file))
    return curve, Tabulated(*points, file.stem)


def _read_json(file: Path, where: str) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text("utf-8"))
    except json.JSONDecodeError as error:
        place = f"{file}:{error.lineno}:{error.colno}"
        raise GoldimaskError(f"{place}: not valid JSON: {error.msg}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise GoldimaskError(f"{where}: '{file}' cannot be read ({error})") from error
    if not isinstance(values, dict):
        raise GoldimaskError(f"{file}: a table is a JSON object with the fields {list(FIELDS)}")
    for key in values:
        if key not in FIELDS:
            raise GoldimaskError(f"{file}: {key}: unknown field; {nearest(key, FIELDS)}")
    return values


def check_points(
    x: Any, y: Any, curve: Kind, where: str
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The points of a curve, or what is wrong with them."""
    xs, ys = _numbers(x, f"{where}: x"), _numbers(y, f"{where}: y")
    if len(xs) != len(ys) or len(xs) < 2:
        raise GoldimaskError(
            f"{where}: x has {len(xs)} numbers and y has {len(ys)}; give as many, at least two"
        )
    if xs[0] != 0 or xs[-1] != 1:
        raise GoldimaskError(f"{where}: x: must go from 0 to 1, not from {xs[0]:g} to {xs[-1]:g}")
    steps = np.diff(xs)
    _refuse(steps <= 0, xs, f"{where}: x", "must be greater than the number before it")
    if curve == "priority":
        _refuse(np.array(ys) < 0, ys, f"{where}: y", "must be at least 0", first=0)
        if not max(ys) > 0:
            raise GoldimaskError(f"{where}: y: is 0 everywhere; no target would have a priority")
        return xs, ys
    if ys[0] != 0:
        raise GoldimaskError(f"{where}: y[0]: {ys[0]:g} must be 0, the support of nothing")
    slopes = np.diff(ys) / steps
    slack = ROUNDING * float(np.abs(slopes).max())
    _refuse(slopes < 0, ys, f"{where}: y", "must not be below the number before it")
    if not max(ys) > 0:
        raise GoldimaskError(f"{where}: y: is 0 everywhere; attention would support nothing")
    _refuse(
        np.diff(slopes) > slack,
        ys,
        f"{where}: y",
        "ends a rise steeper than the one before it; a support must be concave",
        first=2,
    )
    return xs, ys


def _numbers(values: Any, where: str) -> tuple[float, ...]:
    if not isinstance(values, list | tuple):
        raise GoldimaskError(f"{where}: expected a list of numbers")
    for i, v in enumerate(values):
        if isinstance(v, bool) or not isinstance(v, int | float) or not np.isfinite(v):
            raise GoldimaskError(f"{where}[{i}]: {v!r} is not a finite number")
    return tuple(float(v) for v in values)


def _refuse(wrong: np.ndarray, values: Any, where: str, why: str, first: int = 1) -> None:
    """Name the first wrong entry; `first` is the place that `wrong[0]` is about."""
    for i in np.flatnonzero(wrong)[:1] + first:
        raise GoldimaskError(f"{where}[{i}]: {values[i]:g} {why}")


def tables_of(section: Mapping[str, Any], where: str = "method") -> Iterator[tuple[str, Tabulated]]:
    """(key, table) of every table inside the plain values of a method's section."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            if value.get("kind") == "table":
                curve: Kind = "support" if key == "support" else "priority"
                yield f"{where}.{key}", read_table(value, curve, f"{where}.{key}")
            else:
                yield from tables_of(value, f"{where}.{key}")
