"""lm-eval on our decoders, with a local JSON task and no network."""

from __future__ import annotations

import json
from importlib.util import find_spec

import pytest

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


def test_local_task_offline(tmp_path, monkeypatch):
    need("lm-eval", find_spec("lm_eval") is not None, "pip install 'goldimask[harness]'")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    rows = [{"question": f"{i} + 1 =", "answer": str(i + 1)} for i in range(4)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    (tmp_path / "sums.yaml").write_text(TASK.format(file=tmp_path / "sums.jsonl"))

    def answer(prompts):
        numbers = [int(p.split()[0]) for p in prompts]
        return [("7" if n == 2 else str(n + 1)) + "STOP and more" for n in numbers]

    where = {"include_path": str(tmp_path), "include_defaults": False}
    results = run_harness(None, ["goldimask_sums"], answer=answer, **where)
    assert results["results"]["goldimask_sums"]["exact_match,none"] == pytest.approx(0.75)
    assert len(results["samples"]["goldimask_sums"]) == 4
    with pytest.raises(GoldimaskError, match="no task named"):
        run_harness(None, ["goldimask_nothing"], answer=answer, **where)
