"""Parts of the training loop that need no model, or a very small one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from goldimask.errors import GoldimaskError
from goldimask.methods import method
from goldimask.types import Batch, Example, Signal


def example(number: int, prompt: int = 2, response: int = 6) -> Example:
    flags = [False] * prompt + [True] * response
    return Example(list(range(prompt + response)), prompt, flags, number)


# --- trackers ------------------------------------------------------------------------------------


def test_trackers_are_checked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    from goldimask.train import arguments

    def trackers(value):
        return arguments.check_trainer({"report_to": value})["report_to"]

    assert trackers(None) == ["tensorboard"] and trackers("tensorboard") == ["tensorboard"]
    assert trackers("none") == [] and trackers([]) == []
    with pytest.raises(GoldimaskError, match="did you mean 'trackio'"):
        trackers("trakio")
    monkeypatch.setattr(arguments, "find_spec", lambda name: None)
    with pytest.raises(GoldimaskError, match=r"'wandb' is not installed; pip install"):
        trackers(["wandb"])


def test_trackers_are_the_trainers_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from goldimask.train.arguments import training_arguments

    def arguments(**values):
        fixed = {"seed": 1, "global_batch_size": 4, "has_validation": True, "name": "x"}
        return training_arguments(values, tmp_path, **fixed)

    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", "elsewhere")
    assert arguments().report_to == ["tensorboard"] and arguments().run_name == "x"
    assert os.environ["TENSORBOARD_LOGGING_DIR"] == str(tmp_path / "tensorboard")
    assert arguments(report_to="none").report_to == []


# --- the data before a run -----------------------------------------------------------------------


def test_length_table_and_boundary() -> None:
    from goldimask.train.preview import length_table, shown_examples

    examples = [example(i, prompt=2 + i, response=10) for i in range(11)]
    lines = length_table(examples)
    assert lines[0].split()[1:] == ["min", "10%", "median", "90%", "99%", "max"]
    assert lines[1].split() == ["prompt", "2", "3", "7", "11", "12", "12"]
    tokenizer = SimpleNamespace(decode=lambda ids, skip_special_tokens: " ".join(map(str, ids)))
    shown = shown_examples(tokenizer, examples[:1], 3, seed=0)
    assert "2 prompt tokens ┃ 10 response tokens, 10 supervisable" in shown[0]
    assert shown[1].startswith("0 1┃2 3")


# --- processes -----------------------------------------------------------------------------------


def test_environment_of_fsdp2_is_the_packaged_file() -> None:
    import yaml

    from goldimask.train.launch import config_file, environment

    assert environment("ddp") == {}
    found = environment("fsdp2")
    assert found["ACCELERATE_USE_FSDP"] == "true" and found["FSDP_VERSION"] == "2"
    assert found["FSDP_STATE_DICT_TYPE"] == "SHARDED_STATE_DICT"
    assert found["FSDP_OFFLOAD_PARAMS"] == "false"
    for kind in ("ddp", "fsdp2"):
        assert yaml.safe_load(config_file(kind).read_text())["compute_environment"]


def test_the_first_known_failure_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from goldimask.train import launch

    assert not launch.report_failure(RuntimeError("x"))  # nobody listens
    monkeypatch.setenv(launch.REPORTS, str(tmp_path))
    monkeypatch.setenv("RANK", "0")
    assert launch.report_failure(RuntimeError("connection closed by peer"))
    monkeypatch.setenv("RANK", "3")
    launch.report_failure(GoldimaskError("a bad row"))
    first = launch.first_report(tmp_path)
    assert first is not None and first["rank"] == 3
    ended = launch.Ended(first)
    assert str(ended) == "process 3: a bad row" and ended.exit_code == 2


def test_state_of_ranks_is_kept_apart() -> None:
    from goldimask.baselines.exchange import joined_state, own_state

    built = method("goldimask-d-dro")
    state = joined_state(built)
    assert set(state) == {"rank0.weigh.normaliser", "rank0.weigh.steps"}
    state["rank1.weigh.steps"] = torch.tensor(7)
    assert own_state(state, 1) == {"weigh.steps": torch.tensor(7)}
    assert own_state(state, 5).keys() == own_state(state, 0).keys()
    assert joined_state(method("vanilla")) == {}


# --- checkpoints ---------------------------------------------------------------------------------


def test_publish_replaces_a_damaged_checkpoint(tmp_path: Path) -> None:
    from goldimask.jobs import damage, publish
    from goldimask.train.folders import WRITING

    target = tmp_path / "checkpoint-4"
    target.mkdir()
    (target / "old.bin").write_text("x")
    written = tmp_path / WRITING / "checkpoint-4"
    written.mkdir(parents=True)
    (written / "new.bin").write_text("y")
    assert damage(target) == "it was not completely written"
    publish(written, target)
    assert damage(target) is None and not (target / "old.bin").exists()


def test_metrics_file_forgets_what_will_be_repeated(tmp_path: Path) -> None:
    from goldimask.train.callbacks import MetricsFile

    file = tmp_path / "metrics.jsonl"
    lines = [{"step": 1, "loss": 1.0}, {"step": 2, "loss": 1.0}, {"step": 2, "train_runtime": 3.0}]
    file.write_text("".join(json.dumps(x) + "\n" for x in lines) + '{"step": 2, "lo')
    state = SimpleNamespace(is_world_process_zero=True, global_step=1)
    MetricsFile(file).on_train_begin(None, state, None)
    assert [json.loads(x) for x in file.read_text().splitlines()] == lines[:1]


# --- signals -------------------------------------------------------------------------------------


def test_a_second_signal_acts_as_before() -> None:
    import signal

    from goldimask.train.callbacks import StopOnSignal

    before = signal.getsignal(signal.SIGINT)
    stopper = StopOnSignal()
    stopper.install()
    try:
        assert signal.getsignal(signal.SIGINT) != before
        os.kill(os.getpid(), signal.SIGINT)
        assert stopper.caught == "SIGINT"
    finally:
        stopper.remove()


def test_after_a_failure_elsewhere_a_signal_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import signal

    from goldimask.train.callbacks import StopOnSignal
    from goldimask.train.launch import REPORTS

    monkeypatch.setenv(REPORTS, str(tmp_path))
    (tmp_path / "rank-1.json").write_text("{}")
    stopper = StopOnSignal()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a background job
    stopper.install()
    try:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            stopper.on_step_end(None, SimpleNamespace(global_step=1, max_steps=2), None)
        assert stopper.caught is None
    finally:
        stopper.remove()
        signal.signal(signal.SIGINT, before)


# --- validation ----------------------------------------------------------------------------------


def test_lift_validation_uses_the_grid_and_redraws() -> None:
    from goldimask.train.validation import make_judge

    examples = [example(i, response=50) for i in range(5)]
    batch = _batch(examples)
    judge = make_judge(method("goldimask-d"), examples, seed=1, objective="lift")
    first = judge.method.noise(batch, judge.keys(100))
    again = judge.method.noise(batch, judge.keys(200))
    grid = 1e-3 + (1 - 1e-3) * np.linspace(0, 1, 5)
    assert first.t.tolist() == pytest.approx(grid.tolist(), abs=1e-6)
    assert first.rho[0] >= 0.1 and first.rho[-1] == 0
    assert not torch.equal(first.candidates, again.candidates)
    plain = make_judge(method("gift"), examples, seed=1, objective="lift")
    assert not plain.method.needs and float(plain.method.noise(batch, plain.keys(1)).rho.max()) == 0
    fixed = make_judge(method("gift"), examples, seed=1)
    assert fixed.keys(100) == fixed.keys(200)


def _batch(examples: list[Example]) -> Batch:
    from goldimask.data.batches import make_batch

    return make_batch(examples, 0)


# --- compilation ---------------------------------------------------------------------------------


def test_a_micro_batch_without_candidates_trains(small_model: Path) -> None:
    from goldimask.backbones import load_backbone

    backbone = load_backbone(str(small_model))
    batch = _batch([example(0), example(1)])
    both = frozenset({Signal.LOGP, Signal.ATTENTION})
    found = backbone.scorer(backbone.model, batch, torch.zeros_like(batch.response), both)
    assert found.attention is not None and found.attention.shape == (2, 0, 8)
    assert found.rows is not None and found.rows.shape == (2, 0)


def test_only_maximisers_are_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    from goldimask import methods

    compiled: list[tuple[str, ...]] = []
    monkeypatch.setattr(methods, "warmup", compiled.append)
    assert methods.warm_up(method("vanilla")) == () and methods.warm_up(method("lift-2")) == ()
    assert compiled == []
    assert methods.warm_up(method("goldimask-d")) == ("greedy",)
    assert methods.warm_up(method("goldimask-p")) == ("greedy", "practical")
    assert methods.warm_up(method("goldimask-a")) == ("greedy",)
    assert compiled == [("greedy",), ("greedy", "practical"), ("greedy",)]


def test_grace_is_a_number_of_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    from goldimask.train import launch

    monkeypatch.delenv(launch.GRACE, raising=False)
    assert launch.grace_seconds() == 30
    monkeypatch.setenv(launch.GRACE, "5")
    assert launch.grace_seconds() == 5
    for wrong in ("0", "soon", "-3", "1.5"):
        monkeypatch.setenv(launch.GRACE, wrong)
        with pytest.raises(GoldimaskError, match="GOLDIMASK_GRACE"):
            launch.grace_seconds()


# --- the attention layer -------------------------------------------------------------------------


def test_probe_becomes_an_index_and_is_kept(small_model: Path) -> None:
    from goldimask.backbones import load_backbone
    from goldimask.data.examples import load_examples
    from goldimask.train.attention_layer import resolve_layer

    backbone = load_backbone(str(small_model))
    examples, _ = load_examples("tiny-sft", backbone, limit=16)
    probed = method("goldimask-d", attention_layer="probe")
    said: list[str] = []
    found, table = resolve_layer(probed, backbone, examples[:8], examples[8:], 0, None, said.append)
    assert table is not None and found.attention_layer == table["best"] in (0, 1)
    assert len(table["rows"]) == 2 and "chosen by measurement" in said[0]
    other = {**table, "best": 1 - table["best"]}
    kept, _ = resolve_layer(probed, backbone, [], [], 0, other, said.append)
    assert kept.attention_layer == other["best"]  # a resumed run does not measure again
    plain, none = resolve_layer(
        method("vanilla", attention_layer="probe"), backbone, [], [], 0, None, said.append
    )
    assert plain.attention_layer == "last" and none is None


def test_speed_and_seconds_leave_pauses_out(monkeypatch: pytest.MonkeyPatch) -> None:
    from goldimask.train import meters

    now = [0.0]
    monkeypatch.setattr(meters.time, "perf_counter", lambda: now[0])
    clock = meters.Clock()
    speed = meters.Speed(clock)
    with clock.during("loading"):
        now[0] = 3.0
        with clock.during("training"):
            speed.add(80, 100)
            now[0] = 7.0
            with clock.during("validation"):
                now[0] = 17.0
            assert speed.pop() == {"tokens_per_s": 20.0, "pad_share": pytest.approx(0.2)}
            assert speed.pop() == {}
            now[0] = 18.0
        now[0] = 20.0
    found = clock.record()
    assert found.pop("hardware")[0]
    assert found == {"loading": 5.0, "training": 5.0, "validation": 10.0, "checkpoints": 0.0}
    again = meters.Clock()
    again.resume({**found, "hardware": ["4 x other"]})
    assert again.read("training") == 5.0 and again.hardware == ["4 x other", *clock.hardware]
