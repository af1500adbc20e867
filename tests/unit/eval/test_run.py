"""The runner: counts, resume after a kill, shards, other models refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from goldimask.errors import GoldimaskError
from goldimask.eval.run import EvalResult, Model, Response, evaluate
from goldimask.eval.tasks import get_task
from goldimask.eval.tasks.base import PUBLISHED, Item, Task, Verdict, each
from goldimask.jobs import locked
from goldimask.records import (
    Decoding,
    read_evaluation,
    read_manifest,
    read_outcomes,
    unfinished,
)
from goldimask.thresholds import points as points_of
from goldimask.thresholds import reductions

THRESHOLD = Decoding(decoder="threshold", options={"block": 32, "tau": 0.9})


def make_task(n: int = 10, name: str = "toy", **changes) -> Task:
    """Item i asks for the number i."""
    items = [Item(f"toy/{i}", f"say {i}", str(i)) for i in range(n)]
    task = Task(
        name=name,
        version="1",
        load=lambda source: list(items),
        extract=lambda text: text.strip() or None,
        judge=each(lambda item, answer: answer == item.gold),
        length=8,
        decoding=THRESHOLD,
    )
    return replace(task, **changes)


class Parrot:
    """Says the right number except for multiples of three; counts what it is asked."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.ways: list[Decoding] = []
        self.fail_after = fail_after

    def __call__(
        self,
        prompts: Sequence[str],
        *,
        prefill: str,
        length: int,
        seed: int,
        raw: bool,
        decoding: Decoding,
    ) -> Iterator[tuple[int, str, int]]:
        self.ways.append(decoding)
        for i, prompt in enumerate(prompts):
            if len(self.asked) == self.fail_after:
                raise KeyboardInterrupt
            self.asked.append((prompt, length, seed))
            k = int(prompt.split()[1])
            yield Response(i, "" if k == 0 else str(k + (k % 3 == 0)), 4 + k % 2)


def run(parrot: Parrot, task: Task | None = None, **options) -> EvalResult:
    options.setdefault("batch_size", 4)
    options.setdefault("model", Model("parrot", "0"))
    return evaluate(None, [task or make_task()], answer=parrot, **options)


def test_counts_and_interval():
    result = run(Parrot())["toy"]
    assert (result.n, result.correct, result.unparsable) == (10, 6, 1)
    assert result.accuracy == pytest.approx(0.6)
    assert result.low == pytest.approx(0.3127, abs=1e-4)
    assert result.high == pytest.approx(0.8318, abs=1e-4)
    assert result.steps == pytest.approx(4.5)


def test_resume_after_a_kill_decodes_nothing_twice(tmp_path):
    first = Parrot(fail_after=7)
    with pytest.raises(KeyboardInterrupt):
        run(first, out=tmp_path)
    file = tmp_path / "samples-0.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    assert len(lines) == 4
    file.write_text("".join(lines[:-1]) + lines[-1][:25])  # the kill tore the last line
    second = Parrot()
    resumed = run(second, out=tmp_path)
    assert sorted(p for p, _, _ in second.asked) == sorted(f"say {i}" for i in range(3, 10))
    whole = run(Parrot())
    assert [(s.item, s.correct) for s in resumed.outcomes] == [
        (s.item, s.correct) for s in whole.outcomes
    ]
    third = Parrot()
    assert run(third, out=tmp_path)["toy"].n == 10 and third.asked == []


def test_damaged_line_is_named_not_skipped(tmp_path):
    run(Parrot(), out=tmp_path)
    file = tmp_path / "samples-0.jsonl"
    file.write_text('{"task": "toy"}\n' + file.read_text())
    with pytest.raises(GoldimaskError, match=r"samples-0\.jsonl:1"):
        run(Parrot(), out=tmp_path)


def test_shards_are_disjoint_and_complete(tmp_path):
    parrots = [Parrot() for _ in range(3)]
    for rank, parrot in enumerate(parrots):
        part = run(parrot, out=tmp_path, shard=(rank, 3))
        assert all(s.index % 3 == rank for s in part.outcomes)
    assert len({x for p in parrots for x in p.asked}) == 10
    assert sum(len(p.asked) for p in parrots) == 10
    last = Parrot()
    assert run(last, out=tmp_path)["toy"].n == 10 and last.asked == []


