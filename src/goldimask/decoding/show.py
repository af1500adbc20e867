"""A response for the terminal: every token coloured by the step that committed it."""

from __future__ import annotations

import colorsys
from collections.abc import Sequence
from typing import Protocol

from rich.text import Text

from goldimask.decoding.types import Commit

OPEN = "·"
END = "∎"  # the padding after the end, which would fill the screen in words


class Tokenizer(Protocol):
    """What a picture needs of a tokenizer."""

    def decode(self, token_ids: list[int], *, skip_special_tokens: bool) -> str | list[str]: ...


def pieces(tokenizer: Tokenizer, tokens: Sequence[int], open_: Sequence[bool]) -> list[str]:
    """The text each token adds after its predecessor; a dot where nothing is committed yet."""
    out = []
    for i, token in enumerate(tokens):
        if open_[i]:
            out.append(OPEN)
            continue
        before = [] if i == 0 or open_[i - 1] else [int(tokens[i - 1])]
        start = str(tokenizer.decode(before, skip_special_tokens=False)) if before else ""
        whole = str(tokenizer.decode([*before, int(token)], skip_special_tokens=False))
        out.append(whole[len(start) :] if whole.startswith(start) else whole)
    return out


def colour(step: int, steps: int) -> str:
    """From blue (early) over green to red (late)."""
    share = 0.0 if steps <= 1 else (step - 1) / (steps - 1)
    r, g, b = colorsys.hls_to_rgb(0.62 * (1 - share), 0.55, 0.75)
    return f"#{round(255 * r):02x}{round(255 * g):02x}{round(255 * b):02x}"


def canvas(tokenizer: Tokenizer, commits: Sequence[Commit], length: int, steps: int) -> Text:
    """The response after these commits; `steps` is where the colours end."""
    tokens, at = [0] * length, [0] * length
    for commit in commits:
        for position, token in zip(commit.positions, commit.tokens, strict=True):
            tokens[position], at[position] = token, commit.step
    text = Text()
    padding = getattr(tokenizer, "pad_token_id", None)
    shown = pieces(tokenizer, tokens, [s == 0 for s in at])
    for token, piece, step in zip(tokens, shown, at, strict=True):
        if step and padding is not None and token == padding:
            piece = END
        text.append(piece, style=colour(step, steps) if step else "dim")
    return text


def legend(steps: int) -> Text:
    """The colours of a few steps."""
    text = Text("step ")
    marks = sorted({1, *(round(1 + k * (steps - 1) / 4) for k in range(5))}) if steps else []
    for step in marks:
        text.append(f" {step} ", style=f"bold {colour(step, steps)}")
    return text
