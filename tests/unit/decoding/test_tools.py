"""Files of prompts, and the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from builders import write_llada
from goldimask.backbones import load_backbone
from goldimask.cli import app
from goldimask.decoding import decode, make_settings
from goldimask.decoding.prompt_file import backbone_records, decode_rows, read_prompts
from goldimask.decoding.show import canvas, colour, legend
from goldimask.errors import GoldimaskError

ROOT = Path(__file__).resolve().parents[3]
SMALL = {"length": 12, "block": 8}
ROWS = [{"prompt": f"{i} + {i} = ?", "id": f"q{i}"} for i in range(5)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_llada(tmp_path_factory.mktemp("run") / "model")


@pytest.fixture(scope="module")
def call():
    runner = CliRunner()

    def run(*words, stdin=None):
        return runner.invoke(app, [str(w) for w in words], input=stdin, catch_exceptions=False)

    return run


def test_file_is_resumed(llada, tmp_path):
    settings = make_settings(**SMALL, temperature=1.0)

    def run(out, rows=ROWS, settings=settings):
        answer = backbone_records(llada, settings, batch_size=2)
        return decode_rows(answer, rows, out, settings, model="m")

    whole = run(tmp_path / "whole.jsonl")
    assert (whole.prompts, whole.decoded, whole.found) == (5, 5, 0)
    lines = (tmp_path / "whole.jsonl").read_text().splitlines(keepends=True)
    assert [json.loads(x)["id"] for x in lines] == [f"q{i}" for i in range(5)]
    part = tmp_path / "part.jsonl"
    part.write_text(lines[3] + lines[1] + lines[4][:40])  # killed while writing
    report = run(part)
    assert (report.decoded, report.found) == (3, 2)
    assert part.read_text() == (tmp_path / "whole.jsonl").read_text()
    with pytest.raises(GoldimaskError, match="choose another --out"):
        run(part, settings=make_settings(length=13, block=8, temperature=1.0))
    with pytest.raises(GoldimaskError, match="choose another --out"):
        run(part, ROWS[1:])
    part.write_text('[1]\n{"index": "0"}\n')
    with pytest.raises(GoldimaskError, match=r"part\.jsonl:1: .* choose another --out"):
        run(part)
    with pytest.raises(GoldimaskError, match=r"must end in \.jsonl"):
        run(tmp_path / "answers.txt")


@pytest.mark.parametrize("line", ["{", "[]", '{"text": 1}', '{"prompt": "a", "messages": []}'])
def test_bad_prompt_files(tmp_path, line):
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "fine"}\n' + line + "\n")
    with pytest.raises(GoldimaskError, match=r"p\.jsonl:2"):
        read_prompts(path)


def test_cli_decode(call, folder, tmp_path):
    common = (folder, "--length", 12, "--block", 8, "--tau", 0.5)
    found = json.loads(call("decode", *common[:1], "a", *common[1:], "--json", "--trace").stdout)
    (response,) = found["responses"]
    backbone = load_backbone(folder)
    expected = decode(backbone, ["a"], length=12, block=8, tau=0.5)[0]
    assert response["tokens"] == expected.tokens and response["steps"] == expected.steps
    assert sum(len(c["positions"]) for c in response["trace"]) == 12
    shown = call("decode", *common[:1], "a", *common[1:], "--show")
    assert shown.exit_code == 0 and "step" in shown.stdout
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(r) + "\n" for r in ROWS[:2]))
    made = call("decode", *common, "--file", tmp_path / "p.jsonl", "--out", tmp_path / "a.jsonl")
    assert made.exit_code == 0
    assert len((tmp_path / "a.jsonl").read_text().splitlines()) == 2


def test_cli_decode_writes_a_replay(call, folder, tmp_path):
    page = tmp_path / "r.html"
    options = ("--length", "12", "--block", "8", "--tau", "0.5", "--html", page, "--json")
    made = json.loads(call("decode", folder, "a", "--against", folder, *options).stdout)
    first, second = made["responses"]
    assert first["tokens"] == second["tokens"] and first["label"] != second["label"]
    text = page.read_text("utf-8")
    assert made["page"] == str(page) and first["label"].split("/")[-1] in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("decode", "RUN"), "give a prompt or --file"),
        (("decode", "RUN", "a", "--out", "x"), "--file needs --out"),
        (("decode", "RUN", "a", "--tau", "2"), "tau: expected"),
        (("decode", "RUN", "a", "--decoder", "x"), "unknown decoder"),
        (("decode", "RUN", "a", "--decoder", "random", "--tau", "0.9"), "tau: decoder 'random'"),
        (("chat", "RUN", "--decoder", "factor", "--tau", "0.9"), "tau: decoder 'factor'"),
        (("decode", "RUN", "a", "--show", "--json"), "--show is for one prompt"),
        (("decode", "RUN", "a", "--show", "--html", "x"), "--html is for one prompt"),
        (("decode", "RUN", "a", "--against", "x"), "--against needs --html"),
        (("eval", "RUN", "--tasks", "x", "--tau", "a"), "--tau: expected numbers"),
        (("eval", "RUN", "--tasks", "gsm8k", "--tau", "0.9"), "'low-confidence', which has no thr"),
    ],
)
def test_cli_mistakes(call, words, message):
    with pytest.raises(GoldimaskError, match=message):
        call(*words)


def test_cli_chat(call, folder):
    made = call("chat", folder, "--length", 8, stdin="7 - 5 = ?\n\n/reset\nagain\n/quit\nnever\n")
    assert made.exit_code == 0
    backbone = load_backbone(folder)
    first = decode(backbone, ["7 - 5 = ?"], length=8, eos_stop=True)[0].text
    assert first in made.stdout


def test_picture(llada):
    (made,) = decode(llada, ["a"], **SMALL)
    half = canvas(llada.tokenizer, made.trace[: made.steps // 2], 12, made.steps)
    assert half.plain.count("·") >= 1
    full = canvas(llada.tokenizer, made.trace, 12, made.steps).plain
    assert len(full) > 0 and legend(made.steps).plain.startswith("step")
    assert colour(1, 9) != colour(9, 9)


def test_benchmark(llada):
    from importlib.util import module_from_spec, spec_from_file_location

    spec = spec_from_file_location("bench", ROOT / "benchmarks" / "decode.py")
    assert spec is not None and spec.loader is not None
    bench = module_from_spec(spec)
    spec.loader.exec_module(bench)
    result = bench.bench_decode(
        llada, ["a", "7 - 5"], batches=(1, 2), length=12, block=8, repeats=1
    )
    assert [(r["batch"], r["engine"]) for r in result["rows"]] == [
        (1, "straightforward"),
        (1, "engine"),
        (2, "straightforward"),
        (2, "engine"),
        (2, "one-token"),
    ]
    assert all(r["same_tokens"] in (True, None) for r in result["rows"])
    assert result["rows"][-1]["steps_mean"] == 12 and result["steps_ratio"] >= 1