def test_lengths_and_seeds_are_separate_cells(tmp_path):
    parrot = Parrot()
    result = run(parrot, lengths=(8, 16), seeds=(0, 1), out=tmp_path)
    assert [(r.length, r.seed, r.n) for r in result.results] == [
        (8, 0, 10),
        (8, 1, 10),
        (16, 0, 10),
        (16, 1, 10),
    ]
    assert len(parrot.asked) == 40


def test_another_decoding_is_another_trial_and_another_prompt_is_refused(tmp_path):
    run(Parrot(), out=tmp_path)
    other = Parrot()
    run(other, out=tmp_path, options={"tau": 0.5})
    assert len(other.asked) == 10
    again = Parrot()
    with pytest.raises(GoldimaskError, match="another prompt of toy, toy/0"):
        run(again, make_task(prefill="<reasoning>"), out=tmp_path)
    assert again.asked == []


def test_new_rules_judge_again_without_decoding(tmp_path):
    run(Parrot(), out=tmp_path)
    strict = make_task(version="2", judge=each(lambda item, answer: False))
    parrot = Parrot()
    assert run(parrot, strict, out=tmp_path)["toy"].correct == 0
    assert parrot.asked == []


def test_answers_judged_again_by_another_process_count(tmp_path):
    """Decoded by shard 1, judged again by the whole: its file is read before that of shard 1."""
    for rank in (0, 1):
        run(Parrot(), out=tmp_path, shard=(rank, 2))
    strict = make_task(version="2", judge=each(lambda item, answer: False))
    run(Parrot(), strict, out=tmp_path)
    found = read_evaluation(tmp_path)[1]
    assert len(found) == 10 and {o.version for o in found} == {"2"}
    assert not any(o.correct for o in found)


def test_other_model_is_refused(tmp_path):
    run(Parrot(), out=tmp_path, model=Model("a", "1"))
    with pytest.raises(GoldimaskError, match=r"results of a .*weights 1.* not of b .*weights 2"):
        run(Parrot(), out=tmp_path, model=Model("b", "2"))
    with pytest.raises(GoldimaskError, match="not of a"):
        run(Parrot(), out=tmp_path, model=Model("a", "1", dtype="bfloat16"))
    assert run(Parrot(), out=tmp_path, model=Model("a again", "1"))["toy"].n == 10
    with pytest.raises(GoldimaskError, match="say with `model`"):
        run(Parrot(), out=tmp_path, model=None)


def test_answers_without_a_manifest_are_nobodys(tmp_path):
    run(Parrot(), out=tmp_path)
    (tmp_path / "manifest.json").unlink()
    with pytest.raises(GoldimaskError, match="no manifest"):
        run(Parrot(), out=tmp_path)
    with pytest.raises(GoldimaskError, match="whose answers"):
        read_evaluation(tmp_path)


def test_answers_of_replaced_weights_are_refused(small_model, tmp_path):
    """A run is evaluated, then trained again under the same name: nothing old is shown."""
    folder = tmp_path / "run"
    shutil.copytree(small_model, folder / "model")
    (folder / "recipe.yaml").write_text(f"backbone: {{name: tiny, path: {small_model}}}\n")
    run(Parrot(), model=folder, out=folder / "eval")
    assert len(read_evaluation(folder)[1]) == 10
    tokenizer = folder / "model" / "tokenizer_config.json"
    tokenizer.write_text(tokenizer.read_text() + "\n")
    with pytest.raises(GoldimaskError, match=r"holds the results of run .* not of run"):
        run(Parrot(), model=folder, out=folder / "eval")
    with pytest.raises(GoldimaskError, match="but the run now holds"):
        read_evaluation(folder)


