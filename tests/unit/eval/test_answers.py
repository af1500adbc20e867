"""Extraction against the regular expressions it replaces, and on texts meant to break parsers."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from goldimask.eval import answers
from goldimask.eval.tasks import get_task
from goldimask.eval.tasks import sudoku as sudoku_task
from goldimask.eval.tasks.countdown import lift_left_side

pieces = st.lists(
    st.sampled_from(
        "\\boxed{|\\boxed |\\fbox{|}|{|\n| |<answer>|</answer>|```|12|3.5|-7|=|+|(|1,234|"
        "1234123412341234|x|$|.|\t|4|٣|...|\\frac|5 = 7|END|EOT".replace("EOT", "<-eot_id->")
        .replace("END", "<-endoftext->")
        .split("|")
    ),
    max_size=24,
).map(lambda parts: "".join(parts).replace("<-", "<|").replace("->", "|>"))


@settings(max_examples=150, deadline=None)
@given(pieces)
def test_flat_boxes_are_the_expression(text):
    assert list(answers.lift_flat_boxes(text)) == re.findall(r"\\boxed{(.*?)}", text)


@settings(max_examples=150, deadline=None)
@given(pieces)
def test_first_block_is_the_expression(text):
    match = re.search(r"<answer>(.*?)</answer>", text, re.DOTALL)
    assert answers.lift_first_block(text) == (match.group(1).strip() if match else None)


@settings(max_examples=150, deadline=None)
@given(pieces)
def test_left_side_is_the_expression(text):
    match = re.search(r"([0-9+\-*/() ]+)=[0-9. ]+", text)
    assert lift_left_side(text) == (match.group(1).strip() if match else None)


PATTERNS = (
    (sudoku_task.lift_fenced, r"<answer>.*?```\s*([\d\s]+)```"),
    (sudoku_task.lift_block, r"<answer>(.*?)(?:<\|eot_id\|>|<\|endoftext\|>|</answer>)"),
    (sudoku_task.lift_after, r"</answer>\s*(.*?)(?:<\|eot_id\|>|<\|endoftext\|>|$)"),
    (sudoku_task.lift_before, r".*?(\d{16})\s*</answer>"),
    (sudoku_task.lift_anywhere, r"\b(\d{16})\b"),
)


@settings(max_examples=150, deadline=None)
@given(pieces)
@pytest.mark.parametrize(("scan", "pattern"), PATTERNS)
def test_sudoku_scans_are_the_expressions(scan, pattern, text):
    match = re.search(pattern, text, re.DOTALL)
    expected = match.group(1).strip() if match else ""
    assert (scan(text) or "").strip() == expected


def last_box_by_hand(text: str) -> str | None:
    """The released extraction, spelled out with a counter."""
    if "\\boxed " in text:
        return text.split("\\boxed ")[-1].split("$")[0]
    start = max(text.rfind("\\boxed"), -1)
    if start < 0:
        start = text.rfind("\\fbox")
        if start < 0:
            return text
    depth, seen = 0, False
    for i in range(start, len(text)):
        if text[i] == "{":
            depth, seen = depth + 1, True
        if text[i] == "}":
            depth -= 1
            if depth == 0:
                box = text[start : i + 1]
                return box[7:-1] if box.startswith("\\boxed{") and seen else box
    return None


@settings(max_examples=150, deadline=None)
@given(pieces)
def test_last_box_is_the_released_one(text):
    assert answers.lift_last_box(text) == last_box_by_hand(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\boxed{5}", "5"),
        ("\\boxed{1} then \\boxed{2}", "2"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed{a \\boxed{b} c}", "a \\boxed{b} c"),
        ("\\boxed{\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\boxed{7} and an open \\boxed{8", "7"),
        ("\\boxed{...} \\boxed{}", None),
        ("\\boxed{3<|eot_id|>}", "3"),
        ("\\boxed {9}", "9"),
        ("\\boxed 42 units", "42"),
        ("no box", None),
    ],
)
def test_last_box(text, expected):
    assert answers.last_box(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("-1,234.50 of 7", ["-1234.50", "7"]),
        ("12,34", ["12", "34"]),
        ("1,234,567", ["1234567"]),
        ("a-5", ["5"]),
        ("3 - 5", ["3", "5"]),
        (".5", [".5"]),
        ("none", []),
    ],
)
def test_numbers(text, expected):
    assert answers.numbers(text) == expected


def test_plain_makes_unicode_and_latex_numbers_readable():
    assert answers.plain("\u2212١٢٣") == "-123"
    assert answers.plain("\\$1{,}000\\,000") == "1,000000"
    assert answers.plain("１２") == "12"


def test_answer_block():
    assert answers.answer_block("<answer>1</answer> <answer> 2 </answer>") == "2"
    assert answers.answer_block("<answer>1</answer> <answer>2") == "1"
    assert answers.answer_block("<answer>1<|eot_id|>junk", closed=False) == "1"
    assert answers.answer_block("<answer>1") is None


BIG = 100_000
BOMBS = {
    "brackets": "(" * BIG,
    "braces": "\\boxed{" * (BIG // 7),
    "nested boxes": "\\boxed{" * 12_500 + "1" + "}" * 12_500,
    "open tags": "<answer>" * (BIG // 8),
    "close tags": "</answer>" * (BIG // 9),
    "spaces in a fence": "<answer>```" + " " * BIG,
    "spaces before a tag": "1" * 16 + " " * BIG + "x</answer>",
    "digits": "\\boxed{" + "9" * BIG + "}",
    "digits in tags": "<answer>" + "1" * BIG + "</answer>",
    "equals": "1=" * (BIG // 2),
    "fences": "```python\n" * (BIG // 10),
    "backticks": "<answer>" + "`" * BIG,
    "minus": "\\boxed{" + "-" * BIG + "1}",
    "commas": "\\boxed{" + "1," * (BIG // 2) + "}",
    "fractions": "\\boxed{" + "\\frac{" * (BIG // 6) + "}",
    "unicode": "\\boxed{" + "٣" * BIG + "}",
    "surrogate": "\\boxed{\ud800}",
    "newlines": "\\boxed{\n" * (BIG // 8),
    "dollars": "$" * BIG,
    "spaced boxes": "\\boxed " * (BIG // 7),
    "text": "\\text{" * (BIG // 6),
    "defs": "```python\n" + "def " * (BIG // 4),
}


@pytest.mark.parametrize("protocol", ["fixed", "lift"])
@pytest.mark.parametrize("name", ["gsm8k", "countdown", "sudoku", "math500", "humaneval", "mbpp"])
def test_bombs_are_read_in_linear_time(name, protocol):
    """Quadratic scans would take minutes here."""
    task = get_task(name, protocol=protocol)
    for text in BOMBS.values():
        for version in (text, f"x</reasoning><answer>{text}", f"{text}</answer>"):
            found = task.extract(version)
            assert found is None or isinstance(found, str)


CHEAP = {
    "gsm8k": {"question": "q", "ground_truth": 18.0},
    "countdown": {"question": "Numbers: [1, 2, 3]\nTarget: 6", "ground_truth": [[1, 2, 3], 6]},
    "sudoku": {
        "question": "Sudoku puzzle: 3102200002100320",
        "ground_truth": "3142243142131324",
    },
}


@pytest.mark.parametrize("protocol", ["fixed", "lift"])
@pytest.mark.parametrize("name", list(CHEAP))
def test_bombs_are_judged_and_never_right(name, protocol):
    task = get_task(name, protocol=protocol)
    assert task.stored is not None
    item = task.stored(CHEAP[name], 0)
    assert item is not None
    for text in BOMBS.values():
        assert not task.check(item, task.extract(text)).correct


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200), st.sampled_from(["fixed", "lift"]), st.sampled_from(list(CHEAP)))
def test_any_text_is_judged(text, protocol, name):
    task = get_task(name, protocol=protocol)
    assert task.stored is not None
    item = task.stored(CHEAP[name], 0)
    assert item is not None
    for version in (text, f"\\boxed{{{text}}}", f"<answer>{text}</answer>"):
        task.check(item, task.extract(version))
