"""The benchmarks on small fixtures of our own: prompts, golds, both protocols, sources."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from goldimask.errors import GoldimaskError
from goldimask.eval.tasks import accepted, get_task, known_tasks

ROWS: dict[str, list[dict[str, Any]]] = {
    "gsm8k": [
        {"question": "Ann has 5 pears and eats 2.", "answer": "5 - 2 = 3\n#### 3"},
        {"question": "It is 4 degrees and falls by 14.", "answer": "4 - 14 = -10\n#### -10"},
        {"question": "A mill makes 600 a day. Two days?", "answer": "600 * 2\n#### 1,200"},
        {"question": "A bill of $7.50?", "answer": "#### $7.50"},
    ],
    "math500": [
        {"problem": "Half of one?", "answer": "\\frac{1}{2}", "unique_id": "t/1"},
        {"problem": "Roots?", "answer": "x \\in [-2,7]", "unique_id": "t/2"},
        {"problem": "Who?", "answer": "\\text{Evelyn}", "unique_id": "t/3"},
        {"problem": "Point?", "answer": "\\left( 3, \\frac{\\pi}{2} \\right)", "unique_id": "t/4"},
    ],
    "aime24": [{"question": "Count.", "sol": ["025"]}, {"question": "Sum.", "answer": "204"}],
    "countdown": [
        {"input": "30,100,93", "output": "23"},
        {"numbers": [6, 3, 8], "target": 16, "id": "c/1"},
    ],
    "sudoku": [
        {"Puzzle": "3102200002100320", "Solution": "3142243142131324"},
        {"puzzle": "0140432014020000", "solution": "2143432114323214"},
    ],
}
GOLD = {"countdown": ["93 + (30 - 100)", "6 / 3 * 8"]}


def write(folder: Path, task: str) -> Path:
    file = folder / f"{task}.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in ROWS[task]))
    return file


def answer_of(task: str, item: Any, index: int) -> str:
    if task == "sudoku":
        return f"thus</reasoning>\n<answer>\n{item.gold['solution']}\n</answer><|eot_id|>"
    gold = GOLD[task][index] if task in GOLD else item.gold
    return f"thus</reasoning>\n<answer>\n\\boxed{{{gold}}}\n</answer><|eot_id|><|endoftext|>"


@pytest.mark.parametrize("name", list(ROWS))
def test_golds_score_full_marks_under_fixed(name, tmp_path):
    task = get_task(name)
    items = task.load(write(tmp_path, name))
    texts = [answer_of(name, item, i) for i, item in enumerate(items)]
    verdicts = task.judge_all(items, [task.extract(t) for t in texts])
    assert len(items) == len(ROWS[name]) and all(v.correct for v in verdicts)
    nothing = task.judge_all(items, [task.extract("I do not know.") for _ in items])
    assert not any(v.correct for v in nothing)


def test_gsm8k_golds():
    task = get_task("gsm8k")
    assert task.row is not None
    items = [task.row(r, i) for i, r in enumerate(ROWS["gsm8k"])]
    assert [i.gold for i in items] == ["3", "-10", "1200", "7.50"]
    assert [i.meta["lift_gold"] for i in items] == [3.0, None, 1200.0, 7.5]


@pytest.mark.parametrize(
    ("text", "gold", "fixed", "lift"),
    [
        ("\\boxed{1,234}", 1234.0, True, False),
        ("\\boxed{1234}", 1234.0, True, True),
        ("\\boxed{1{,}234}", 1234.0, True, False),
        ("\\boxed{\\$1,234.00}", 1234.0, True, False),
        ("\\boxed{-10}", -10.0, True, True),
        ("\\boxed{\u221210}", -10.0, True, False),
        ("\\boxed{...} then \\boxed{18}", 18.0, True, True),
        ("\\boxed{18} then \\boxed{19}", 18.0, True, True),  # the first box counts
        ("<answer>2 plus 16 is 18</answer>", 18.0, True, True),  # without a box the last number
        ("<answer>1,018</answer>", 1018.0, True, False),
        ("\\boxed{18 apples}", 18.0, True, True),
        ("\\boxed{18.0}", 18.0, True, True),
        ("\\boxed{18}", 19.0, False, False),
        ("18", 18.0, False, False),
        ("\\boxed{nan}", 18.0, False, False),
    ],
)
def test_gsm8k_protocols(text, gold, fixed, lift):
    for protocol, expected in (("fixed", fixed), ("lift", lift)):
        task = get_task("gsm8k", protocol=protocol)
        assert task.stored is not None
        item = task.stored({"question": "q", "ground_truth": gold}, 0)
        assert item is not None
        assert task.check(item, task.extract(text)).correct is expected, protocol


def test_sudoku_scoring():
    fixed, lift = get_task("sudoku"), get_task("sudoku", protocol="lift")
    assert fixed.row is not None
    item = fixed.row(ROWS["sudoku"][0], 0)
    bracket = "<answer>[3142243142131324]</answer>"
    assert fixed.check(item, fixed.extract(bracket)).hits == 8
    assert lift.check(item, lift.extract(bracket)).hits < 8  # one bracket shifts every cell
    half = "<answer>3142243100000000</answer>"
    for task in (fixed, lift):
        verdict = task.check(item, task.extract(half))
        assert (verdict.correct, verdict.hits, verdict.of) == (False, 4, 8)
        nothing = task.check(item, task.extract("nothing at all"))
        assert (nothing.hits, nothing.of) == (0, 8)
    rows = "<answer>\n3 1 4 2\n2 4 3 1\n4 2 1 3\n1 3 2 4\n</answer>"
    assert fixed.check(item, fixed.extract(rows)).correct
    assert lift.check(item, lift.extract(rows)).correct


def test_sudoku_with_several_solutions_accepts_any_valid_grid():
    fixed, lift = get_task("sudoku"), get_task("sudoku", protocol="lift")
    assert fixed.stored is not None
    row = {"question": "Sudoku puzzle: 0034340000000000", "ground_truth": "1234341221434321"}
    item = fixed.stored(row, 0)
    assert item is not None
    other = "2134342143121243"
    verdict = fixed.check(item, other)
    assert verdict.correct and verdict.hits == verdict.of == 12
    assert not lift.check(item, other).correct  # compares with the one stored solution
    changed = "2143" + other[4:]  # given cells were changed
    assert not fixed.check(item, changed).correct


def test_sudoku_subset_is_the_published_one(tmp_path):
    file = tmp_path / "sudoku.csv"
    with open(file, "w", newline="") as out:
        writer = csv.writer(out)
        writer.writerow(["Puzzle", "Solution"])
        writer.writerows([["3102200002100320", "3142243142131324"]] * 500)
    items = get_task("sudoku").load(file)
    assert len(items) == 256
    assert [i.id for i in items[:5]] == [f"sudoku/{k}" for k in (37, 145, 298, 284, 461)]
    assert len(get_task("sudoku", subset=0).load(file)) == 500


def test_published_prompts():
    """The exact strings matter: published numbers depend on them."""
    gsm8k, math500, countdown = (get_task(t) for t in ("gsm8k", "math500", "countdown"))
    assert gsm8k.row and math500.row and countdown.row
    text = gsm8k.row(ROWS["gsm8k"][0], 0).prompt
    assert "\\boxed{}. \nRespond in" in text and text.endswith(
        "</answer>\n\nAnn has 5 pears and eats 2."
    )
    text = math500.row(ROWS["math500"][0], 0).prompt
    assert "\\boxed{}.\nRespond in" in text and text.endswith('</answer>" \n\n\nHalf of one?')
    text = countdown.row(ROWS["countdown"][0], 0).prompt
    assert "\\boxed{a + b * c}Respond in" in text
    assert text.endswith("\n\nNumbers: [30, 100, 93]\nTarget: 23")
    assert {t.prefill for t in (gsm8k, math500, countdown)} == {"<reasoning>"}


def test_math_lift_extraction():
    task = get_task("math500", protocol="lift")
    assert task.extract("no box") == "no box"  # the whole text
    assert task.extract("\\boxed{} <answer> 5 </answer>") == "5"
    assert task.extract("open \\boxed{5 <answer>6</answer>") == "6"
    assert task.extract("a \\boxed 7$ b") == "7"
    fixed = get_task("math500")
    assert fixed.extract("no box") is None
    assert fixed.extract("\\boxed{5} but \\boxed{6") == "5"


def test_sources(tmp_path, monkeypatch):
    task = get_task("gsm8k")
    rows = ROWS["gsm8k"]
    (tmp_path / "a.json").write_text(json.dumps(rows))
    (tmp_path / "b.json").write_text(json.dumps({"data": rows}))
    with gzip.open(tmp_path / "c.jsonl.gz", "wt") as out:
        out.writelines(json.dumps(r) + "\n" for r in rows)
    for name in ("a.json", "b.json", "c.jsonl.gz"):
        assert len(task.load(tmp_path / name)) == 4
    folder = tmp_path / "sets" / "gsm8k"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    assert len(task.load(tmp_path / "sets")) == 4
    monkeypatch.setenv("GOLDIMASK_DATA", str(tmp_path / "sets"))
    assert len(task.load(None)) == 4
    with pytest.raises(GoldimaskError, match="GOLDIMASK_DATA for math500"):
        get_task("math500").load(None)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ('{"question": "q"}\n', "none of the keys"),
        ('{"question": "q", "answer": "#### 1"}\n{"question"', "x.jsonl:2: not valid JSON"),
    ],
)
def test_broken_files_are_named(tmp_path, content, match):
    (tmp_path / "x.jsonl").write_text(content)
    with pytest.raises(GoldimaskError, match=match):
        get_task("gsm8k").load(tmp_path / "x.jsonl")


def test_missing_sets_say_how_to_get_them(tmp_path, monkeypatch):
    monkeypatch.delenv("GOLDIMASK_DATA", raising=False)
    with pytest.raises(GoldimaskError, match=r"countdown_cd3_test\.jsonl from dllm-reasoning/d1"):
        get_task("countdown").load(None)
    with pytest.raises(GoldimaskError, match="does not exist"):
        get_task("countdown").load(tmp_path / "nothing")


def test_options_are_checked():
    with pytest.raises(GoldimaskError, match="did you mean 'protocol'"):
        get_task("gsm8k", protocl="lift")
    with pytest.raises(GoldimaskError, match="protocol"):
        get_task("gsm8k", protocol="old")
    given = {"form": "standard", "allow_code_execution": True}
    assert accepted("gsm8k", given) == {} and accepted("humaneval", given) == given


def test_tiny_tasks():
    names = [n for n in known_tasks() if n.startswith("tiny-")]
    assert names
    for name in names:
        task = get_task(name, n=3)
        items = task.load(None)
        problems = [i.meta["problem"] for i in items]
        verdicts = task.judge_all(items, [task.extract(p.response) for p in problems])
        assert len(items) == 3 and all(v.correct for v in verdicts)
        assert not task.check(items[0], task.extract("nothing")).correct
        assert task.length > 0


HUMANEVAL = {
    "task_id": "HumanEval/x",
    "prompt": 'import math\n\ndef helper(x):\n    """ helps """\n    return x\n\n\n'
    'def area(r: float) -> float:\n    """ Area of a circle.\n    >>> area(0)\n    0.0\n    """\n',
    "entry_point": "area",
    "canonical_solution": "    return math.pi * helper(r) ** 2\n",
    "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate(0) == 0\n"
    "    assert abs(candidate(2) - 12.56637) < 1e-3\n",
}
MBPP = {
    "task_id": 5,
    "prompt": "Write a function to multiply.",
    "code": "def sum(a, b):\n    return a * b",
    "test_imports": ["import math"],
    "test_list": ["assert sum(2, 3) == 6", "assert math.isclose(sum(2, 0.5), 1)"],
}


def fence(code: str) -> str:
    return f"So</reasoning>\n<answer>\n```python\n{code}\n```\n</answer><|eot_id|>"


def judged(task: Any, row: dict[str, Any], codes: list[str]) -> list[str]:
    item = task.row(row, 0)
    verdicts = task.judge_all([item] * len(codes), [task.extract(fence(c)) for c in codes])
    return ["pass" if v.correct else v.detail.split(":")[0] for v in verdicts]


def test_humaneval_forms_and_protocols():
    run = {"allow_code_execution": True, "sandbox": "limits"}
    whole = HUMANEVAL["prompt"] + HUMANEVAL["canonical_solution"]
    mutated = whole.replace("** 2", "** 3")
    renamed = "import math\ndef circle(r):\n    return math.pi * r ** 2"
    body = "    return math.pi * r ** 2"
    helper_last = renamed.replace("circle", "area") + "\ndef other(x):\n    return 0"
    standard = get_task("humaneval", form="standard", **run)
    codes = [whole, mutated, body, helper_last, renamed]
    assert judged(standard, HUMANEVAL, codes) == ["pass", "fail", "pass", "pass", "fail"]
    published = get_task("humaneval", **run)
    codes = [whole, mutated, renamed, helper_last, "x = 1"]
    assert judged(published, HUMANEVAL, codes) == ["pass", "fail", "pass", "pass", "no function"]
    lift = get_task("humaneval", protocol="lift", **run)
    assert judged(lift, HUMANEVAL, [whole, renamed]) == ["fail", "pass"]  # the helper is tested
    item = standard.row(HUMANEVAL, 0)  # type: ignore[misc]
    assert "def area(r: float)" in item.prompt and standard.name == "humaneval-standard"
    assert published.row(HUMANEVAL, 0).prompt.endswith("helps")  # type: ignore[misc]


def test_mbpp_forms_and_protocols():
    run = {"allow_code_execution": True, "sandbox": "limits"}
    for options in ({}, {"form": "standard"}, {"protocol": "lift"}):
        task = get_task("mbpp", **options, **run)
        codes = [MBPP["code"], MBPP["code"].replace("*", "+"), "def sum(a, b:"]
        assert judged(task, MBPP, codes) == ["pass", "fail", "syntax error"]
    cheat = "import math\nmath.isclose = lambda *a: True\ndef sum(a, b):\n    return 6"
    assert judged(get_task("mbpp", **run), MBPP, [cheat]) == ["fail"]


def test_code_extraction():
    fixed, lift = get_task("mbpp"), get_task("mbpp", protocol="lift")
    cut_off = "<answer>\n```python\nx = 1\n"
    assert (fixed.extract(cut_off), lift.extract(cut_off)) == ("x = 1", None)
    two = "```python\na\n``` later <answer>```python\nb\n```</answer>"
    assert (fixed.extract(two), lift.extract(two)) == ("b\n", "a\n")
    assert fixed.extract("```\nx\n```") == "x\n" and fixed.extract("def f(): pass") is None


def test_code_tasks_refuse_without_permission():
    task = get_task("humaneval")
    assert task.prepare is not None
    with pytest.raises(GoldimaskError, match="allow-code-execution"):
        task.prepare()
    item = task.row(HUMANEVAL, 0)  # type: ignore[misc]
    with pytest.raises(GoldimaskError, match="allow-code-execution"):
        task.check(item, "def area(r): return 0")


def test_mbpp_of_all_splits_is_cut_to_the_test_rows(tmp_path):
    """The authors' sanitized-mbpp.json has 427 rows; the test split is ids 11 to 510."""
    row = {"prompt": "p", "code": "", "test_list": ["assert f(1)"], "test_imports": []}
    ids = [2, 10, 11, 12, 510, 511, 601, 974]
    (tmp_path / "sanitized-mbpp.json").write_text(json.dumps([{**row, "task_id": i} for i in ids]))
    assert [i.id for i in get_task("mbpp").load(tmp_path)] == ["11", "12", "510"]
    own = [{**row, "id": f"mine-{i}"} for i in ids[:2]]  # a set of one's own has no such ids
    (tmp_path / "own.json").write_text(json.dumps(own))
    assert len(get_task("mbpp").load(tmp_path / "own.json")) == 2
    (tmp_path / "train.json").write_text(json.dumps([{**row, "task_id": 700}]))
    with pytest.raises(GoldimaskError, match="none of 1 rows is of the test split"):
        get_task("mbpp").load(tmp_path / "train.json")
