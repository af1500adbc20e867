"""From what the caller passes as prompts, and as settings, to checked token ids and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from goldimask.decoding.forward import Decodable
from goldimask.decoding.rules import DECODERS, Decoder
from goldimask.decoding.types import Settings
from goldimask.errors import GoldimaskError, nearest
from goldimask.keys import content_id

Prompt = str | Sequence[dict[str, str]] | Sequence[int]


def render(backbone: Decodable, prompts: Any, prefill: str = "") -> list[np.ndarray]:
    """Token ids per prompt (a user turn, a list of messages, or ids as they are), and prefill."""
    if isinstance(prompts, str | dict) or not isinstance(prompts, Sequence | np.ndarray):
        raise GoldimaskError(
            "prompts: expected a list of prompts (strings, message lists or token id lists); "
            "wrap a single prompt in a list"
        )
    tail = list(backbone.response_ids(prefill, turn_end=False)) if prefill else []
    return [np.asarray(_ids(backbone, p, i) + tail, dtype=np.int64) for i, p in enumerate(prompts)]


def _ids(backbone: Decodable, prompt: Any, index: int) -> list[int]:
    if isinstance(prompt, str):
        return list(backbone.prompt_ids(prompt))
    if hasattr(prompt, "tolist"):
        prompt = prompt.tolist()
    if isinstance(prompt, Sequence):
        if all(isinstance(x, int) for x in prompt):
            return list(prompt)
        if all(isinstance(x, dict) for x in prompt):
            return list(backbone.prompt_ids(prompt))
    raise GoldimaskError(
        f"prompts[{index}]: expected a string, a list of messages or a list of token ids, "
        f"not {type(prompt).__name__}"
    )


def check_lengths(prompts: Sequence[np.ndarray], length: int, most: int) -> None:
    """Every canvas must begin with a token and fit the backbone."""
    for i, prompt in enumerate(prompts):
        if not len(prompt):  # all masks: every prediction is equal and rounding would decide
            raise GoldimaskError(f"prompts[{i}]: no tokens; begin with at least one, such as BOS")
        if len(prompt) + length > most:
            raise GoldimaskError(
                f"prompts[{i}]: {len(prompt)} tokens and a response of {length} exceed the "
                f"backbone's {most}; shorten the prompt or the length"
            )


def sample_ids(prompts: Sequence[np.ndarray]) -> list[int]:
    """A stream per prompt from its content, so that it samples alike in any batch.

    The k-th copy of a prompt has its own stream: pass a prompt k times for k samples.
    """
    seen: Counter[bytes] = Counter()
    out = []
    for prompt in prompts:
        data = prompt.tobytes()
        out.append(content_id(data, str(seen[data])))
        seen[data] += 1
    return out


def make_settings(decoder: str, **given: Any) -> tuple[Settings, Decoder]:
    """Settings with the decoder's own defaults where the caller said None; everything checked."""
    rule = DECODERS.get(decoder, "decoder")
    known = {f.name for f in fields(Settings)}
    for name in given:
        if name not in known:
            raise GoldimaskError(f"decode: unknown argument '{name}'; {nearest(name, known)}")
    given = {k: v for k, v in given.items() if v is not None}
    given["suppress"] = tuple(given.get("suppress", ()))
    length = given.get("length", Settings.length)
    given.setdefault("block", 32 if rule.blocks else max(length, 1))
    if rule.tau is not None:
        given.setdefault("tau", rule.tau)
    settings = Settings(decoder=decoder, **given)
    _check(settings, rule)
    return settings, rule


def _check(s: Settings, rule: Decoder) -> None:
    def require(good: bool, name: str, wanted: str) -> None:
        if not good:
            raise GoldimaskError(f"{name}: expected {wanted}, got {getattr(s, name)!r}")

    require(_whole(s.length) and s.length >= 0, "length", "a whole number >= 0")
    require(_whole(s.block) and s.block >= 1, "block", "a whole number >= 1")
    if rule.tau is not None and rule.measure == "confidence":
        require(0 < s.tau <= 1, "tau", "a confidence in (0, 1]")
    if rule.tau is not None and rule.measure == "entropy":
        require(0 <= s.tau < float("inf"), "tau", "an entropy in nats, >= 0")
    require(0 < s.factor < float("inf"), "factor", "a number > 0")
    require(0 <= s.temperature < float("inf"), "temperature", "a number >= 0")
    require(0 <= s.alg_temp < float("inf"), "alg_temp", "a number >= 0")
    require(0 < s.top_p <= 1, "top_p", "a share in (0, 1]")
    require(_whole(s.top_k) and s.top_k >= 0, "top_k", "a whole number >= 0 (0 keeps all)")
    require(0 < s.eps < 1, "eps", "a time in (0, 1)")
    require(0 <= s.cfg < float("inf"), "cfg", "a guidance weight >= 0")
    require(s.cache in ("none", "prefix", "dual"), "cache", "none, prefix or dual")
    require(s.engine in ("auto", "model"), "engine", "auto or model")
    require(s.padding_side in ("left", "right"), "padding_side", "left or right")
    if s.max_steps is not None:
        require(_whole(s.max_steps) and s.max_steps >= 1, "max_steps", "a whole number >= 1")
    if s.cache != "none" and s.cfg:
        raise GoldimaskError("cache: not available with cfg; leave one of them out")
    if s.steps is not None and rule.plan is not None and s.length:
        blocks = -(-s.length // s.block)
        wanted = f"a positive multiple of the {blocks} blocks (length {s.length} / block {s.block})"
        require(_whole(s.steps) and s.steps > 0 and s.steps % blocks == 0, "steps", wanted)


def _whole(x: Any) -> bool:
    return isinstance(x, int | np.integer) and not isinstance(x, bool)
