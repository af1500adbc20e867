"""Are two mathematical answers the same? The `fixed` rules and the normalisation both share.

    1. equal after the usual normalisation of MATH answers (spacing, units, fractions, degrees)
    2. both plain numbers: equal as decimals, decided here
    3. math-verify: parsed and compared symbolically

Runs inside a worker of `mathpool`, which bounds time and memory; only step 3 needs that.
"""

from __future__ import annotations

import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from goldimask.eval.answers import plain

MAX_CHARS = 1000  # the longest gold of MATH has 159
_PLAIN_NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?", re.ASCII)


def fixed_equal(gold: str, answer: str) -> bool:
    """Equal by the rules above."""
    if len(answer) > MAX_CHARS:
        return False
    if normalised(gold) == normalised(answer):
        return True
    left, right = as_number(gold), as_number(answer)
    if left is not None and right is not None:
        return left == right
    from math_verify import verify

    parsed = parsed_answer(gold)
    found = parsed_answer(answer)
    if not parsed or not found:
        return False
    return bool(verify(parsed, found, timeout_seconds=None))


@lru_cache(maxsize=4096)
def parsed_answer(text: str) -> list[Any]:
    from math_verify import parse

    return parse(f"\\boxed{{{text}}}", parsing_timeout=None)  # type: ignore[arg-type]


def as_number(text: str) -> Decimal | None:
    """A plain decimal, thousands separators allowed; None for anything else."""
    text = plain(text).strip().rstrip(".")
    if not re.search(r"\d", text, re.ASCII) or not _PLAIN_NUMBER.fullmatch(text):
        return None
    return Decimal(text.replace(",", ""))


def normalised(text: str) -> str:
    """One spelling for what is usually written in several; the text itself if it is too odd."""
    try:
        return _normalise(text)
    except (IndexError, ValueError):
        return text


def _normalise(text: str) -> str:
    for old, new in (
        ("\n", ""),
        ("\\!", ""),
        ("\\\\", "\\"),
        ("tfrac", "frac"),
        ("dfrac", "frac"),
        ("\\left", ""),
        ("\\right", ""),
        ("^{\\circ}", ""),
        ("^\\circ", ""),
        ("\\$", ""),
    ):
        text = text.replace(old, new)
    if "\\text{ " in text:  # units stand on the right
        value, *units = text.split("\\text{ ")
        if len(units) != 1:
            raise ValueError("two units")
        text = value
    for old, new in (("\\%", ""), (" .", " 0."), ("{.", "{0.")):
        text = text.replace(old, new)
    if text.startswith("."):
        text = "0" + text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:  # 'k = 5'
        text = sides[1]
    text = _braced(text, "\\sqrt", arguments=1).replace(" ", "")
    text = _braced(text, "\\frac", arguments=2)
    if text == "0.5":
        return "\\frac{1}{2}"
    if re.fullmatch(r"(0|-?[1-9]\d*)/(0|-?[1-9]\d*)", text, re.ASCII):
        return "\\frac{{{}}}{{{}}}".format(*text.split("/"))
    return text


def _braced(text: str, command: str, arguments: int) -> str:
    """Put single characters that serve as arguments into braces: \\sqrt3, \\frac12, \\frac1{72}."""
    head, *parts = text.split(command)
    for part in parts:
        if arguments == 1:
            part = part if part[0] == "{" else f"{{{part[0]}}}{part[1:]}"
        elif part[0] != "{":
            if len(part) < 2:
                return text
            rest = part[1:] if part[1] == "{" else f"{{{part[1]}}}{part[2:]}"
            part = f"{{{part[0]}}}{rest}"
        head += command + part
    return head