def test_manifest_tells_what_is_unfinished(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(Parrot(fail_after=7), out=tmp_path)
    manifest = read_manifest(tmp_path)
    assert manifest is not None and manifest.kind == "evaluate"
    ((trial, done),) = unfinished(manifest, list(read_outcomes(tmp_path).values()))
    assert (trial.task, trial.items, done) == ("toy", 10, 4)
    run(Parrot(), out=tmp_path)
    assert unfinished(manifest, list(read_outcomes(tmp_path).values())) == []
    run(Parrot(), out=tmp_path, limit=3)  # fewer problems of the same trial
    manifest = read_manifest(tmp_path)
    assert manifest is not None and [t.items for t in manifest.trials] == [10]


def test_one_writer_per_shard(tmp_path):
    with locked(tmp_path / "e", part="0"):
        with pytest.raises(GoldimaskError, match="being written by process"):
            run(Parrot(), out=tmp_path / "e")
        assert run(Parrot(), out=tmp_path / "e", shard=(1, 2))["toy"].n == 5


def test_each_task_has_its_own_decoder():
    parrot = Parrot()
    said: list[str] = []
    run(parrot, say=said.append, options={"block": None, "temperature": None})
    assert parrot.ways == [THRESHOLD] and "threshold block=32 tau=0.9" in said[0]
    run(parrot, make_task(decoding=PUBLISHED))
    assert parrot.ways[-1].label == "low-confidence block=32"
    run(parrot, decoder="fast-dllm", options={"block": 8})  # another name of `threshold`
    assert parrot.ways[-1].label == "threshold block=8 tau=0.9"
    assert get_task("tiny-chain").decoding == THRESHOLD
    assert get_task("gsm8k").decoding == PUBLISHED


def test_another_decoder_keeps_the_temperature_of_a_task():
    """AIME's sixteen samples would else be one sample sixteen times."""
    aime = get_task("aime24")
    task = make_task(2, samples=aime.samples, decoding=aime.decoding)
    parrot = Parrot()
    found = run(parrot, task, decoder="threshold")
    assert [r.metric for r in found.results] == ["pass@16"] and len(parrot.ways) == 16
    assert found["toy"].accuracy == found.pass_at("toy", 16)
    assert parrot.ways[-1].label == "threshold block=32 tau=0.9 temperature=0.7"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"taus": (0.7, 0.9), "decoder": "low-confidence"}, "has no threshold"),
        ({"options": {"tau": 0.5}, "decoder": "random"}, "has no threshold"),
        ({"taus": (2.0,)}, "tau: expected"),
        ({"options": {"blok": 8}}, "did you mean 'block'"),
        ({"decoder": "treshold"}, "did you mean 'threshold'"),
        ({"lengths": (0,)}, "positive lengths"),
    ],
)
def test_bad_decodings_are_refused_before_anything_is_decoded(options, message):
    parrot = Parrot()
    with pytest.raises(GoldimaskError, match=message):
        run(parrot, **options)
    assert parrot.asked == []


def test_a_sweep_is_an_evaluation_with_several_thresholds(tmp_path):
    taus = (0.7, 0.9)
    parrot = Parrot()
    found = run(parrot, taus=taus, out=tmp_path)
    assert [r.decoding.options["tau"] for r in found.results] == [0.7, 0.9]
    assert len(parrot.asked) == 20
    again = Parrot()
    run(again, taus=(0.7, 0.8, 0.9), out=tmp_path)
    assert len(again.asked) == 10 and again.ways[0].options["tau"] == 0.8
    runs = {"ours": read_evaluation(tmp_path)[1], "base": found.outcomes}
    points = [p for name, o in runs.items() for p in points_of(name, o, name == "base")]
    assert [(p.run, p.tau, p.n) for p in points] == [
        *(("ours", tau, 10) for tau in (0.7, 0.8, 0.9)),
        *(("base", tau, 10) for tau in taus),
    ]
    assert points[0].accuracy == pytest.approx(0.6) and points[0].steps == pytest.approx(4.5)
    saved = reductions(points)
    assert [(r.point.tau, r.reduction, r.accuracy_difference) for r in saved] == [
        (0.7, 0, 0),
        (0.9, 0, 0),
    ]
    more = run(Parrot(), taus=taus, options={"block": 8}).outcomes
    names = {p.decoder for p in points_of("x", [*found.outcomes, *more], False)}
    assert names == {"threshold block=32", "threshold block=8"}


