"""Questions of one's own: `file:test.jsonl` through eval, shards, decode --file and score."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from goldimask.cli.app import app
from goldimask.errors import GoldimaskError
from goldimask.eval.run import EvalResult, Model, Response, evaluate
from goldimask.eval.score import read_stored, score_stored
from goldimask.eval.tasks import TASKS, get_task
from goldimask.eval.tasks import own as own_module
from goldimask.eval.tasks.own import JUDGES
from goldimask.registry import allow_plugins


def write(path: Path, rows: Sequence[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    rows = [{"question": f"what is {i} and 1?", "answer": i + 1} for i in range(6)]
    return write(tmp_path / "test.jsonl", rows)


class Adder:
    """Right about even numbers; keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def __call__(self, prompts: Sequence[Any], **_: Any) -> Iterator[Response]:
        for i, prompt in enumerate(prompts):
            self.asked.append(prompt)
            k = int(str(prompt).split("what is ")[1].split()[0])
            yield Response(i, f"3 apples, so <answer> {k + 1 + k % 2} </answer>", 4)


def run(file: Path, answer: Adder, **options: Any) -> EvalResult:
    options.setdefault("model", Model("adder", "0"))
    return evaluate(None, [f"file:{file}"], answer=answer, batch_size=4, **options)


@pytest.mark.parametrize(
    ("judge", "gold", "right", "wrong"),
    [
        ("exact", "New York", "New  York.", "York"),
        ("exact", ["7", "seven"], "so <answer>seven</answer>", "eight"),
        ("exact", 7, r"it is \boxed{7}", "17"),
        ("number", "1,200", "3 times 400 is $1200.00", "1200 minus 1 is 1199"),
        ("number", "#### -4", "4 - 8 = -4", "4"),
        ("choice", "B", "The answer is (B), as A is wrong", "The answer is A, not B"),
        ("choice", "b", "B) because I think so", "I think C"),
        ("choice", "A", "A", "A dog is option C"),
        ("regex", r"\b4[0-9]\b", "it is 42 or so", "it is 52"),
    ],
)
def test_judges(judge: str, gold: Any, right: str, wrong: str) -> None:
    assert JUDGES.get(judge)(right, gold, {})
    assert not JUDGES.get(judge)(wrong, gold, {})


def test_the_judge_is_named_inferred_or_the_rows_own(tmp_path: Path) -> None:
    def judges(rows: list[dict[str, Any]], **options: Any) -> list[str]:
        task = get_task(f"file:{write(tmp_path / 't.jsonl', rows)}", **options)
        return [item.meta["judge"] for item in task.load(None)]

    ask = {"prompt": "x"}
    assert judges([{**ask, "answer": 4}, {**ask, "answer": "1,000"}]) == ["number"] * 2
    assert judges([{**ask, "answer": "A"}, {**ask, "answer": "D"}]) == ["choice"] * 2
    assert judges([{**ask, "answer": 4}, {**ask, "answer": "four"}]) == ["exact"] * 2
    assert judges([{**ask, "answer": 4}], judge="exact") == ["exact"]
    assert judges([{**ask, "answer": "4|5", "judge": "regex"}, {**ask, "answer": 4}]) == [
        *("regex", "exact")
    ]
    for row, words in (
        ({**ask, "answer": "(", "judge": "regex"}, r"t\.jsonl:1: .*no regular expression"),
        ({**ask, "answer": "none", "judge": "number"}, r"t\.jsonl:1: .*no number"),
        ({**ask, "answer": "AB", "judge": "choice"}, r"t\.jsonl:1: .*not a letter"),
        ({**ask, "answer": "x", "judge": "exakt"}, r"t\.jsonl:1: .*mean 'exact'"),
        ({**ask, "answer": "x", "judge": "os:system"}, r"t\.jsonl:1: .*names no code"),
        (ask, r"t\.jsonl:1: no right answer"),
        ({"text": "x"}, r"t\.jsonl:1: no known columns"),
    ):
        with pytest.raises(GoldimaskError, match=words):
            judges([row])
    with pytest.raises(GoldimaskError, match="--judge: unknown judge 'nummer'"):
        judges([{**ask, "answer": 4}], judge="nummer")
    with pytest.raises(GoldimaskError, match=r"nothing\.jsonl' does not exist"):
        get_task("file:nothing.jsonl")


