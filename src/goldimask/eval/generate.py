"""Where the runner's texts come from: `goldimask.decode`, or any callable of the same shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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


class Stream(Protocol):
    """The same, yielding (index of the prompt, response) as responses are finished."""

    def __call__(
        self, prompts: Sequence[str], *, prefill: str, length: int, seed: int, raw: bool
    ) -> Iterator[tuple[int, Generated]]: ...


def in_batches(generate: Generate, batch_size: int) -> Stream:
    """Call a `Generate` on one batch of prompts after the other."""

    def stream(prompts: Sequence[str], **options: Any) -> Iterator[tuple[int, Generated]]:
        for start in range(0, len(prompts), batch_size):
            chunk = prompts[start : start + batch_size]
            made = generate(chunk, **options)
            for i, (_, response) in enumerate(zip(chunk, made, strict=True), start=start):
                yield i, response

    return stream


def backbone_stream(
    backbone: Any, decoder: str, options: Mapping[str, Any], batch_size: int
) -> Stream:
    """Decode all prompts in one running batch: who is done leaves, who waits takes its place.

    A raw text keeps its special tokens.
    """
    from goldimask.decoding import decode_iter, make_settings

    def stream(
        prompts: Sequence[str], *, prefill: str, length: int, seed: int, raw: bool
    ) -> Iterator[tuple[int, Generated]]:
        settings = make_settings(decoder, length=length, seed=seed, **options)
        for index, made in decode_iter(
            backbone, list(prompts), settings, batch_size=batch_size, prefill=prefill
        ):
            text = made.text
            if raw:
                text = backbone.tokenizer.decode(made.tokens, skip_special_tokens=False)
            yield index, Generated(text, made.steps)

    return stream
