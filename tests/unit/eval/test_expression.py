"""The Countdown parser against Python's own arithmetic on rationals."""

from __future__ import annotations

import ast
import itertools
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldimask.eval.expression import from_latex, lift_value, rational
from goldimask.eval.tasks import get_task


def oracle(text: str) -> Fraction | None:
    """The syntax tree, walked with rationals; the grammar's own limits added."""

    def walk(node: ast.AST) -> Fraction:
        if isinstance(node, ast.Constant) and type(node.value) is int:
            return Fraction(node.value)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
            value = walk(node.operand)
            return -value if isinstance(node.op, ast.USub) else value
        if isinstance(node, ast.BinOp):
            left, right = walk(node.left), walk(node.right)
            if isinstance(node.op, ast.Add):
                return left + right
            if isinstance(node.op, ast.Sub):
                return left - right
            if isinstance(node.op, ast.Mult):
                return left * right
            if isinstance(node.op, ast.Div):
                return left / right
        raise ValueError

    try:
        return walk(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, ValueError, ZeroDivisionError):
        return None


tokens = st.lists(st.sampled_from(["1", "20", "3", "+", "-", "*", "/", "(", ")", " "]), max_size=14)


@settings(max_examples=500, deadline=None)
@given(tokens.map("".join))
def test_rational_is_the_oracle(text):
    found = rational(text)
    assert (None if found is None else found[0]) == oracle(text)


expressions = st.recursive(
    st.integers(0, 99).map(str),
    lambda inner: st.tuples(inner, st.sampled_from("+-*/"), inner).map(
        lambda x: f"({' '.join(x)})"
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(expressions)
def test_well_formed_expressions(text):
    found = rational(text)
    assert (None if found is None else found[0]) == oracle(text)
    if found is not None:
        assert lift_value(text) == pytest.approx(float(found[0]))


@pytest.mark.parametrize(
    "text",
    ["", "1 2", "1+", "(1", "1)", "2**3", "2//3", "1.5", "a", "1/0", "()", "1(2)", "1/(2-2)"],
)
def test_what_is_not_an_expression(text):
    assert rational(text) is None


@pytest.mark.parametrize(
    "text", ["(" * 5000 + "1", "-" * 5000 + "1", "9" * 5000, "1+" * 3000 + "1"]
)
def test_long_expressions_are_refused(text):
    assert rational(text) is None and lift_value(text) == float("inf")


def test_lift_value_has_a_power_guard():
    assert lift_value("2**10") == 1024 and lift_value("7//2") == 3
    for text in ("9**9**9", "9**9999999", "(-8)**(1/3)", "__import__", "1e5"):
        assert lift_value(text) == float("inf")


def test_latex():
    assert rational(from_latex("\\frac{8}{4} \\times (3 \\cdot 2) \\div 1"))[0] == 12  # type: ignore[index]
    assert rational(from_latex("\\left( 3 − 1 \\right) × 2"))[0] == 4  # type: ignore[index]


def solutions(numbers: tuple[int, ...], target: int) -> list[str]:
    """Brute force: every order, every pair of operators, both groupings."""
    found = []
    for a, b, c in itertools.permutations(numbers):
        for p, q in itertools.product("+-*/", repeat=2):
            for text in (f"({a} {p} {b}) {q} {c}", f"{a} {p} ({b} {q} {c})"):
                if oracle(text) == target:
                    found.append(text)
    return found


@pytest.mark.parametrize("protocol", ["fixed", "lift"])
def test_brute_force_solutions_are_right_and_others_wrong(protocol):
    task = get_task("countdown", protocol=protocol)
    assert task.stored is not None
    for numbers, target in (
        ((30, 100, 93), 23),
        ((90, 43, 90), 43),
        ((6, 3, 8), 16),
        ((82, 35, 4), 58),
    ):
        item = task.stored({"ground_truth": [list(numbers), target]}, 0)
        assert item is not None
        found = solutions(numbers, target)
        assert found
        for text in found:
            for shown in (text, f"{text} = {target}", text.replace("*", "\\times")):
                answer = task.extract(f"so</reasoning><answer>\\boxed{{{shown}}}</answer>")
                assert task.check(item, answer).correct, shown
        a, b, c = numbers
        for text in (f"{target}", f"{a} + {b} + {c} + 0", f"{a} + {b}", f"{found[0]} + 1", "1/0"):
            assert not task.check(item, task.extract(f"\\boxed{{{text}}}")).correct, text


def test_fixed_refuses_powers_and_floor_division():
    task = get_task("countdown")
    lift = get_task("countdown", protocol="lift")
    assert task.stored is not None
    item = task.stored({"ground_truth": [[2, 3, 1], 8]}, 0)
    assert item is not None
    text = "\\boxed{2**3*1}"
    assert lift.check(item, lift.extract(text)).correct
    assert not task.check(item, task.extract(text)).correct