def test_one_evaluation_imports_few_modules():
    code = (
        "import sys\n"
        "from goldimask.eval.run import plan_trials\n"
        "plan_trials(['tiny-chain'], limit=2)\n"
        "print(len([m for m in sys.modules if m.split('.')[0] == 'goldimask']))\n"
        "no = ('goldimask.methods', 'goldimask.select')\n"
        "print([m for m in sys.modules if m.startswith(no)])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    count, methods = done.stdout.splitlines()
    assert int(count) <= 55 and methods == "[]"


def test_limit_and_progress():
    seen: list[int] = []
    parrot = Parrot()
    assert run(parrot, limit=5, progress=seen.append)["toy"].n == 5
    assert sum(seen) == 5 and len(parrot.asked) == 5


def test_partial_credit_is_pooled():
    def judge(items, answers):
        return [Verdict(i == 0, hits=8 if i == 0 else 2, of=8) for i in range(len(items))]

    result = run(Parrot(), make_task(4, judge=judge, metric="cell accuracy"))["toy"]
    assert result.accuracy == pytest.approx(14 / 32)
    assert (result.correct, result.solved, result.metric) == (1, 0.25, "cell accuracy")


def test_unknown_task_has_a_hint():
    with pytest.raises(GoldimaskError, match="tasks: unknown task"):
        evaluate(None, ["gsm9k"], answer=Parrot())


def test_backbone_decodes_with_prefill_and_special_tokens(small_model):
    from goldimask.backbones import load_backbone

    backbone = load_backbone(small_model)
    task = make_task(2, prefill="<reasoning>", raw=True)
    options = {"block": 8, "tau": 0.9}
    result = evaluate(backbone, [task], lengths=(16,), options=options, batch_size=2)
    assert result["toy"].n == 2 and 1 <= result["toy"].steps <= 16
    clean = evaluate(backbone, [make_task(2)], lengths=(16,), options=options, batch_size=2)
    assert all("<|" not in s.output for s in clean.outcomes)


def test_eval_verb(small_model, tmp_path):
    from typer.testing import CliRunner

    from goldimask.cli.app import app

    command = ["eval", str(small_model), "--tasks", "tiny-chain", "--limit", "3"]
    command += ["--lengths", "16,32", "--block", "8", "--out", str(tmp_path), "--json"]
    part = CliRunner().invoke(app, [*command, "--shard", "1/2"])
    assert json.loads(part.stdout)["results"][0]["n"] == 1
    whole = json.loads(CliRunner().invoke(app, command).stdout)
    assert [(r["length"], r["n"]) for r in whole["results"]] == [(16, 3), (32, 3)]
    assert whole["results"][0]["decoding"]["options"] == {"block": 8, "tau": 0.9}
    assert "selected on the test data" in whole["best_over_lengths"]["note"]
    lines = "".join(f.read_text() for f in tmp_path.glob("samples-*.jsonl")).splitlines()
    assert len(lines) == 6  # the shard's samples were not decoded again
    shown = CliRunner().invoke(app, command[:-1])
    assert "protocol fixed" in shown.stdout and shown.exit_code == 0
    refused = CliRunner().invoke(app, [*command, "--decoder", "random", "--tau", "0.5"])
    assert "has no threshold" in str(refused.exception)
    swept = CliRunner().invoke(app, [*command, "--tau", "0.5,0.9"])
    assert len(json.loads(swept.stdout)["results"]) == 4
    chosen = json.loads(swept.stdout)["best_over_lengths"]
    assert "tiny-chain, threshold block=8 tau=0.5" in chosen


def test_samples_hold_what_the_record_promises(tmp_path):
    run(Parrot(), out=tmp_path)
    row = json.loads((tmp_path / "samples-0.jsonl").read_text().splitlines()[1])
    assert {"prompt", "decoding", "output", "extracted", "correct", "steps", "seconds"} <= set(row)
    assert row["output"] == "1" and row["correct"] is True


def test_a_backbone_decodes_a_task_in_one_running_batch(monkeypatch):
    """All prompts go into one call; samples are kept in the order of the problems."""
    from types import SimpleNamespace

    import goldimask.decoding

    calls = []

    def reversed_decode(backbone, prompts, settings, **options):
        calls.append((len(prompts), options["batch_size"]))
        for i in reversed(range(len(prompts))):
            yield i, SimpleNamespace(text=prompts[i], tokens=[5, 6, 1, 1], steps=i, prompt_ids=[i])

    monkeypatch.setattr(goldimask.decoding, "decode_iter", reversed_decode)
    task = make_task()
    seen = []
    backbone: Any = SimpleNamespace(pad_id=0, turn_end_id=1)
    found = evaluate(backbone, [task], batch_size=2, progress=seen.append)
    count = len(found.outcomes)
    assert calls == [(count, 2)] and sum(seen) == count
    assert [s.steps for s in found.outcomes] == list(range(count))
    assert {s.tokens for s in found.outcomes} == {2}  # before the end
    assert len({s.rendered for s in found.outcomes}) == count
    assert [s.output for s in found.outcomes] == [task.prompt(i) for i in task.load(None)]
