"""Scoring stored generations of other harnesses, and the verbs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from goldimask.cli.app import app
from goldimask.cli.evaluation import parse_shard
from goldimask.cli.options import numbers
from goldimask.errors import GoldimaskError
from goldimask.eval.run import Model, Response, evaluate
from goldimask.eval.score import Score, read_stored, score_stored
from goldimask.eval.tasks import get_task
from goldimask.files import write_json

D1 = [
    {"question": "q1", "generations": "\\boxed{1,234}", "ground_truth": 1234.0},
    {"question": "q2", "generations": "<answer>18</answer><|eot_id|>", "ground_truth": 18.0},
    {"question": "q3", "generations": "no idea", "ground_truth": 5.0},
    {"question": "q4", "generations": "\\boxed{-10}", "ground_truth": None},
]


@pytest.fixture(autouse=True)
def no_data(monkeypatch):
    monkeypatch.delenv("GOLDIMASK_DATA", raising=False)


def d1_file(folder: Path, rows: list[dict[str, Any]] = D1, name: str = "d1.json") -> Path:
    more = {"gen_length": 128, "diffusion_steps": 64, "block_length": 32, "metrics": {"x": []}}
    return write_json(folder / name, {"generations": rows, **more})


def scored(files: list[Path], task: str, data: Path | None = None) -> Score:
    chosen = get_task(task)
    return score_stored(read_stored(files, chosen, data), chosen)


def run(*arguments: str) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return json.loads(result.stdout)


def test_d1_file_in_both_protocols(tmp_path):
    file = d1_file(tmp_path)
    fixed = run("score", str(file), "--task", "gsm8k", "--json")
    keys = ("task", "protocol", "n", "correct", "accuracy", "unparsable")
    assert [fixed[k] for k in keys] == ["gsm8k", "fixed", 4, 2, 0.5, 1]
    assert 0 < fixed["low"] < 0.5 < fixed["high"] < 1
    assert fixed["details"] == {"unparsable": 1, "no gold": 1}
    lift = run("score", str(file), "--task", "gsm8k", "--protocol", "lift", "--json")
    assert (lift["protocol"], lift["correct"]) == ("lift", 1)


def test_files_are_pooled(tmp_path):
    files = [str(d1_file(tmp_path, D1[:3], "0.json")), str(d1_file(tmp_path, D1[1:2], "1.json"))]
    found = run("score", *files, "--task", "gsm8k", "--json")
    assert (found["n"], found["correct"], found["files"]) == (4, 3, 2)


def test_diff_lists_disagreements(tmp_path):
    found = run("score", str(d1_file(tmp_path)), "--task", "gsm8k", "--diff", "--json")
    assert [x["where"].rsplit(":", 1)[1] for x in found["diff"]] == ["1"]
    assert found["diff"][0]["lift"]["extracted"] == "1.0"
    assert found["other"]["protocol"] == "lift"


def test_golds_come_from_the_test_set(tmp_path):
    data = tmp_path / "gsm8k.jsonl"
    data.write_text(json.dumps({"question": "q4", "answer": "#### -10"}) + "\n")
    found = scored([d1_file(tmp_path)], "gsm8k", data)
    assert found.result.correct == 3 and "no gold" not in found.details


def test_lift_and_generic_and_lm_eval_rows(tmp_path):
    (tmp_path / "generic.jsonl").write_text(
        json.dumps({"problem": "p", "response": "\\boxed{5}", "gold": "#### 5"}) + "\n"
    )
    lm_eval = {
        "doc_id": 0,
        "doc": {"question": "p", "answer": "so\n#### 1,005"},
        "target": "so\n#### 1,005",
        "resps": [["\\boxed{1005}", "\\boxed{6}"]],
        "filtered_resps": ["1005"],
    }
    (tmp_path / "samples_gsm8k.jsonl").write_text(json.dumps(lm_eval) + "\n")
    assert scored([tmp_path / "generic.jsonl"], "gsm8k").result.correct == 1
    found = scored([tmp_path / "samples_gsm8k.jsonl"], "gsm8k")
    assert (found.result.n, found.result.correct) == (2, 1)
    assert [(o.seed, o.correct) for o in found.outcomes] == [(0, True), (1, False)]


def test_sudoku_reports_cells_and_solved(tmp_path):
    question = "Solve the following Sudoku puzzle: 3102200002100320\n"
    rows = [
        {"question": question, "generations": text, "ground_truth": "3142243142131324"}
        for text in ("<answer>3142243142131324</answer>", "<answer>3142243100000000</answer>", "?")
    ]
    found = run("score", str(d1_file(tmp_path, rows)), "--task", "sudoku", "--json")
    assert (found["n"], found["correct"], found["unparsable"]) == (3, 1, 1)
    assert (found["cells"], found["cells_correct"]) == (24, 12)
    assert found["accuracy"] == pytest.approx(0.5) and found["solved"] == pytest.approx(1 / 3)


def test_code_is_not_run_without_permission(tmp_path):
    test = "def check(candidate):\n    assert candidate(1) == 2\n"
    text = "```python\ndef f(x):\n    return x + 1\n```"
    file = d1_file(tmp_path, [{"question": "d", "generations": text, "ground_truth": test}])
    with pytest.raises(GoldimaskError, match="allow-code-execution"):
        run("score", str(file), "--task", "humaneval", "--json")
    arguments = ("--task", "humaneval", "--allow-code-execution", "--sandbox", "limits", "--json")
    assert run("score", str(file), *arguments)["correct"] == 1


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ([], "no generations"),
        ([{"question": "q", "ground_truth": 1.0}], "no generated text"),
        ([{"question": "q", "generations": "x"}], "no gold answer"),
        (["text"], "expected an object"),
    ],
)
def test_unusable_rows_are_named(tmp_path, rows, match):
    with pytest.raises(GoldimaskError, match=match):
        scored([d1_file(tmp_path, rows)], "gsm8k")


def speaker(wrong: int):
    """Answers the tiny tasks from their responses; every `wrong`-th answer is spoiled."""
    problems = {i.prompt: i.meta["problem"] for i in get_task("tiny-chain", n=12).load(None)}

    def answer(prompts, *, length, **options):
        order = list(problems)
        for i, p in enumerate(prompts):
            spoiled = order.index(p) % wrong == 0
            text = "<answer> none </answer>" if spoiled else problems[p].response
            yield Response(i, text, length // 4)

    return answer


def evaluated(folder: Path, wrong: int, **options: Any):
    return evaluate(
        None,
        ["tiny-chain"],
        limit=12,
        out=folder,
        model=Model("speaker", str(folder)),
        answer=speaker(wrong),
        batch_size=5,
        **options,
    )


def test_own_samples_are_scored_again(tmp_path):
    result = evaluated(tmp_path / "run", 3)["tiny-chain"]
    found = run("score", str(tmp_path / "run"), "--task", "tiny-chain", "--json")
    assert (found["n"], found["correct"]) == (12, result.correct) == (12, 8)
    stored = read_stored([tmp_path / "run" / "samples-0.jsonl"], get_task("tiny-chain"))
    assert len(stored) == 12


def test_evaluations_are_compared(tmp_path):
    for name, wrong in (("a1", 3), ("a2", 2), ("b1", 4), ("b2", 6)):
        evaluated(tmp_path / name, wrong, lengths=(64,))
    evaluated(tmp_path / "a1", 2, lengths=(128,))
    runs = [f"{n[0]}={tmp_path / n}" for n in ("a1", "a2", "b1", "b2")]
    words = (*runs, "--baselines", "a", "--length", "64", "--format", "csv")
    (found,) = run("report", *words, "--json")["comparisons"]
    assert found["strongest_baseline"] == "a"
    ours = found["methods"]["b"]
    assert ours["scores"]["tiny-chain"]["n"] == 2
    assert ours["change"]["tiny-chain"] == pytest.approx((19 / 24) / (14 / 24) - 1)
    (pair,) = found["paired"]
    assert (pair["n"], pair["difference"]) == (24, pytest.approx(5 / 24))
    words = ["report", runs[0], runs[2], "--format", "terminal", "--length"]
    shown = CliRunner().invoke(app, [*words, "fixed"])
    assert "not all at the same length: tiny-chain" in shown.stdout
    refused = CliRunner().invoke(app, [*words, "best"])
    assert "incomplete: b: tiny-chain" in str(refused.exception)
    text = CliRunner().invoke(app, [*words, "64"]).stdout
    assert "McNemar" in text and "length 64" in text


def test_a_torn_line_is_left_out(tmp_path):
    evaluated(tmp_path, 3)
    file = tmp_path / "samples-0.jsonl"
    file.write_text(file.read_text()[:-20])
    for source in (tmp_path, file):
        assert run("score", str(source), "--task", "tiny-chain", "--json")["n"] == 11


def test_several_decodings_in_a_folder_are_told_apart(tmp_path):
    for name, wrong in (("a", 3), ("b", 4)):
        evaluated(tmp_path / name, wrong, taus=(0.5, 0.9))
    runs = [str(tmp_path / name) for name in "ab"]
    found = run("report", *runs, "--format", "csv", "--json")
    ways = [f"threshold block=32 tau={tau}" for tau in (0.5, 0.9)]
    assert [c["decoding"] for c in found["comparisons"]] == ways
    assert [c["paired"][0]["n"] for c in found["comparisons"]] == [12, 12]
    assert {"thresholds", "main-1", "main-2"} <= set(found["tables"])
    assert found["figures"] == ["paired-1", "paired-2", "steps"]
    found = run("score", str(tmp_path / "a"), "--task", "tiny-chain", "--json")
    assert (found["n"], [t["n"] for t in found["trials"]]) == (24, [12, 12])


def test_pass_at_k_over_seeds(tmp_path):
    result = evaluated(tmp_path, 3, seeds=(0, 1, 2))
    assert (
        result.pass_at("tiny-chain", 1) == result.pass_at("tiny-chain", 3) == pytest.approx(8 / 12)
    )


def test_arguments(monkeypatch):
    assert numbers("128,256", "--lengths", int) == (128, 256) and numbers("", "x", int) == ()
    with pytest.raises(GoldimaskError, match="--lengths"):
        numbers("12a", "--lengths", int)
    assert parse_shard("1/4") == (1, 4)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "3")
    assert parse_shard("") == (2, 3)
    for text in ("4/4", "x", "1"):
        with pytest.raises(GoldimaskError, match="--shard"):
            parse_shard(text)


def test_stored_samples_of_aime_are_scored_as_pass_at_16(tmp_path):
    rows = [
        {"question": "q", "resps": [["\\boxed{25}"] * (i == 0) + ["\\boxed{1}"] * (16 - (i == 0))]}
        for i in range(2)
    ]
    for i, row in enumerate(rows):
        row |= {"question": f"q{i}", "answer": "25"}
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    found = run("score", str(tmp_path / "a.jsonl"), "--task", "aime24", "--json")
    assert (found["n"], found["correct"], found["pass_at"]) == (32, 1, {"pass@16": 0.5})
