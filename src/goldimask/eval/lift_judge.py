"""The judge of LIFT's released evaluation (after OlympiadBench), for `--protocol lift`.

    equal strings after normalisation; else both sides are cleaned, split at commas outside
    brackets, plus-minus signs expanded, and the parts paired in any order; two parts match as
      intervals (bounds equal as expressions), or
      numbers within 1e-6, *also off by a factor of 100*, or
      expressions: sympy difference below 1e-6 (numbers) or 1e-3 (after simplification), or
      equations: quotient of the two sides' differences is an integer.

Deviations: LaTeX is parsed by latex2sympy2-extended, since sympy's own parser needs an antlr
runtime that excludes math-verify's; texts above 2,000 characters count as different; and the pool's
deadline.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from goldimask.eval.equivalence import normalised

MAX_CHARS = 2000
PRECISION = 1e-6 * 1.01
_REPLACED = {
    "\\left": "",
    "\\right": "",
    "∶": ":",
    "，": ",",
    "$": "",
    "\\approx": "=",
    "\\simeq": "=",
    "\\sim": "=",
    "^\\prime": "'",
    "^{\\prime}": "'",
    "^\\circ": "",
    "%": "",
}
_EDGES = "\n$,.:;^_=+`!@#$%^&*~，。"


def lift_equal(gold: str, answer: str) -> bool:
    """The released verdict."""
    if normalised(answer) == normalised(gold):
        return True
    if len(answer) > MAX_CHARS:
        return False
    try:
        left, right = cleaned(gold), cleaned(answer)
    except ValueError:
        return False
    if left == right:
        return True
    lefts, rights = (parts(re.sub(r"[\u4e00-\u9fff]+", "", x)) for x in (left, right))
    return len(lefts) == len(rights) and paired(lefts, rights)


def paired(lefts: list[str], rights: list[str]) -> bool:
    """The released order: a cursor steps over the golds while matched ones are taken out."""
    at = -1
    while lefts:
        at = (at + 1) % len(lefts)
        match = next((x for x in rights if parts_equal(lefts[at], x)), None)
        if match is None:
            return False
        lefts.remove(lefts[at])
        rights.remove(match)
    return True


def cleaned(text: str) -> str:
    """The boxes' contents, else the dollar parts of the last line; special symbols replaced."""
    text = _contents(text)
    if "\\in " in text:
        text = text.split("\\in ")[1]
    for old, new in _REPLACED.items():
        text = text.replace(old, new)
    return re.sub(r"\\(?:mathrm|mathbf)\{~?([^}]*)\}", r"\1", text.strip(_EDGES))


def _contents(text: str) -> str:
    found = []
    for match in re.finditer(r"\\boxed{", text):
        depth, at = 1, match.end()
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        if depth:
            raise ValueError("a box that never closes")
        found.append(text[match.end() : at - 1])
    if not found:
        found = re.findall(r"\$(.*?)\$", text.strip().split("\n")[-1])
    return "".join(f"{x}," for x in found) if found else text


def parts(text: str) -> list[str]:
    """Split at commas outside of brackets; both signs of a plus-minus."""
    depth, start, found = 0, 0, []
    for i, char in enumerate(text):
        if char in "([":
            depth += 1
        elif char in ")]":
            depth -= 1
        elif char == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    if start < len(text):
        found.append(text[start:].strip())
    signs = [(x.replace("\\pm", "+"), x.replace("\\pm", "-")) for x in found]
    return [y for x in signs for y in (x if x[0] != x[1] else x[:1])]


def parts_equal(gold: str, answer: str) -> bool:
    """Two parts, tried as intervals, numbers, expressions and equations in this order."""
    if gold == answer and gold:
        return True
    if is_interval(gold) and is_interval(answer):
        try:
            if intervals_equal(gold, answer):
                return True
        except Exception:
            return False
    both_equations = "=" in gold and "=" in answer
    tests: list[Callable[[str, str], bool]] = [numbers_equal]
    tests += [] if both_equations else [expressions_equal]
    return any(_quietly(test, gold, answer) for test in [*tests, equations_equal])


def _quietly(test: Callable[[str, str], bool], gold: str, answer: str) -> bool:
    """As released, a test that cannot be carried out says no. A deadline is not an Exception."""
    try:
        return bool(test(gold, answer))
    except Exception:
        return False


def is_interval(text: str) -> bool:
    return text.startswith(("(", "[")) and text.endswith((")", "]"))


def intervals_equal(gold: str, answer: str) -> bool:
    if gold == answer:
        return True
    lefts, rights = gold.split("\\cup"), answer.split("\\cup")
    return len(lefts) == len(rights) and all(
        a[0] == b[0]
        and a[-1] == b[-1]
        and all(
            expressions_equal(x, y)
            for x, y in zip(a.strip("[]()").split(","), b.strip("[]()").split(","), strict=False)
        )
        for a, b in zip(lefts, rights, strict=True)
    )


def numbers_equal(gold: str, answer: str) -> bool:
    reference, found = float(gold), float(answer)
    return any(abs(x - found) <= PRECISION for x in (reference / 100, reference, reference * 100))


def expressions_equal(gold: str, answer: str) -> bool:
    import sympy

    left, right = (latex(x.split("=")[1] if "=" in x else x) for x in (gold, answer))
    if left == right:
        return True
    left, right = (x.subs(sympy.pi, math.pi) for x in (left, right))
    if left.has(sympy.Symbol) != right.has(sympy.Symbol):
        return False
    if not left.has(sympy.Symbol):
        return (
            _small_powers(left)
            and _small_powers(right)
            and (bool(abs(left.evalf() - right.evalf()) <= PRECISION))
        )
    return bool(abs(sympy.simplify(left - right).evalf()) < 1e-3)


def _small_powers(value: Any) -> bool:
    """A power of numbers is only computed up to an exponent of 1,000."""
    import sympy

    if not isinstance(value, sympy.Pow):
        return True
    base, exponent = value.as_base_exp()
    return bool(base.is_number and exponent.is_number and abs(exponent.evalf()) <= 1000)


def equations_equal(gold: str, answer: str) -> bool:
    import sympy

    def difference(text: str) -> Any:
        left, right = text.split("=")
        return sympy.simplify(latex(left) - latex(right))

    left, right = difference(gold), difference(answer)
    quotients = (sympy.simplify(left / right), sympy.simplify(right / left))
    return any(q.is_Integer and q != 0 for q in quotients)


@lru_cache(maxsize=4096)
def latex(text: str) -> Any:
    import sympy
    from latex2sympy2_extended import latex2sympy

    return sympy.sympify(latex2sympy(text.strip()))