def test_every_shape_asks_and_system_turns_are_asked_too(tmp_path: Path) -> None:
    turns = [{"role": "user", "content": "what is 2 ?"}, {"role": "assistant", "content": "3"}]
    rows = [
        {"messages": turns},
        {"instruction": "what is", "input": "2 ?", "output": "3"},
        {"prompt": "what is 2 ?", "system": "add one", "response": "it is 3", "answer": "3"},
    ]
    items = get_task(f"file:{write(tmp_path / 't.jsonl', rows)}").load(None)
    assert [item.gold for item in items] == ["3"] * 3
    assert items[0].prompt == "what is 2 ?" and items[1].prompt == "what is\n\n2 ?"
    assert [m["role"] for m in items[2].prompt] == ["system", "user"]
    adder = Adder()
    result = run(tmp_path / "t.jsonl", adder, limit=1)
    assert result.results[0].accuracy == 1.0 and adder.asked == ["what is 2 ?"]


def test_a_pattern_that_goes_back_for_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_module, "SECONDS", 0.1)
    row = {"judge": "regex", "row": {}}
    item = own_module.Item("1", "x", r"(a+)+$", row)
    assert own_module.verdict(item, "a" * 40 + "b").detail == "timeout"


def test_answers_to_two_states_of_a_file_never_mix(questions: Path, tmp_path: Path) -> None:
    out = tmp_path / "eval"
    first = run(questions, Adder(), out=out).results[0]
    assert (first.n, first.correct, first.length) == (6, 3, 128)
    assert first.task.startswith("test-") and first.version.endswith("/number")
    again = Adder()
    assert run(questions, again, out=out).results[0] == first and not again.asked
    other_judge = evaluate(
        None,
        [f"file:{questions}"],
        answer=again,
        out=out,
        model=Model("adder", "0"),
        task_options={"judge": "exact"},
    )
    assert not again.asked and other_judge.results[0].version.endswith("/exact")
    rows = [json.loads(line) for line in questions.read_text().splitlines()]
    write(questions, [{**rows[0], "answer": 9}, *rows[1:]])  # the same prompts, another gold
    changed = run(questions, again, out=out).results[0]
    assert len(again.asked) == 6 and changed.task != first.task and changed.correct == 2


def test_shards_make_the_whole(questions: Path, tmp_path: Path) -> None:
    parts = [run(questions, Adder(), out=tmp_path / "e", shard=(i, 2)) for i in range(2)]
    assert [p.results[0].n for p in parts] == [3, 3]
    saved = json.loads((tmp_path / "e" / "scores.json").read_text())
    assert saved["scores"][0]["n"] == 6 and saved["scores"][0]["complete"]


