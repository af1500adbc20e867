"""Sudoku 4x4: the share of correct cells among the empty ones, and the share of solved puzzles.

The published figure pools the cells of 256 puzzles drawn from 500 (`numpy.random.default_rng(42)`);
all have 8 empty cells. It compares with one stored solution, although 124 of the 500 have several.
`fixed` reads digits only, so that a bracket does not shift the grid, and counts every cell of a
valid completion as correct. `lift` is the released reading: the first of five patterns, padded or
cut to 16.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from goldimask.errors import GoldimaskError
from goldimask.eval import answers
from goldimask.eval.tasks.base import Item, Protocol, Task, Verdict, each
from goldimask.eval.testsets import load_rows, pick

INSTRUCTION = """
Please solve the following 4x4 Sudoku puzzle. The puzzle is provided as a 16-character string \
reading left-to-right, top-to-bottom, where '0' represents empty cells.

Rules:
- Fill empty cells with digits 1-4
- Each row must contain digits 1-4 exactly once
- Each column must contain digits 1-4 exactly once
- Each 2x2 box must contain digits 1-4 exactly once

Important: Your solution must be a COMPLETE 16-character string with only the digits 1-4, \
representing your final solved grid.

Respond in this exact format:
<reasoning>
Your step-by-step solving process
</reasoning>
<answer>
[16-character solution string with no spaces or separators]
</answer>
"""
CELLS = 16
_RUN = re.compile(r"(?<!\d)\d{16}(?!\d)", re.ASCII)
_LIFT_RUN = re.compile(r"\b(\d{16})\b")
_DIGITS_THEN_FENCE = re.compile(r"([\d\s]*)```")
_FENCE = re.compile(r"(?=```)")
_PUZZLE = re.compile(r"([0-9]{16})")
_LIFT_ENDS = ("<|eot_id|>", "<|endoftext|>")


def sudoku(protocol: Protocol = "fixed", subset: int = 256) -> Task:
    """4x4 Sudoku, the published 256 of 500 puzzles; `subset=0` takes all rows as they are."""

    def load(source: Path | str | None) -> list[Item]:
        found = rows(source)
        chosen = range(len(found))
        if 0 < subset < len(found):
            chosen = np.random.default_rng(42).choice(len(found), subset, replace=False).tolist()
        return [item_of(found[i], i) for i in chosen]

    return Task(
        name="sudoku",
        version="1",
        load=load,
        extract=extract_fixed if protocol == "fixed" else extract_lift,
        judge=each(check_fixed if protocol == "fixed" else check_lift),
        length=128,
        lengths=(128, 256, 512),
        prefill="<reasoning>",
        protocol=protocol,
        metric="cell accuracy",
        raw=True,
        row=item_of,
        stored=stored,
        credits=lambda item: len(empty_cells(item)),
    )


def rows(source: Path | str | None) -> list[Mapping[str, Any]]:
    return load_rows(
        source,
        task="sudoku",
        names=("sudoku", "sudoku4x4", "4x4_test_sudoku"),
        hub=None,
        how="take dataset/4x4_test_sudoku.csv from dllm-reasoning/d1 or divelab/LIFT",
    )


def item_of(row: Mapping[str, Any], index: int) -> Item:
    puzzle = str(pick(row, "puzzle", "Puzzle", task="sudoku")).zfill(CELLS)
    solution = str(pick(row, "solution", "Solution", task="sudoku"))
    return make_item(str(row.get("id", f"sudoku/{index}")), puzzle, solution)


def make_item(item_id: str, puzzle: str, solution: str) -> Item:
    if not (_PUZZLE.fullmatch(puzzle) and _PUZZLE.fullmatch(solution)):
        raise GoldimaskError(
            f"task 'sudoku': item {item_id} needs a puzzle and a solution of 16 digits each"
        )
    question = f"Solve the following Sudoku puzzle: {puzzle}\n"
    gold = {"puzzle": puzzle, "solution": solution}
    return Item(item_id, f"{INSTRUCTION}\n\n{question}", gold, {"question": question})


def stored(row: Mapping[str, Any], index: int) -> Item | None:
    puzzle = _PUZZLE.search(str(row.get("question", "")))
    solution = str(row.get("ground_truth", ""))
    return make_item(str(index), puzzle[1], solution) if puzzle and len(solution) == 16 else None


def empty_cells(item: Item) -> list[int]:
    return [i for i, cell in enumerate(item.gold["puzzle"]) if cell == "0"]


def extract_fixed(text: str) -> str | None:
    """Digits of the answer block (a run of 16 first), else the last run of 16 anywhere."""
    block = answers.answer_block(text, closed=False)
    for part in (block, text) if block else (text,):
        runs = _RUN.findall(part)
        if runs:
            return runs[-1]
        digits = "".join(c for c in part[:2000] if c in "01234")
        if part is block and digits:
            return digits[:CELLS].ljust(CELLS, "0")
    return None


def check_fixed(item: Item, answer: str) -> Verdict:
    cells, gold = empty_cells(item), item.gold
    solved = completes(gold["puzzle"], answer)
    hits = len(cells) if solved else sum(answer[i] == gold["solution"][i] for i in cells)
    return Verdict(solved, "" if solved else "wrong cells", hits, len(cells))


def completes(puzzle: str, grid: str) -> bool:
    """Is the grid a valid completion of the puzzle?"""
    if len(grid) != CELLS or any(p not in ("0", g) for p, g in zip(puzzle, grid, strict=True)):
        return False
    row_of = [[4 * r + c for c in range(4)] for r in range(4)]
    column_of = [[4 * r + c for r in range(4)] for c in range(4)]
    box_of = [[b + o for o in (0, 1, 4, 5)] for b in (0, 2, 8, 10)]
    return all({grid[i] for i in unit} == set("1234") for unit in row_of + column_of + box_of)


def extract_lift(text: str) -> str | None:
    for pattern in (lift_fenced, lift_block, lift_after, lift_before, lift_anywhere):
        found = (pattern(text) or "").strip()
        if found:
            found = re.sub(r"\s", "", found)
            return found[:CELLS].ljust(CELLS, "0")
    return None


def lift_fenced(text: str) -> str | None:
    """`<answer>.*?```\\s*([\\d\\s]+)````: the first fence holding nothing but digits and space."""
    start = text.find("<answer>")
    if start < 0:
        return None
    for fence in _FENCE.finditer(text, start + len("<answer>")):
        match = _DIGITS_THEN_FENCE.match(text, fence.start() + 3)
        if match and match[1]:
            return match[1]
    return None


def lift_block(text: str) -> str | None:
    """`<answer>(.*?)(?:eot|endoftext|</answer>)`."""
    start = text.find("<answer>")
    if start < 0:
        return None
    start += len("<answer>")
    ends = [e for t in (*_LIFT_ENDS, "</answer>") if (e := text.find(t, start)) >= 0]
    return text[start : min(ends)] if ends else None


def lift_after(text: str) -> str | None:
    """`</answer>\\s*(.*?)(?:eot|endoftext|$)`."""
    start = text.find("</answer>")
    if start < 0:
        return None
    start += len("</answer>")
    ends = [e for t in _LIFT_ENDS if (e := text.find(t, start)) >= 0]
    return text[start : min(ends, default=len(text))]


def lift_before(text: str) -> str | None:
    """`.*?(\\d{16})\\s*</answer>`: 16 digits right before the first closing tag that has them."""
    at = text.find("</answer>")
    while at >= 0:
        end = at
        while end > 0 and text[end - 1].isspace():
            end -= 1
        digits = text[max(0, end - CELLS) : end]
        if len(digits) == CELLS and digits.isdecimal():
            return digits
        at = text.find("</answer>", at + 1)
    return None


def lift_anywhere(text: str) -> str | None:
    match = _LIFT_RUN.search(text)
    return match[1] if match else None


def check_lift(item: Item, answer: str) -> Verdict:
    cells, solution = empty_cells(item), item.gold["solution"]
    hits = sum(answer[i] == solution[i] for i in cells)
    solved = hits == len(cells)
    return Verdict(solved, "" if solved else "wrong cells", hits, len(cells))
