"""lm-eval on our decoders, with a local JSON task and no network."""

from __future__ import annotations

import json
import sys
import tomllib
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

import pytest

import goldimask.eval.harness as harness
from goldimask.errors import GoldimaskError
from goldimask.eval.harness import cut, run_harness, stops
from needs import need

TASK = """
task: goldimask_sums
dataset_path: json
dataset_kwargs:
  data_files: {{test: "{file}"}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{question}}}}"
doc_to_target: "{{{{answer}}}}"
generation_kwargs: {{until: ["STOP"]}}
metric_list:
  - metric: exact_match
metadata: {{version: 1.0}}
"""


def test_cut_and_stops():
    assert cut("a STOP b END", ["END", "STOP"]) == "a "
    assert cut("whole", ["STOP", ""]) == "whole"
    assert stops({"until": "x"}) == ["x"] and stops({}) == []


@pytest.fixture
def sums(tmp_path, monkeypatch):
    """A folder with a task of four sums, and no network."""
    need("lm-eval", find_spec("lm_eval") is not None, "pip install 'goldimask[harness]'")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rows = [{"question": f"{i} + 1 =", "answer": str(i + 1)} for i in range(4)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "sums.yaml").write_text(TASK.format(file=tmp_path / "sums.jsonl"))
    return tmp_path


def test_local_task_offline(sums):
    def answer(prompts):
        numbers = [int(p.split()[0]) for p in prompts]
        return [("7" if n == 2 else str(n + 1)) + "STOP and more" for n in numbers]

    where = {"include_path": str(sums), "include_defaults": False}
    results = run_harness(None, ["goldimask_sums"], answer=answer, **where)
    assert results["results"]["goldimask_sums"]["exact_match,none"] == pytest.approx(0.75)
    assert len(results["samples"]["goldimask_sums"]) == 4
    with pytest.raises(GoldimaskError, match="no task named"):
        run_harness(None, ["goldimask_nothing"], answer=answer, **where)


def command(monkeypatch, sums, *words: str) -> None:
    """lm-eval's command line, without the harness's own thousands of task files."""
    import lm_eval.tasks

    own = lm_eval.tasks.TaskManager

    def manager(include_path=None, metadata=None):
        return own(include_path=include_path, metadata=metadata, include_defaults=False)

    monkeypatch.setattr(lm_eval.tasks, "TaskManager", manager)
    where = ["--tasks", "goldimask_sums", "--include_path", str(sums)]
    monkeypatch.setattr(sys, "argv", ["lm_eval", "--model", "goldimask", *where, *words])
    harness.main()


def test_one_command(sums, monkeypatch):
    options = "pretrained=tiny,length=8,decoder=threshold,block=8,tau=0.9"
    words = ["--model_args", options, "--device", "cpu", "--batch_size", "2"]
    command(monkeypatch, sums, *words, "--output_path", str(sums / "out"), "--log_samples")
    found = json.loads(next((sums / "out").rglob("results_*.json")).read_text())
    assert found["results"]["goldimask_sums"]["sample_len"] == 4
    lines = next((sums / "out").rglob("samples_*.jsonl")).read_text().splitlines()
    said = {s["doc"]["question"]: s["resps"][0][0] for s in map(json.loads, lines)}
    import goldimask

    backbone = goldimask.load_backbone("tiny", device="cpu")
    alone = goldimask.decode(backbone, list(said), "threshold", length=8, block=8, tau=0.9)
    assert list(said.values()) == [cut(d.text, ["STOP"]) for d in alone]


@pytest.mark.parametrize(
    ("words", "match"),
    [
        (["--model_args", "length=8"], "pretrained=RUN is missing"),
        (["--model_args", "pretrained=tiny,tua=0.9"], "tua"),
        (["--model_args", "pretrained=tiny", "--batch_size", "auto"], "--batch_size"),
        (["--model_args", "pretrained=tiny", "--apply_chat_template"], "user turns"),
    ],
)
def test_mistakes_of_the_command(sums, monkeypatch, capsys, words, match):
    with pytest.raises(SystemExit) as stop:
        command(monkeypatch, sums, *words)
    assert stop.value.code == GoldimaskError.exit_code and match in capsys.readouterr().err


def test_the_entry_point_is_a_model_of_lm_eval():
    need("lm-eval", find_spec("lm_eval") is not None, "pip install 'goldimask[harness]'")
    from lm_eval.api.model import LM

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    group = "lm_eval.models"
    points = project["entry-points"][group]
    kind = EntryPoint(harness.NAME, points[harness.NAME], group).load()
    assert issubclass(kind, LM)