def test_a_judge_of_ones_own_needs_leave(
    questions: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found in the working directory, named on stderr, and only what it registers is called."""
    (tmp_path / "my_judges.py").write_text(
        "from goldimask.eval.tasks.own import JUDGES\n"
        "@JUDGES.register('generous')\n"
        "def generous(response, answer, row):\n"
        "    return abs(int(response.split()[-2]) - answer) < 2\n"
        "def secret(response, answer, row):\n"
        "    return True\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    monkeypatch.delitem(sys.modules, "my_judges", raising=False)
    place = f"file:{questions}"
    with pytest.raises(GoldimaskError, match="--allow-plugins"):
        get_task(place, judge="my_judges:generous")
    try:
        with allow_plugins():
            task = get_task(place, judge="my_judges:generous")
            with pytest.raises(GoldimaskError, match="not a judge"):
                get_task(place, judge="my_judges:secret")
        result = evaluate(None, [task], answer=Adder(), batch_size=4)
        assert result.results[0].correct == 6
        assert "my_judges:generous#" in task.version  # and a hash of its text
    finally:
        JUDGES._entries.pop("generous", None)
        sys.modules.pop("my_judges", None)


def test_decode_keeps_every_column_and_score_reads_it(tmp_path: Path) -> None:
    """`response` is the right one and `text` what was decoded; no gold is taken for an answer."""
    from goldimask.decoding import make_settings
    from goldimask.decoding.prompt_file import decode_rows, read_prompts

    rows = [{"prompt": f"what is {i} and 1?", "response": f"it is {i + 1}"} for i in range(4)]
    file = write(tmp_path / "held.jsonl", [{**row, "note": "kept"} for row in rows])

    def answer(prompts: Sequence[Any], samples: Sequence[int]) -> Iterator[tuple[int, Any]]:
        assert prompts == [row["prompt"] for row in rows]
        for i in range(len(prompts)):
            yield i, {"text": f"{i + 1 + (i == 3)}", "tokens": [1], "steps": 2}

    out = tmp_path / "answers.jsonl"
    decode_rows(answer, read_prompts(file), out, make_settings("threshold"), model="0")
    made = [json.loads(line) for line in out.read_text().splitlines()]
    assert all(
        m["note"] == "kept" and m["response"] == r["response"]
        for m, r in zip(made, rows, strict=True)
    )
    task = get_task(f"file:{file}", judge="number")
    assert score_stored(read_stored([out], task), task).result.correct == 3
    with pytest.raises(GoldimaskError, match="not one of the questions"):
        other = write(tmp_path / "other.jsonl", [{"prompt": "y", "answer": 1}])
        read_stored([out], get_task(f"file:{other}"))


def test_the_verb(questions: Path, small_model: Path, tmp_path: Path) -> None:
    """eval plans and evaluates a file, and says on stderr what to type next."""
    words = ["eval", str(small_model), "--tasks", f"file:{questions}", "--lengths", "16"]
    plan = CliRunner().invoke(app, [*words, "--dry-run", "--json"])
    assert json.loads(plan.stdout)["answers"] == 6
    words += ["--limit", "2", "-o", str(tmp_path / "e")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "judged by number" in done.stderr and "next:" in done.stderr
    assert max(map(len, done.stdout.splitlines())) <= 80
    quiet = CliRunner().invoke(app, [*words, "--json", "--quiet"])
    assert quiet.stderr == "" and json.loads(quiet.stdout)["results"][0]["n"] == 2


def test_a_task_of_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named with leave, as `goldimask` (not `python -m`) would find it; refused without."""
    (tmp_path / "my_tasks.py").write_text(
        "from goldimask.eval.tasks.base import TASKS, Item, Task, each\n"
        "@TASKS.register('rivers')\n"
        "def rivers(protocol: str = 'fixed') -> Task:\n"
        "    items = [Item('paris', 'Which river?', 'Seine')]\n"
        "    judge = each(lambda item, answer: True)\n"
        "    return Task('rivers', '1', lambda source: items, str.strip, judge, 8)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    words = ["eval", "tiny", "--tasks", "my_tasks:rivers", "--dry-run", "--json"]
    assert "--allow-plugins" in str(CliRunner().invoke(app, words).exception)
    try:
        done = CliRunner().invoke(app, [*words, "--allow-plugins"])
        assert done.exit_code == 0, done.output
        assert json.loads(done.stdout)["trials"][0]["task"] == "rivers"
        assert "plug-in: importing 'my_tasks'" in done.stderr
    finally:
        TASKS._entries.pop("rivers", None)
        sys.modules.pop("my_tasks", None)
