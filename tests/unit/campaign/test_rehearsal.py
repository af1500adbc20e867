"""The paper rehearsed: every packaged campaign from nothing to the LaTeX of its tables.

Tiny checkpoints in the layouts of the Hub stand in for the three backbones, toy files with the
columns of the corpora for the data, two problems for every test set. One seed, two steps, answers
of 8 and 16 tokens. LLaDA-8B on s1K has all its rows, the other settings those without CART, GIFT,
AGDO, LIFT-3 and GoldiMask-T; everything else is as packaged.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import write_dream, write_llada
from goldimask.campaign.plan import make_estimate
from goldimask.campaign.reading import load_parts
from goldimask.campaign.run import make_plan, run_campaign, write_results
from goldimask.eval.tasks import Task, _known
from inprocess import here

QUESTION, TRACE = "How many apples are left of 12 if 5 are eaten?", "12 - 5 = 7, so 7 are left. "
CORPORA = {
    "s1k": {"question": QUESTION, "thinking_trajectories": [TRACE], "attempt": "7"},
    "lift-sft-12k": {"question": QUESTION, "thinking_trajectories": [TRACE], "sol": ["7"]},
    "kodcode": {"question": "Add two numbers.", "solution": "def add(a, b):\n    return a + b\n"},
}
TESTS: dict[str, dict[str, Any]] = {
    "gsm8k": {"question": QUESTION, "answer": "12 - 5 = 7\n#### 7"},
    "math500": {"problem": "What is $1 + 1$?", "answer": "2"},
    "countdown": {"input": [3, 4, 5], "output": 12},
    "sudoku": {"Puzzle": "0000341221434321", "Solution": "1234341221434321"},
    "aime24": {"problem": "What is 20 + 5?", "answer": "025"},
    "humaneval": {
        **{"task_id": "HumanEval/", "entry_point": "add"},
        "prompt": 'def add(a, b):\n    """Add two numbers."""\n',
        "test": "def check(candidate):\n    assert candidate(1, 2) == 3\n",
    },
    "mbpp": {
        **{"task_id": 11, "prompt": "Add two numbers.", "test_imports": []},
        "test_list": ["assert add(1, 2) == 3"],
    },
}
SHORT = {512: 16, 128: 8}  # the tasks' own lengths, for the table of fixed lengths


def write_rows(file: Path, row: dict[str, Any], count: int) -> None:
    """Rows that differ in their question and their id."""
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = [dict(row) for _ in range(count)]
    for i, one in enumerate(rows):
        for key in ("question", "problem"):
            one |= {key: f"{one[key]} ({i})"} if key in one else {}
        if "task_id" in one:
            named = isinstance(one["task_id"], str)
            one["task_id"] = f"{one['task_id']}{i}" if named else one["task_id"] + i
    file.write_text("".join(json.dumps(r) + "\n" for r in rows))


@pytest.fixture
def words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What turns the packaged campaigns into their rehearsal."""
    size = {"max_sequence_length": 2048, "n_layers": 1}
    models = {
        "llada-8b-instruct": write_llada(tmp_path / "LLaDA-8B-Instruct", 0, **size),
        "llada-1.5": write_llada(tmp_path / "LLaDA-1.5", 1, **size),
        "dream-7b-instruct": write_dream(tmp_path / "Dream-v0-Instruct-7B", 2, num_hidden_layers=1),
    }
    for name, row in CORPORA.items():
        write_rows(tmp_path / f"{name}.jsonl", row, 8)
    for name, row in TESTS.items():
        write_rows(tmp_path / "tests" / name / "test.jsonl", row, 2)
    monkeypatch.setenv("GOLDIMASK_DATA", str(tmp_path / "tests"))
    make = Task.__init__

    def shorter(self: Task, **fields: Any) -> None:
        make(self, **{**fields, "length": SHORT.get(fields["length"], fields["length"])})

    monkeypatch.setattr(Task, "__init__", shorter)
    _known.cache_clear()
    change = {
        "trainer": {"max_steps": 2, "eval_steps": 2, "save_steps": 2, "logging_steps": 1}
        | {"bf16": False, "report_to": []},
        "data": {"max_length": 192, "validation": 2},
        "lora": {"r": 2, "alpha": 4},
        "backbone": {"dtype": "float32"},
        "global_batch_size": 2,
        "evaluation": {"t_grid": 2, "pairs": 2},
    }
    per = {
        "backbones": {name: {"backbone": {"path": str(path)}} for name, path in models.items()},
        "corpora": {name: {"data": {"path": str(tmp_path / f"{name}.jsonl")}} for name in CORPORA},
    }

    def word(key: str, value: Any) -> str:
        return f"{key}={json.dumps(value)}"  # JSON is YAML

    some = ["cart", "gift", "agdo", "lift-3", "goldimask-t"]
    exclude = [
        {"seeds": [43]},
        {"backbones": ["llada-1.5", "dream-7b-instruct"], "rows": some},
        {"corpora": ["kodcode", "lift-sft-12k"], "rows": some},
    ]
    given = [word("change", change), word("per", per), "seeds=[42]", word("exclude", exclude)]
    return [*given, word("judging.lengths", {"": [8, 16]}), "judging.block=8"]


@pytest.mark.real
def test_every_campaign_of_the_paper_from_nothing_to_latex(
    tmp_path: Path, words: list[str]
) -> None:
    parts, out = [*load_parts("paper", None, words)], tmp_path / "out"
    for i, part in enumerate(parts):
        if part.name in ("paper-decoding", "paper-aime") and part.judging is not None:
            parts[i] = replace(part, judging=replace(part.judging, lengths={"": (8,)}))
    plan = make_plan(parts, out, code=True)
    trained = [p for p in plan.places if p.recipe is not None]
    assert len(trained) == (8 + 10 + 2) + 2 * (4 + 1) + (4 + 1) + 2 * 4
    made = run_campaign(parts, out, plan=plan, executor=here)
    assert not made.failed, made.failed
    summary = write_results(parts, out, plan.places, made)
    assert summary["done"] == summary["cells"] == len(plan.places)
    for part in parts:
        for kind in part.tables:
            texts = [
                f for f in (out / "tables" / part.name).glob("*.tex") if f.name.startswith(kind)
            ]
            assert texts, f"{part.name}: no {kind}"
            assert all(r"\begin{tabular}" in f.read_text() for f in texts)
        if part.figures:
            assert list((out / "figures" / part.name).glob("*.pdf")), part.name
    found = make_estimate(parts, out)
    assert found["done"] == found["cells"] and found["gpu_hours_left"] == 0
    assert run_campaign(parts, out, executor=here).ran == 0
