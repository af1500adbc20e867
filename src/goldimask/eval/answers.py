"""Reading an answer out of a generation, in time linear in its length.

Generations are untrusted text: tags may be cut off, braces unbalanced, a box may hold 100 KB. The
released parsers are regular expressions with nested repetition, quadratic or worse on such texts;
here each rule is a scan. Where a rule is the as-released one (`lift_...`) it finds the same string
as the expression it replaces, which the tests check against the expressions themselves.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

END_TOKENS = ("<|eot_id|>", "<|endoftext|>", "<|im_end|>")
OPEN, CLOSE = "<answer>", "</answer>"
_BOX = re.compile(r"\\(?:boxed|fbox)\s{0,4}\{")
_SPACED_BOX = re.compile(r"\\(?:boxed|fbox)\s{1,4}([^\s{}$\\]{1,200})")
_PLACEHOLDER = re.compile(r"[.\s…]*|\\[lc]?dots")
_NUMBER = re.compile(r"-?(?:\d{1,3}(?:,\d{3})+(?!\d)|\d+)(?:\.\d+)?|-?\.\d+", re.ASCII)


# ---------------------------------------------------------------- boxes


def boxes(text: str) -> list[tuple[int, int]]:
    """Where all closed boxes begin and end, by closing brace; escaped braces do not count."""
    starts = {m.end() - 1: m.end() for m in _BOX.finditer(text)}
    stack: list[int] = []
    found: list[tuple[int, int]] = []
    for match in re.finditer(r"\\.|[{}]", text, re.DOTALL):
        mark = match.group()
        if mark == "{":
            stack.append(match.start())
        elif mark == "}" and stack:
            opened = stack.pop()
            if opened in starts:
                found.append((starts[opened], match.start()))
    return found


def last_box(text: str) -> str | None:
    """The last closed box that holds something, the outer of nested ones; also `\\boxed 5`."""
    for start, end in reversed(boxes(text)):
        if end - start > 50 or not _PLACEHOLDER.fullmatch(text, start, end):
            return strip_tokens(text[start:end])
    spaced = None
    for match in _SPACED_BOX.finditer(text):
        spaced = match.group(1)
    return strip_tokens(spaced) if spaced else None


def answer_block(text: str, last: bool = True, closed: bool = True) -> str | None:
    """What stands between the answer tags; an unclosed block ends at an end token or the text."""
    start = text.rfind(OPEN) if last else text.find(OPEN)
    if last and start >= 0 and closed:
        end = text.rfind(CLOSE)
        start = text.rfind(OPEN, 0, end) if end >= 0 else -1
    if start < 0:
        return None
    start += len(OPEN)
    end = text.find(CLOSE, start)
    if end < 0:
        if closed:
            return None
        ends = [e for t in END_TOKENS if (e := text.find(t, start)) >= 0]
        end = min(ends, default=len(text))
    return strip_tokens(text[start:end])


def strip_tokens(text: str) -> str:
    """Without the special tokens that decoders leave in their texts."""
    for token in END_TOKENS:
        text = text.replace(token, "")
    return text.strip()


# ---------------------------------------------------------------- numbers


def plain(text: str) -> str:
    """Unicode digits and signs as ASCII, LaTeX spacing and currency signs removed."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
        text = "".join(
            str(unicodedata.decimal(c)) if not c.isascii() and c.isdecimal() else c for c in text
        )
        text = text.translate({0x2212: "-", 0x2013: "-", 0x2010: "-", 0x2011: "-"})
    for old in ("\\!", "\\,", "\\;", "\\:", "\\ ", "\\$", "$", "\\%", "{}"):
        text = text.replace(old, "")
    return text.replace("{,}", ",")


def numbers(text: str) -> list[str]:
    """Numbers in order, thousands separators removed: '-1,234.50 of 7' -> ['-1234.50', '7']."""
    found = []
    for match in _NUMBER.finditer(text):
        value, start = match.group(), match.start()
        if value.startswith("-") and start > 0 and text[start - 1].isalnum():
            value = value[1:]  # 'a-5' is a difference, not a sign
        found.append(value.replace(",", ""))
    return found


# ---------------------------------------------------------------- the as-released rules


def lift_flat_boxes(text: str) -> Iterator[str]:
    """`re.findall` of a box up to its first closing brace, on one line."""
    opening = "\\boxed{"
    at, close, line = text.find(opening), -1, -1
    while at >= 0:
        start = at + len(opening)
        if close < start:
            close = text.find("}", start)
            if close < 0:
                return
        if line < start:
            line = text.find("\n", start)
            line = len(text) if line < 0 else line
        if close < line:
            yield text[start:close]
            at = text.find(opening, close + 1)
        else:
            at = text.find(opening, at + 1)


def lift_first_block(text: str) -> str | None:
    """The first answer block that is closed, stripped."""
    start = text.find(OPEN)
    end = text.find(CLOSE, start + len(OPEN)) if start >= 0 else -1
    return text[start + len(OPEN) : end].strip() if end >= 0 else None


def lift_last_box(text: str) -> str | None:
    """The last box by counting braces; the whole text without a box; None when it never closes."""
    spaced = "\\boxed "
    if spaced in text:
        return text[text.rfind(spaced) + len(spaced) :].split("$", 1)[0]
    start = text.rfind("\\boxed")
    if start < 0:
        start = text.rfind("\\fbox")
    if start < 0:
        return text
    depth = 0
    for match in re.compile(r"[{}]").finditer(text, start):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            box = text[start : match.end()]
            opening = "\\boxed{"
            return box[len(opening) : -1] if box.startswith(opening) else box
    return None
