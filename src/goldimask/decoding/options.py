"""From options to checked settings, with the decoder's own defaults where none was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from goldimask.decoding.rules import DECODERS, Decoder
from goldimask.decoding.types import Cache, PaddingSide, Settings
from goldimask.errors import GoldimaskError


def make_settings(
    decoder: str = "threshold",
    *,
    length: int = 128,
    block: int | None = None,
    tau: float | None = None,
    factor: float | None = None,
    steps: int | None = None,
    temperature: float = 0.0,
    top_p: float = 1.0,
    top_k: int = 0,
    alg_temp: float | None = None,
    eps: float | None = None,
    cfg: float = 0.0,
    suppress: Sequence[int] = (),
    allow_mask: bool = False,
    eos_stop: bool = False,
    max_steps: int | None = None,
    cache: Cache = "none",
    padding_side: PaddingSide = "right",
    seed: int = 0,
) -> Settings:
    """Checked settings; None means the decoder's own value. See `Settings` for the meanings."""
    entry = DECODERS.entry(decoder, "decoder")
    rule: Decoder = entry.load()
    asked = {"tau": tau, "factor": factor, "steps": steps, "alg_temp": alg_temp, "eps": eps}
    given = {name: value for name, value in asked.items() if value is not None}
    for name in given:
        if name not in rule.options:
            takes = " and ".join(rule.options) or "no options of its own"
            raise GoldimaskError(
                f"{name}: decoder '{entry.name}' does not use it (it takes {takes}); leave it out"
            )
    if block is None:
        block = 32 if rule.blocks else max(length, 1)
    common = Settings(
        decoder=entry.name,
        length=length,
        block=block,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        cfg=cfg,
        suppress=tuple(suppress),
        allow_mask=allow_mask,
        eos_stop=eos_stop,
        max_steps=max_steps,
        cache=cache,
        padding_side=padding_side,
        seed=seed,
    )
    settings = replace(common, **{**rule.options, **given})
    check_settings(settings, rule)
    return settings


def check_settings(s: Settings, rule: Decoder) -> None:
    """Every value in its range; the error names the option."""

    def require(good: bool, name: str, wanted: str) -> None:
        if not good:
            raise GoldimaskError(f"{name}: expected {wanted}, got {getattr(s, name)!r}")

    require(_whole(s.length) and s.length >= 0, "length", "a whole number >= 0")
    require(_whole(s.block) and s.block >= 1, "block", "a whole number >= 1")
    if "tau" in rule.options and rule.measure == "confidence":
        require(0 < s.tau <= 1, "tau", "a confidence in (0, 1]")
    if "tau" in rule.options and rule.measure == "entropy":
        require(0 <= s.tau < float("inf"), "tau", "an entropy in nats, >= 0")
    require(0 < s.factor < float("inf"), "factor", "a number > 0")
    require(0 <= s.temperature < float("inf"), "temperature", "a number >= 0")
    require(0 <= s.alg_temp < float("inf"), "alg_temp", "a number >= 0")
    require(0 < s.top_p <= 1, "top_p", "a share in (0, 1]")
    require(_whole(s.top_k) and s.top_k >= 0, "top_k", "a whole number >= 0 (0 keeps all)")
    require(0 < s.eps < 1, "eps", "a time in (0, 1)")
    require(0 <= s.cfg < float("inf"), "cfg", "a guidance weight >= 0")
    require(s.cache in ("none", "prefix", "dual"), "cache", "none, prefix or dual")
    require(s.padding_side in ("left", "right"), "padding_side", "left or right")
    if s.max_steps is not None:
        require(_whole(s.max_steps) and s.max_steps >= 1, "max_steps", "a whole number >= 1")
    if s.cache != "none" and s.cfg:
        raise GoldimaskError("cache: not available with cfg; leave one of them out")
    if s.steps is not None and s.length:
        blocks = -(-s.length // s.block)
        wanted = f"a positive multiple of the {blocks} blocks (length {s.length} / block {s.block})"
        require(_whole(s.steps) and s.steps > 0 and s.steps % blocks == 0, "steps", wanted)


def _whole(x: object) -> bool:
    return isinstance(x, int | np.integer) and not isinstance(x, bool)
