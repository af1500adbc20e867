"""`eval --export evalplus`: complete programs under EvalPlus's ids and names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from goldimask.errors import GoldimaskError
from goldimask.eval.evalplus import check_export, export
from goldimask.eval.run import Model, Response, plan_trials, run_trials

RUN = {"allow_code_execution": True, "sandbox": "limits"}
HUMANEVAL = [
    {
        "task_id": f"HumanEval/{i}",
        "prompt": f"import math\n\ndef half(x):\n    return x / 2\n\n\ndef area{i}(r):\n"
        '    """ Area of a circle. """\n',
        "entry_point": f"area{i}",
        "canonical_solution": "    return math.pi * r ** 2\n",
        "test": "def check(candidate):\n    assert abs(candidate(2) - 12.56637) < 1e-3\n",
    }
    for i in range(4)
]
MBPP = {
    "task_id": 11,
    "prompt": "Write a function to multiply.",
    "code": "def times(a, b):\n    return a * b",
    "test_imports": ["import math"],
    "test_list": ["assert times(2, 3) == 6"],
}
CODE = {  # by the number of the problem: another name, the right one, no function, no program
    0: "def circle(r):\n    return math.pi * (2 * half(r)) ** 2",
    1: "def area1(r):\n    return math.pi * r ** 2\ndef other():\n    return 0",
    2: "x = 1",
    3: None,
}


def answer(prompts, *, prefill, length, seed, raw, decoding):
    for i, prompt in enumerate(prompts):
        code = MBPP["code"] if "multiply" in prompt else CODE[i]
        text = "I do not know." if code is None else f"<answer>\n```python\n{code}\n```\n</answer>"
        yield Response(i, text, 1)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    for name, rows in (("humaneval", HUMANEVAL), ("mbpp", [MBPP])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    return folder


def plan(data: Path, tasks: list[str] | None = None, **options):
    tasks = tasks or ["humaneval", "mbpp"]
    return plan_trials(tasks, task_options={**RUN, **options.pop("more", {})}, data=data, **options)


def test_what_the_judge_passed_passes_alone(data: Path, tmp_path: Path) -> None:
    trials = plan(data, seeds=[0, 1], options={"temperature": 0.5})
    check_export(trials, (0, 1))
    result = run_trials(trials, answer, tmp_path / "out", Model("toy", "0" * 16))
    files = export(trials, result.outcomes, tmp_path / "out")
    assert [f.name for f in files] == ["evalplus-humaneval.jsonl", "evalplus-mbpp.jsonl"]
    rows = [json.loads(line) for f in files for line in f.read_text().splitlines()]
    assert all(set(row) == {"task_id", "solution"} for row in rows)
    ids = [f"HumanEval/{i}" for i in range(4)]
    assert [r["task_id"] for r in rows] == [*ids, *ids, "Mbpp/11", "Mbpp/11"]
    verdicts = {o.item: o.correct for o in result.outcomes}
    assert verdicts == {**dict(zip(ids, [True, True, False, False], strict=True)), "11": True}
    for row in rows:  # as EvalPlus does: the whole file, then the entry point by name
        names: dict = {}
        exec(row["solution"], names)
        number = row["task_id"].split("/")[1]
        if verdicts.get(row["task_id"], False):
            assert names[f"area{number}"](2) == pytest.approx(12.56637)
        elif row["task_id"] == "Mbpp/11":
            assert names["times"](2, 3) == 6
        else:
            assert f"area{number}" not in names
    assert [r["solution"] for r in rows[2:4]] == ["x = 1\n", ""]


def test_a_bare_body_continues_the_prompt(data: Path, tmp_path: Path) -> None:
    trials = plan(data, ["humaneval"], more={"form": "standard"}, limit=1)

    def body(prompts, **_):
        yield Response(0, "```python\n    return math.pi * r ** 2\n```", 1)

    result = run_trials(trials, body)
    (file,) = export(trials, result.outcomes, tmp_path)
    names: dict = {}
    exec(json.loads(file.read_text())["solution"], names)
    assert file.name == "evalplus-humaneval-standard.jsonl"
    assert names["area0"](2) == pytest.approx(12.56637)


def test_refused_before_decoding(data: Path) -> None:
    with pytest.raises(GoldimaskError, match="needs humaneval or mbpp"):
        check_export(plan_trials(["tiny-chain"], limit=1), (0, 1))
    with pytest.raises(GoldimaskError, match="without --shard"):
        check_export(plan(data), (0, 2))
    with pytest.raises(GoldimaskError, match="several lengths"):
        check_export(plan(data, ["mbpp"], lengths={"": (64, 128)}), (0, 1))
    trial = plan(data, ["mbpp"])[0]
    own = replace(trial, items=(replace(trial.items[0], id="mine"),))
    with pytest.raises(GoldimaskError, match="no problem 'mine'"):
        check_export([own], (0, 1))
