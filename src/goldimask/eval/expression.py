"""Arithmetic expressions of the Countdown game, without `eval`.

    expression := term (('+' | '-') term)*        numbers are integers, values exact rationals
    term       := factor (('*' | '/') factor)*
    factor     := ('+' | '-') factor | number | '(' expression ')'

`rational` follows this grammar (two stacks, no recursion). `lift_value` gives the value the
released scorer computes with Python's own arithmetic, `**`, `//` and decimals included, by walking
the syntax tree; powers that would not fit into a second count as infinity.
"""

from __future__ import annotations

import ast
import re
from fractions import Fraction

MAX_CHARS = 1000
_TOKEN = re.compile(r"\s*(?:(\d+)|([-+*/()]))")
_LATEX = (
    ("\\left", ""),
    ("\\right", ""),
    ("\\div", "/"),
    ("\\times", "*"),
    ("\\cdot", "*"),
    ("\\ast", "*"),
    ("×", "*"),
    ("÷", "/"),
    ("·", "*"),
    ("−", "-"),
    ("–", "-"),
    ("∗", "*"),
    ("⁄", "/"),
    ("[", "("),
    ("]", ")"),
)
_FRACTION = re.compile(r"\\[dt]?frac\s{0,4}\{([^{}]{1,200})\}\s{0,4}\{([^{}]{1,200})\}")
_RANK = {"+": 1, "-": 1, "*": 2, "/": 2, "neg": 3, "pos": 3}


def from_latex(text: str) -> str:
    """LaTeX and Unicode operators as + - * / ( )."""
    for _ in range(8):  # fractions in fractions, innermost first
        text, count = _FRACTION.subn(r"((\1)/(\2))", text)
        if not count:
            break
    for old, new in _LATEX:
        text = text.replace(old, new)
    return text.replace("{", "(").replace("}", ")").replace("\\,", " ").replace("$", "")


def rational(text: str) -> tuple[Fraction, list[int]] | None:
    """Value and integers used; None when it is not an expression of the grammar or divides by 0."""
    if len(text) > MAX_CHARS:
        return None
    values: list[Fraction] = []
    operators: list[str] = []
    used: list[int] = []
    at, operand_next = 0, True
    text = text.strip()
    try:
        while at < len(text):
            match = _TOKEN.match(text, at)
            if match is None:
                return None
            at = match.end()
            number, sign = match.groups()
            if number is not None:
                if not operand_next or len(number) > 50:
                    return None
                used.append(int(number))
                values.append(Fraction(used[-1]))
                operand_next = False
            elif sign == "(":
                if not operand_next:
                    return None
                operators.append("(")
            elif sign == ")":
                if operand_next or not _close(values, operators):
                    return None
            elif operand_next:
                if sign not in "+-":
                    return None
                operators.append("neg" if sign == "-" else "pos")
            else:
                while operators and operators[-1] != "(" and _RANK[operators[-1]] >= _RANK[sign]:
                    _apply(values, operators.pop())
                operators.append(sign)
                operand_next = True
        if operand_next or "(" in operators:
            return None
        while operators:
            _apply(values, operators.pop())
    except ZeroDivisionError:
        return None
    return values[0], used


def _close(values: list[Fraction], operators: list[str]) -> bool:
    """Work off everything back to the matching parenthesis."""
    while operators and operators[-1] != "(":
        _apply(values, operators.pop())
    return bool(operators) and operators.pop() == "("


def _apply(values: list[Fraction], operator: str) -> None:
    right = values.pop()
    if operator == "neg":
        values.append(-right)
    elif operator == "pos":
        values.append(right)
    else:
        left = values.pop()
        values.append(
            left + right
            if operator == "+"
            else left - right
            if operator == "-"
            else left * right
            if operator == "*"
            else left / right
        )


def lift_value(text: str) -> float:
    """What Python makes of the text; infinity when it makes nothing of it."""
    if len(text) > MAX_CHARS or not re.fullmatch(r"[\d+\-*/().\s]+\n?", text):
        return float("inf")
    try:
        return float(_walk(ast.parse(text.strip(), mode="eval").body))
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError, TypeError):
        return float("inf")


def _walk(node: ast.AST) -> float:
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return node.value  # type: ignore[return-value]
    if isinstance(node, ast.UnaryOp):
        value = _walk(node.operand)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp):
        left, right = _walk(node.left), _walk(node.right)
        if isinstance(node.op, ast.Add):
            return left + right
        if isinstance(node.op, ast.Sub):
            return left - right
        if isinstance(node.op, ast.Mult):
            return left * right
        if isinstance(node.op, ast.Div):
            return left / right
        if isinstance(node.op, ast.FloorDiv):
            return left // right
        if isinstance(node.op, ast.Pow):
            if abs(right) > 1000 or abs(left) > 1e15:
                raise OverflowError("power out of reach")
            value = left**right
            if isinstance(value, complex):
                raise ValueError("complex power")
            return value
    raise ValueError(f"not arithmetic: {type(node).__name__}")
