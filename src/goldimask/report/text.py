"""Tokens as they can be shown: nothing invisible, nothing ambiguous, nothing that acts.

A token becomes a list of runs. A text run `["t", "apple"]` holds only characters that have a shape
of their own; everything else becomes a mark run `["m", "⏎", "newline"]` (glyph, spoken name), which
pages draw in another style, so that a literal `⏎` in the data cannot be taken for a line break.
Control, format (zero-width, right-to-left), private, unassigned and surrogate characters are shown
by their code point; bytes that are not a whole character by their value.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

Run = list[str]
MARKS = {
    "\n": ("⏎", "newline"),
    "\r": ("␍", "carriage return"),
    "\t": ("⇥", "tab"),
    " ": ("·", "space"),
    "\u00a0": ("⍽", "no-break space"),
}
HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"})
LONGEST = 200  # characters shown of one token


def runs(text: str) -> list[Run]:
    """Text and mark runs of a string; spaces between words stay text."""
    if not text:
        return [["m", "∅", "empty"]]
    out: list[Run] = []
    shown, last = text[:LONGEST], min(len(text), LONGEST) - 1
    for i, char in enumerate(shown):
        inner_space = char == " " and 0 < i < last and shown[i - 1] != " " and shown[i + 1] != " "
        if inner_space or not hidden(char):
            if out and out[-1][0] == "t":
                out[-1][1] += char
            else:
                out.append(["t", char])
        else:
            out.append(["m", *MARKS.get(char, (f"U+{ord(char):04X}", name_of(char)))])
    if len(text) > LONGEST:
        out.append(["m", "…", f"{len(text) - LONGEST} more characters"])
    return out


def hidden(char: str) -> bool:
    """Whether a character has no shape of its own, or changes that of its neighbours."""
    return unicodedata.category(char) in HIDDEN or char in ("\ufffd", "\u115f", "\u3164")


def visible(text: str) -> str:
    """A longer text with its spaces and lines; other hidden characters by their code points."""
    return "".join(c if c in "\n\t " or not hidden(c) else f"⟨U+{ord(c):04X}⟩" for c in text)


def name_of(char: str) -> str:
    return unicodedata.name(char, "").lower() or f"code point {ord(char):04X}"


def token_runs(tokenizer: Any, token: int) -> list[Run]:
    """Runs of one token id; a byte fragment of a character is shown as its bytes."""
    text = str(tokenizer.decode([token], clean_up_tokenization_spaces=False))
    if "\ufffd" in text or not text:
        piece = tokenizer.convert_ids_to_tokens(int(token))
        piece = piece if isinstance(piece, str) else ""
        data = [byte_alphabet().get(c) for c in piece]
        if data and all(b is not None for b in data):
            return [["m", f"\\x{b:02X}", f"byte {b:02X}"] for b in data]
        text = piece or text
    return runs(text)


@cache
def byte_alphabet() -> dict[str, int]:
    """Characters that byte-level tokenizers write for bytes: printable ones stand for themselves,
    the others follow from U+0100 on.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    table = {chr(b): b for b in printable}
    return table | {chr(0x100 + i): b for i, b in enumerate(others)}


def token_table(
    tokenizer: Any, ids: Sequence[int], special: Iterable[int] | None = None
) -> dict[str, Any]:
    """`{"vocab": [{"id", "runs", "special"?}], "index": [...]}`: each distinct token once."""
    marked = frozenset(tokenizer.all_special_ids if special is None else special)
    place: dict[int, int] = {}
    for token in ids:
        place.setdefault(int(token), len(place))
    vocab = []
    for token in place:
        entry: dict[str, Any] = {"id": token, "runs": token_runs(tokenizer, token)}
        if token in marked:
            entry["special"] = True
        vocab.append(entry)
    return {"vocab": vocab, "index": [place[int(token)] for token in ids]}


def plain(token: Sequence[Run]) -> str:
    """Runs as one string, for terminals and tests."""
    return "".join(run[1] for run in token)
