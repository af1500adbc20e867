"""How a response is corrupted (paper, section 3.1; D1-D3, docs/decisions.md).

    t ~ U(eps, 1),  eps = 1e-3
    rho ~ U(rho_min, 1 - t) if t < t_switch else U(0, 1 - t),   rho_min = 0.1, t_switch = 0.9
    C = { i supervisable : u_i < t + rho },  u_i ~ U(0, 1)
    K = floor(tL),  B = |C| - K

Every draw of an example comes from one stream and in one order (t, rho, u_1..u_L), whichever noise
is asked for. So all over-masking methods share their candidates, and the mask of `uniform` is a
subset of them. Scalars are float32; K is the floor of the float32 t times L.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream
from goldimask.processes import send
from goldimask.registry import Registry
from goldimask.types import Batch, Corruption

EPS = 1e-3


class Noise(Protocol):
    """Which positions are masked before anything is revealed."""

    def __call__(self, batch: Batch, keys: Keys) -> Corruption: ...


NOISES: Registry[Callable[..., Noise]] = Registry("noise")


@dataclass(frozen=True)
class Draw:
    """The random numbers of one example."""

    t: np.float32
    u_rho: float  # uniform in [0, 1), mapped to rho by the noise
    u: np.ndarray  # [L] uniforms, one per supervisable position


def draw(keys: Keys, example_id: int, length: int, eps: float = EPS) -> Draw:
    """All random numbers that corrupt one example, in the one order."""
    rng = keys.rng(example_id, Stream.NOISE)
    t = np.float32(eps + (1.0 - eps) * rng.random())
    return Draw(t, rng.random(), rng.random(length))


def corrupt(
    batch: Batch,
    keys: Keys,
    rate: Callable[[Draw, int], tuple[float, float]],
    keep: Callable[[float, float, int, int], int],
    eps: float = EPS,
) -> Corruption:
    """Mask each supervisable position with probability t + rho.

    `rate` maps (draw, example id) to (t, rho); `keep` maps (t, rho, L, |C|) to the supervised
    count.
    """
    response, ids = batch.on_host()
    candidates = np.zeros_like(response)
    ts, rhos, keeps = [], [], []
    for b, example_id in enumerate(ids):
        positions = np.flatnonzero(response[b])
        numbers = draw(keys, example_id, len(positions), eps)
        t, rho = rate(numbers, example_id)
        chosen = positions[numbers.u < t + rho]
        candidates[b, chosen] = True
        ts.append(t)
        rhos.append(rho)
        keeps.append(keep(t, rho, len(positions), len(chosen)))
    kept, device = np.array(keeps, dtype=np.int64), batch.ids.device
    t, rho = (send(np.array(x, dtype=np.float32), device) for x in (ts, rhos))
    return Corruption(send(candidates, device), t, rho, send(kept, device), (candidates, kept))


def supervised_count(t: float, length: int) -> int:
    """K = floor(tL)."""
    return int(np.floor(np.float64(np.float32(t)) * length))


@NOISES.register("uniform")
def uniform(eps: float = EPS) -> Noise:
    """Mask at rate t; every masked position is a target (Vanilla, CART)."""

    def noise(batch: Batch, keys: Keys) -> Corruption:
        return corrupt(batch, keys, lambda d, e: (float(d.t), 0.0), lambda t, rho, n, c: c, eps)

    return noise


@NOISES.register("overmask")
def overmask(
    rho_min: float = 0.1,
    t_switch: float = 0.9,
    eps: float = EPS,
    budget: Literal["floor", "lift"] = "floor",
) -> Noise:
    """Mask at rate t + rho, to be reduced to K targets by a reveal (LIFT, AGDO, GoldiMask)."""
    if not 0.0 <= rho_min <= 1.0 - t_switch + 1e-9:
        raise GoldimaskError(
            f"method.noise.rho_min: {rho_min} must lie in [0, 1 - t_switch] = "
            f"[0, {1 - t_switch:g}], otherwise t + rho can exceed 1"
        )

    def rate(d: Draw, example_id: int) -> tuple[float, float]:
        low = rho_min if d.t < t_switch else 0.0
        high = max(0.0, 1.0 - float(d.t))
        return float(d.t), float(np.float32(low + (high - low) * d.u_rho))

    def keep(t: float, rho: float, length: int, count: int) -> int:
        if budget == "floor":
            return supervised_count(t, length)
        return round(count * min(1.0, max(1e-3, t / (t + rho))))  # LIFT as released

    def noise(batch: Batch, keys: Keys) -> Corruption:
        return corrupt(batch, keys, rate, keep, eps)

    return noise


@NOISES.register("full")
def full(eps: float = EPS) -> Noise:
    """Mask the whole response; t is still drawn, for methods that resample (GIFT)."""

    def noise(batch: Batch, keys: Keys) -> Corruption:
        c = corrupt(batch, keys, lambda d, e: (float(d.t), 1.0), lambda t, rho, n, c: c, eps)
        assert c.host is not None
        host = (batch.on_host()[0], c.host[1])
        return Corruption(batch.response.clone(), c.t, 1.0 - c.t, c.keep, host)

    return noise
