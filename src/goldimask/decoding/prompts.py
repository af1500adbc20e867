"""From what the caller passes as prompts to checked token ids, and to a random stream each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np

from goldimask.decoding.forward import Decodable
from goldimask.errors import GoldimaskError
from goldimask.keys import content_id

Prompt = str | Sequence[Mapping[str, str]] | Sequence[int] | np.ndarray


def render(backbone: Decodable, prompts: Sequence[Prompt], prefill: str = "") -> list[np.ndarray]:
    """Token ids per prompt (a user turn, a list of messages, or ids as they are), and prefill."""
    if isinstance(prompts, str | dict) or not isinstance(prompts, Sequence | np.ndarray):
        raise GoldimaskError(
            "prompts: expected a list of prompts (strings, message lists or token id lists); "
            "wrap a single prompt in a list"
        )
    tail = list(backbone.response_ids(prefill, turn_end=False)) if prefill else []
    return [np.asarray(_ids(backbone, p, i) + tail, dtype=np.int64) for i, p in enumerate(prompts)]


def _ids(backbone: Decodable, prompt: Prompt, index: int) -> list[int]:
    if isinstance(prompt, str):
        return list(backbone.prompt_ids(prompt))
    if isinstance(prompt, np.ndarray):
        prompt = cast("list[int]", prompt.tolist())
    if isinstance(prompt, Sequence):
        if all(isinstance(x, int) for x in prompt):
            return list(cast("Sequence[int]", prompt))
        if all(isinstance(x, Mapping) for x in prompt):
            return list(backbone.prompt_ids(cast("Sequence[Mapping[str, str]]", prompt)))
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
