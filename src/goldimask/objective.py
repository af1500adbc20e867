"""The reveal objective (paper, section 3.2 and appendix "Properties of the reveal objective").

    F(R) = sum over i in C\\R of  lambda(p_i) phi(S_i(R)),      S_i(R) = sum over j in R of A_ij

    lambda(p) = p^a (1-p)^b          priority; the paper uses a=1, b=3, with its peak at p = 1/4
    phi(s)    = s / (s + s0)         saturating support, s0 = 0.05; or phi(s) = s (linear)
    either may be a table instead: points that a study measured (`goldimask.tabulated`)

Marginal of revealing x:

    F(R + x) - F(R) = sum over i in C\\(R+x) of lambda_i [phi(S_i + A_ix) - phi(S_i)]
                      - lambda_x phi(S_x)

F is submodular for nonnegative lambda, A and concave nondecreasing phi, and in general not
monotone. Everything here is plain float64 numpy: the definition that every faster path is tested
against.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from goldimask.errors import GoldimaskError
from goldimask.tabulated import Tabulated, read_table

PrioritySpec = str | list[float] | dict[str, Any]  # of a recipe, see `priority_curve`
Floats = NDArray[np.float64]
_CURVE = re.compile(r"(?:(p)(?:\^([0-9.]+))?)?(?:\(1-p\)(?:\^([0-9.]+))?|(1-p))?")


@dataclass(frozen=True)
class Priority:
    """lambda(p) = p^a (1-p)^b: how much a token at confidence p is worth keeping as a target."""

    a: float = 1.0
    b: float = 3.0
    table: Tabulated | None = None  # instead of the exponents

    def __call__(self, p: Any) -> Any:
        """Elementwise, on numpy arrays or torch tensors, in the dtype given."""
        return self.table(p) if self.table else p**self.a * (1.0 - p) ** self.b

    @property
    def peak(self) -> float:
        """Where the curve is largest."""
        if self.table:
            return self.table.x[int(np.argmax(self.table.y))]
        return self.a / (self.a + self.b) if self.a + self.b else 0.0

    def __str__(self) -> str:
        if self.table:
            return self.table.name
        power = lambda x: "" if x == 1 else f"^{x:g}"  # noqa: E731
        left = f"p{power(self.a)}" if self.a else ""
        right = (f"(1-p){power(self.b)}" if left or self.b != 1 else "1-p") if self.b else ""
        return left + right or "1"


def priority_curve(
    spec: str | Sequence[float] | Mapping[str, Any] | Priority, where: str = "priority"
) -> Priority:
    """Read `"p(1-p)^3"`, `"1-p"`, an exponent pair `[a, b]`, or `{kind: table, file: ...}`."""
    if isinstance(spec, Priority):
        return spec
    if isinstance(spec, Mapping):
        if spec.get("kind") != "table":
            raise GoldimaskError(f"{where}.kind: '{spec.get('kind')}' must be 'table'")
        return Priority(table=read_table(spec, "priority", where))
    if isinstance(spec, str):
        match = _CURVE.fullmatch(spec.replace(" ", ""))
        if not spec.strip() or match is None:
            raise GoldimaskError(
                f"{where}: cannot read the priority curve '{spec}'; write p(1-p)^3, p(1-p)^2, "
                "p(1-p), 1-p, or a pair of exponents [a, b] for p^a (1-p)^b"
            )
        has_p, a, b, bare = match.groups()
        right = "(1-p)" in spec.replace(" ", "")
        return Priority(float(a or 1) if has_p else 0.0, float(b or 1) if right or bare else 0.0)
    if len(spec) != 2 or min(spec) < 0:
        raise GoldimaskError(f"{where}: {list(spec)} must be two exponents [a, b], both at least 0")
    return Priority(float(spec[0]), float(spec[1]))


@dataclass(frozen=True)
class Support:
    """phi(s): the benefit of attention mass s on revealed tokens."""

    kind: Literal["saturating", "linear", "table"] = "saturating"
    s0: float = 0.05
    table: Tabulated | None = None  # of kind "table"

    def __post_init__(self) -> None:
        if self.kind not in ("saturating", "linear", "table"):
            raise GoldimaskError(
                f"support.kind: '{self.kind}' must be 'saturating', 'linear' or 'table'"
            )
        if (self.kind == "table") != (self.table is not None):
            raise GoldimaskError("support.table: goes with kind 'table', and only with it")
        if not (np.isfinite(self.s0) and self.s0 > 0):
            raise GoldimaskError(f"support.s0: {self.s0} must be a positive number")

    def __call__(self, s: Any) -> Any:
        if self.table:
            return self.table(s)
        return s if self.kind == "linear" else s / (s + self.s0)


def value(attention: ArrayLike, priority: ArrayLike, reveal: ArrayLike, support: Support) -> float:
    """F(R) by its definition. attention [N, N] (diagonal ignored), priority [N], reveal [N]."""
    a, lam, r = _arrays(attention, priority, reveal)
    s = a[:, r].sum(1)
    return float((lam * support(s))[~r].sum())


def marginals(
    attention: ArrayLike, priority: ArrayLike, reveal: ArrayLike, support: Support
) -> Floats:
    """F(R + x) - F(R) for every x outside R, by the formula above; -inf inside R. [N]"""
    a, lam, r = _arrays(attention, priority, reveal)
    s = a[:, r].sum(1)
    rest = np.where(r, 0.0, lam)
    gain = (rest[:, None] * (support(s[:, None] + a) - support(s)[:, None])).sum(0)
    # x itself stops being a target; its own term in the sum above is zero since A_xx = 0
    return np.where(r, -np.inf, gain - rest * support(s))


def _arrays(
    attention: ArrayLike, priority: ArrayLike, reveal: ArrayLike
) -> tuple[Floats, Floats, NDArray]:
    a = np.array(attention, dtype=np.float64)
    np.fill_diagonal(a, 0.0)
    return a, np.asarray(priority, dtype=np.float64), np.asarray(reveal, dtype=bool)
