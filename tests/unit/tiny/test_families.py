"""The generated problems: right, varied, disjoint, and the same everywhere."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytest

from goldimask.errors import GoldimaskError
from goldimask.tiny.arithmetic import LIMIT
from goldimask.tiny.corpora import corpus, mixed
from goldimask.tiny.families import PROBLEM_FAMILIES, test_set
from goldimask.tiny.problem import Split, is_test
from goldimask.tiny.sudoku import fits, grids

NAMES = list(PROBLEM_FAMILIES)


def draws(name: str, split: str, n: int = 200, seed: int = 3):
    task = PROBLEM_FAMILIES[name]
    return [task.problem(seed, i, split) for i in range(n)]


@pytest.mark.parametrize("name", NAMES)
def test_train_and_test_are_disjoint_over_many_seeds(name):
    train = {
        p.key
        for seed, split in product(range(3), ("pretrain", "sft"))
        for p in draws(name, split, 250, seed)
    }
    test = {p.key for seed in range(3) for p in draws(name, "test", 250, seed)}
    assert len(test) > 300 and len(train) > 300
    assert not train & test
    assert all(is_test(name, key) for key in test)
    assert not any(is_test(name, key) for key in train)


@pytest.mark.parametrize("name", NAMES)
def test_prompts_of_test_problems_never_occur_in_training(name):
    train = {p.prompt for split in ("pretrain", "sft") for p in draws(name, split, 300)}
    assert not train & {p.prompt for p in draws(name, "test", 300)}


@pytest.mark.parametrize("name", NAMES)
def test_the_split_does_not_depend_on_wording(name):
    """Same content in other words: same key, so the same side."""
    from goldimask.tiny.problem import Level

    task = PROBLEM_FAMILIES[name]
    for seed in range(20):
        keys = {
            task.draft(np.random.Generator(np.random.Philox(seed)), Level(True, *styles)).content
            for styles in product((0, 1), (0, 1))
        }
        assert len(keys) == 1


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_problems_and_longer_lists_extend_shorter_ones(name):
    task = PROBLEM_FAMILIES[name]
    first, again = task.problems(30, 5), task.problems(60, 5)
    assert first == again[:30]
    assert first != task.problems(30, 6)
    assert len({p.key for p in again}) == 60
    assert first == test_set(name, 30, 5)


@pytest.mark.parametrize("name", NAMES)
def test_the_gold_response_passes_its_own_check(name):
    task = PROBLEM_FAMILIES[name]
    for split in (Split.PRETRAIN, Split.SFT, Split.TEST):
        for p in draws(name, split, 40):
            assert task.extract(p.response) == p.answer
            assert task.check(p, task.extract(p.response))
            assert not task.check(p, None) and not task.check(p, p.answer + " 1")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer> 4 </answer>", "4"),
        ("x <answer>\n1  2\n</answer> <answer> 9 </answer>", "1 2"),
        ("<answer> </answer>", None),
        ("<answer> 4", None),
        ("", None),
    ],
)
def test_extract(text, answer):
    assert PROBLEM_FAMILIES["chain"].extract(text) == answer


@pytest.mark.parametrize("split", ["pretrain", "test"])
def test_chain_lines_follow_from_each_other(split):
    pattern = re.compile(r"\w+,? ([+-]) (\d+) (?:=|makes) (\d+)")
    for p in draws("chain", split, 100):
        start, *steps = p.key.split()
        value = int(start)
        for step, line in zip(steps, p.response.splitlines()[1:-2], strict=True):
            sign, amount, result = pattern.match(line).groups()
            assert sign + amount == step
            value = operate(sign, value, int(amount))
            assert value == int(result) and 0 <= value < LIMIT
        assert p.answer == str(value)


def operate(symbol: str, a: int, b: int) -> int:
    return {"+": a + b, "-": a - b, "max": max(a, b), "min": min(a, b)}[symbol]


@pytest.mark.parametrize("split", ["pretrain", "test"])
def test_program_answers_by_running_the_prompt(split):
    for p in draws("program", split, 100):
        text = p.prompt.removeprefix("run this: ")
        values: dict[str, int] = {}
        *statements, question = text.split("; ")
        for statement in statements:
            target, source = statement.split(" = ")
            words = source.split()
            numbers = [values[w] if w in values else int(w) for w in words[::2]]
            values[target] = numbers[0] if len(words) == 1 else operate(words[1], *numbers)
        assert p.answer == str(values[question.removeprefix("print ").removesuffix("?")])
        for target, value in values.items():  # every line of the trace states its value
            assert re.search(rf"\b{target}\b.*\b{value}\b", p.response)


@pytest.mark.parametrize("split", ["pretrain", "test"])
def test_story_answers_by_acting_out_the_prompt(split):
    for p in draws("story", split, 100):
        have = {n: int(x) for n, x in re.findall(r"(\w+) has (\d+)", p.prompt)}
        one, other = have
        for who, verb, amount in re.findall(r"day (\w+) (buys|loses|gives) (\d+)", p.prompt):
            have[who] += int(amount) if verb == "buys" else -int(amount)
            if verb == "gives":
                have[other if who == one else one] += int(amount)
        asked = re.search(r"(\w+)(?: in the end)?\?$", p.prompt)[1]
        assert p.answer == str(have[asked])
        assert all(0 <= int(n) < LIMIT for n in re.findall(r"\d+", p.response))
        last = re.findall(r"(\d+) (?:and )?(\d+)\.?\n(?:end|in)", p.response)[0]
        assert last == tuple(map(str, have.values()))


@pytest.mark.parametrize("split", ["pretrain", "test"])
def test_sort_answers(split):
    for p in draws("sort", split, 100):
        numbers = [int(n) for n in re.findall(r"\d+", p.prompt)]
        down = " down" in p.prompt
        assert p.answer == " ".join(map(str, sorted(numbers, reverse=down)))


def test_there_are_288_grids_and_all_are_valid():
    assert grids().shape == (288, 16) and len(np.unique(grids(), axis=0)) == 288
    for grid in grids().reshape(-1, 4, 4):
        boxes = grid.reshape(2, 2, 2, 2).swapaxes(1, 2).reshape(4, 4)
        for part in (*grid, *grid.T, *boxes):
            assert sorted(part) == [1, 2, 3, 4]
    assert not fits((1, 2, 3, 4), (2, 1, 4, 3)) and fits((1, 2, 3, 4), (3, 4, 1, 2))


def test_sudoku_puzzles_have_one_solution():
    for p in draws("sudoku", "test", 60):
        cells = np.array([0 if c == "_" else int(c) for c in p.key.split()])
        matching = grids()[(grids()[:, cells > 0] == cells[cells > 0]).all(1)]
        assert len(matching) == 1
        assert p.answer.replace(" / ", " ").split() == list(map(str, matching[0]))
        assert 6 <= (cells == 0).sum() <= 8


def test_corpus_rows_take_the_families_in_turn():
    rows = corpus("tiny-sft", 23, seed=1)
    assert [r["task"] for r in rows] == [NAMES[i % len(NAMES)] for i in range(23)]
    assert rows == corpus("tiny-sft", 40, seed=1)[:23]
    assert set(rows[0]) == {"prompt", "response", "answer", "task"}
    assert rows != corpus("tiny-sft", 23, seed=2)
    assert corpus("tiny-sft", 0) == []
    assert len({r["prompt"] for r in corpus()}) == len(corpus()) == 1000


def test_corpora_shift_style_and_difficulty():
    lengths = {
        split: np.mean([len(r["response"].split()) for r in mixed(split, 200, 0)])
        for split in (Split.PRETRAIN, Split.SFT)
    }
    assert lengths[Split.SFT] > 1.3 * lengths[Split.PRETRAIN]


def test_bad_requests_name_what_is_wrong():
    with pytest.raises(GoldimaskError, match="did you mean 'tiny-sft'"):
        corpus("tiny-stf")
    with pytest.raises(GoldimaskError, match="n = -1"):
        corpus("tiny-sft", -1)
    with pytest.raises(GoldimaskError, match="did you mean 'chain'"):
        test_set("chian")
