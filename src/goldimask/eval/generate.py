"""Where the runner's texts come from: `goldimask.decode`, or any callable of the same shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Generated:
    """What the runner needs of a decoded response."""

    text: str
    steps: int


class Generate(Protocol):
    """Turns user prompts into responses that begin after `prefill`."""

    def __call__(
        self, prompts: Sequence[str], *, prefill: str, length: int, seed: int, raw: bool
    ) -> list[Generated]: ...


def backbone_generate(
    backbone: Any, decoder: str, options: Mapping[str, Any], batch_size: int
) -> Generate:
    """Decode through `goldimask.decode`; a raw text keeps its special tokens."""
    from goldimask.decode import decode

    def generate(
        prompts: Sequence[str], *, prefill: str, length: int, seed: int, raw: bool
    ) -> list[Generated]:
        decoded = decode(
            backbone,
            list(prompts),
            decoder=decoder,
            length=length,
            batch_size=batch_size,
            prefill=prefill,
            seed=seed,
            **options,
        )
        if raw:
            keep = backbone.tokenizer.decode
            return [Generated(keep(d.tokens, skip_special_tokens=False), d.steps) for d in decoded]
        return [Generated(d.text, d.steps) for d in decoded]

    return generate
