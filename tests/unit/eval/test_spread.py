"""`eval --nproc` and `decode --file --nproc`: what one process finds, whoever dies meanwhile."""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from builders import write_llada
from goldimask.cli.app import app
from goldimask.decoding import prompt_file
from goldimask.errors import GoldimaskError
from goldimask.eval import spread
from goldimask.records import read_outcomes
from goldimask.workers import Pool

DIES = '''
import importlib, os
from pathlib import Path

def worker(home, mark, **setup):
    """The real one, but the first process to have three answers is killed before the fourth."""
    real = importlib.import_module(home).worker(**setup)

    def work(**unit):
        for count, reply in enumerate(real(**unit)):
            if count == 3:
                try:
                    Path(mark).touch(exist_ok=False)
                except FileExistsError:
                    pass
                else:
                    os.kill(os.getpid(), 9)
            yield reply
    return work
'''


@pytest.fixture
def dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Pools whose first process dies midway."""
    (tmp_path / "dies.py").write_text(DIES)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in paths if p))

    def pool(target, setup, *rest):
        more = {"home": spread.__name__, "mark": str(tmp_path / "died")}
        return Pool("dies:worker", {**setup, **more}, *rest)

    monkeypatch.setattr(spread, "Pool", pool)
    return tmp_path


def call(*words: object) -> dict:
    found = CliRunner().invoke(app, [str(w) for w in words], catch_exceptions=False)
    return {"said": found.stderr, **json.loads(found.stdout)}


def test_several_processes_find_what_one_does_although_one_is_killed(dying):
    model = write_llada(dying / "model")
    words = ("eval", model, "--tasks", "tiny-sort,tiny-chain", "--limit", 9, "--lengths", "8,12")
    words += ("--tau", "0.1,0.9", "--batch-size", 2, "--device", "cpu", "--json", "--out")
    one = call(*words, dying / "one")
    two = call(*words, dying / "two", "--nproc", 2)
    assert "died: SIGKILL" in two["said"] and "the others take its share" in two["said"]
    for a, b in zip(one["results"], two["results"], strict=True):
        assert {k: v for k, v in a.items() if k != "seconds"} == {
            k: v for k, v in b.items() if k != "seconds"
        }
    answers = [
        {key: o.model_copy(update={"seconds": 0.0}) for key, o in read_outcomes(dying / x).items()}
        for x in ("one", "two")
    ]
    assert answers[0] == answers[1] and len(answers[0]) == 2 * 9 * 2 * 2
    lines = [f.read_text().splitlines() for f in (dying / "two").glob("samples-*.jsonl")]
    assert [len(x) for x in lines] == [len(answers[0])]  # one writer, and no answer twice
    again = call(*words, dying / "two", "--nproc", 2)  # all there: no process is started
    assert again["results"] == two["results"] and again["said"].count("\n") < 6


class Here:
    """A pool of no processes: the worker runs here, and everything still becomes JSON and back."""

    def __init__(self, target, setup, devices, size, say):
        home, _, name = target.partition(":")
        worker = getattr(importlib.import_module(home), name)
        self.work = worker(**json.loads(json.dumps({**setup, "device": devices[0]})))
        self.size = size

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def submit(self, items, **options):
        for start in range(0, len(items), self.size):
            unit = json.loads(json.dumps({"items": items[start : start + self.size], **options}))
            for index, value in self.work(**unit):
                yield start + index, json.loads(json.dumps(value))


def test_a_file_of_prompts_is_the_same_from_several_processes(tmp_path, monkeypatch):
    monkeypatch.setattr(prompt_file, "Pool", Here)
    model = write_llada(tmp_path / "model")
    rows = [{"prompt": f"say {i}", "id": i} for i in range(9)]
    rows[4] = {"messages": [{"role": "user", "content": "b"}], "id": 4}
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    words = ("decode", model, "--file", tmp_path / "p.jsonl", "--length", 12, "--block", 8)
    words += ("--temperature", 1.0, "--trace", "--batch-size", 2, "--device", "cpu", "--json", "-o")
    call(*words, tmp_path / "one.jsonl")
    found = call(*words, tmp_path / "two.jsonl", "--nproc", 2)
    assert found["decoded"] == 9
    assert (tmp_path / "two.jsonl").read_text() == (tmp_path / "one.jsonl").read_text()
    with pytest.raises(GoldimaskError, match="--nproc is for --file"):
        call("decode", model, "a prompt", "--nproc", 2)
