"""The runner: counts, resume after a kill, shards, other models refused."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from goldimask.errors import GoldimaskError
from goldimask.eval.run import EvalResult, Generated, evaluate
from goldimask.eval.tasks.base import Item, Task, Verdict, each


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
    )
    return replace(task, **changes)


class Parrot:
    """Says the right number except for multiples of three; counts what it is asked."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.asked: list[tuple[str, int, int]] = []
        self.fail_after = fail_after

    def __call__(
        self, prompts: Sequence[str], *, prefill: str, length: int, seed: int, raw: bool
    ) -> list[Generated]:
        if self.fail_after is not None and len(self.asked) + len(prompts) > self.fail_after:
            raise KeyboardInterrupt
        self.asked += [(p, length, seed) for p in prompts]
        numbers = [int(p.split()[1]) for p in prompts]
        return [Generated("" if k == 0 else str(k + (k % 3 == 0)), 4 + k % 2) for k in numbers]


def run(parrot: Parrot, task: Task | None = None, **options) -> EvalResult:
    options.setdefault("batch_size", 4)
    return evaluate(None, [task or make_task()], generate=parrot, **options)


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
    assert [(s.id, s.correct) for s in resumed.samples] == [
        (s.id, s.correct) for s in whole.samples
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
        assert all(s.index % 3 == rank for s in part.samples)
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


def test_other_decoding_or_prompt_is_decoded_again(tmp_path):
    run(Parrot(), out=tmp_path)
    other = Parrot()
    run(other, out=tmp_path, options={"tau": 0.5})
    assert len(other.asked) == 10
    changed = make_task(prefill="<reasoning>")
    again = Parrot()
    run(again, changed, out=tmp_path)
    assert len(again.asked) == 10


def test_new_rules_judge_again_without_decoding(tmp_path):
    run(Parrot(), out=tmp_path)
    strict = make_task(version="2", judge=each(lambda item, answer: False))
    parrot = Parrot()
    assert run(parrot, strict, out=tmp_path)["toy"].correct == 0
    assert parrot.asked == []


def test_other_model_is_refused(tmp_path):
    run(Parrot(), out=tmp_path, model_name="a")
    with pytest.raises(GoldimaskError, match="holds samples of 'a'"):
        run(Parrot(), out=tmp_path, model_name="b")


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
        evaluate(None, ["gsm9k"], generate=Parrot())


def test_backbone_decodes_with_prefill_and_special_tokens(small_model):
    from goldimask.backbones import load_backbone

    backbone = load_backbone(small_model)
    task = make_task(2, prefill="<reasoning>", raw=True)
    options = {"block": 8, "tau": 0.9}
    result = evaluate(backbone, [task], lengths=(16,), options=options, batch_size=2)
    assert result["toy"].n == 2 and 1 <= result["toy"].steps <= 16
    clean = evaluate(backbone, [make_task(2)], lengths=(16,), options=options, batch_size=2)
    assert all("<|" not in s.output for s in clean.samples)


def test_eval_verb(small_model, tmp_path):
    from typer.testing import CliRunner

    from goldimask.cli.app import app
    from goldimask.cli.eval import eval_command  # noqa: F401  registers the verb

    command = ["eval", str(small_model), "--tasks", "tiny-chain", "--limit", "3"]
    command += ["--lengths", "16,32", "--block", "8", "--out", str(tmp_path), "--json"]
    part = CliRunner().invoke(app, [*command, "--shard", "1/2"])
    assert json.loads(part.stdout)["results"][0]["n"] == 1
    whole = json.loads(CliRunner().invoke(app, command).stdout)
    assert [(r["length"], r["n"]) for r in whole["results"]] == [(16, 3), (32, 3)]
    assert whole["results"][0]["steps"] == 8  # two tokens a step, as published
    assert "selected on the test data" in whole["best_over_lengths"]["note"]
    lines = "".join(f.read_text() for f in tmp_path.glob("samples-*.jsonl")).splitlines()
    assert len(lines) == 6  # the shard's samples were not decoded again
    shown = CliRunner().invoke(app, command[:-1])
    assert "protocol fixed" in shown.stdout and shown.exit_code == 0


def test_samples_hold_what_the_record_promises(tmp_path):
    run(Parrot(), out=tmp_path)
    row = json.loads((tmp_path / "samples-0.jsonl").read_text().splitlines()[1])
    assert {"prompt_hash", "output", "extracted", "correct", "steps", "seconds"} <= set(row)
    assert row["output"] == "1" and row["correct"] is True


def test_a_backbone_decodes_a_task_in_one_running_batch(monkeypatch):
    """All prompts go into one call; samples are kept in the order of the problems."""
    from types import SimpleNamespace

    import goldimask.decoding

    calls = []

    def reversed_decode(backbone, prompts, settings, **options):
        calls.append((len(prompts), options["batch_size"]))
        for i in reversed(range(len(prompts))):
            yield i, SimpleNamespace(text=prompts[i], tokens=[], steps=i)

    monkeypatch.setattr(goldimask.decoding, "decode_iter", reversed_decode)
    task = make_task()
    seen = []
    found = evaluate(None, [task], batch_size=2, progress=seen.append)
    count = len(found.samples)
    assert calls == [(count, 2)] and sum(seen) == count
    assert [s.steps for s in found.samples] == list(range(count))
    assert [s.output for s in found.samples] == [task.prompt(i) for i in task.load(None)]
