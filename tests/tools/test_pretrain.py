"""Pretraining: the stream, the canvas, bit-exact repetition and resumption, and the script."""

from __future__ import annotations

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from goldimask.backbones import load_backbone
from goldimask.errors import GoldimaskError, RunFailed
from goldimask.keys import Keys, Stream
from goldimask.tiny.problem import is_test
from pretraining.canvas import batches, make_canvas, problem_number, trailing
from pretraining.model import new_backbone
from pretraining.optimisers import make_optimisers, rate
from pretraining.recipe import (
    CanvasSection,
    ModelSection,
    OptimSection,
    Pretraining,
    StageSection,
    WatchSection,
    load_pretraining,
    pretraining_yaml,
)
from pretraining.run import pretrain

RECIPE = Path(__file__).parents[2] / "tools" / "tiny-base.yaml"
SMALL = ModelSection(width=16, layers=2, heads=2, mlp=24)
QUIET = WatchSection(log_every=1, every=100, heldout=1, problems=0, checkpoint_every=2)


OPTIM = OptimSection(warmup=2, decay=2)
ONE = (StageSection(2, optim=OPTIM),)
TWO = (  # the second stage begins after a checkpoint, with another canvas and fresh moments
    StageSection(4, optim=OPTIM),
    StageSection(4, optim=OptimSection(muon_lr=0.01, warmup=0), canvas=CanvasSection(full=0.5)),
)


def small(output, stages: tuple[StageSection, ...] = TWO, **changes) -> Pretraining:
    base = Pretraining(
        output=str(output),
        batch_size=4,
        window=2,
        model=SMALL,
        stages=stages,
        watch=QUIET,
    )
    return dataclasses.replace(base, **changes)


@pytest.fixture(scope="module")
def backbone():
    return new_backbone(SMALL, seed=0)


def losses(folder) -> list[tuple[int, float]]:
    lines = (folder / "log.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    return [(r["step"], r["loss"]) for r in records if "loss" in r]


def same_tensors(a, b) -> bool:
    x, y = load_file(a), load_file(b)
    return x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)


def test_a_run_repeats_bit_by_bit_and_resumes_bit_by_bit(tmp_path):
    whole, again, broken = tmp_path / "whole", tmp_path / "again", tmp_path / "broken"
    pretrain(small(whole))
    pretrain(small(again))
    assert same_tensors(
        whole / "checkpoint/state.safetensors", again / "checkpoint/state.safetensors"
    )

    def stop(n=1, note="", taken=[]):  # noqa: B006
        taken.append(n)
        if len(taken) == 7:  # between two checkpoints: step 7 is lost and done again
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pretrain(small(broken), advance=stop)
    with (broken / "log.jsonl").open("a") as log:
        log.write('{"step": 7, "lo')  # a line cut off by the crash
    pretrain(small(broken), resume=True)
    assert losses(broken) == losses(whole) == losses(again)
    assert len(losses(whole)) == 8
    for name in ("checkpoint/state.safetensors", "model/model.safetensors"):
        assert same_tensors(whole / name, broken / name)
    assert not list(broken.glob(".*")), "temporary folders are left behind"


def test_another_seed_gives_another_run(tmp_path):
    pretrain(small(tmp_path / "a", ONE))
    pretrain(small(tmp_path / "b", ONE, seed=1))
    assert losses(tmp_path / "a") != losses(tmp_path / "b")


def test_a_run_may_get_another_stage_before_it_is_reached(tmp_path):
    pretrain(small(tmp_path / "whole"))
    pretrain(small(tmp_path / "parts", TWO[:1]))
    pretrain(small(tmp_path / "parts"), resume=True)  # exactly at the boundary
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    for part in ("checkpoint/state.safetensors", "model/model.safetensors"):
        assert same_tensors(tmp_path / "parts" / part, tmp_path / "whole" / part)
    with pytest.raises(GoldimaskError, match=r"stages\[1\]: the checkpoint was made with"):
        pretrain(small(tmp_path / "parts", (*TWO[:1], StageSection(6))), resume=True)


def test_resuming_in_the_middle_of_the_first_stage(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        pretrain(small(tmp_path / "broken"), advance=_stop_after(3))
    pretrain(small(tmp_path / "broken"), resume=True)
    pretrain(small(tmp_path / "whole"))
    assert losses(tmp_path / "broken") == losses(tmp_path / "whole")
    # nothing is left to do, and nothing is done
    before = (tmp_path / "whole" / "log.jsonl").read_text()
    pretrain(small(tmp_path / "whole"), resume=True)
    assert (tmp_path / "whole" / "log.jsonl").read_text() == before


def _stop_after(count: int):
    taken: list[int] = []

    def advance(n=1, note=""):
        taken.append(n)
        if len(taken) == count:
            raise KeyboardInterrupt

    return advance


def test_until_stops_on_the_way_and_can_be_resumed(tmp_path):
    pretrain(small(tmp_path / "whole"))
    last = pretrain(small(tmp_path / "parts"), until=3)
    assert last["step"] == 3
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")[:3]
    pretrain(small(tmp_path / "parts"), resume=True)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    with pytest.raises(GoldimaskError, match="until: 9 must lie between 1 and the run's 8"):
        pretrain(small(tmp_path / "more"), until=9)


def test_resuming_something_else_is_refused(tmp_path):
    with pytest.raises(GoldimaskError, match="no checkpoint to resume from"):
        pretrain(small(tmp_path / "none"), resume=True)
    pretrain(small(tmp_path / "run", ONE))
    with pytest.raises(GoldimaskError, match="batch_size: the checkpoint was made with 4"):
        pretrain(small(tmp_path / "run", ONE, batch_size=5), resume=True)
    with pytest.raises(GoldimaskError, match="holds a run"):
        pretrain(small(tmp_path / "run", ONE))


def test_a_loss_that_is_not_finite_stops_the_run(tmp_path, monkeypatch):
    from pretraining import run as module

    fresh = module.new_backbone

    def spoiled(section, seed):
        made = fresh(section, seed)
        with torch.no_grad():
            made.model.lm_head.weight.fill_(math.nan)
        return made

    monkeypatch.setattr(module, "new_backbone", spoiled)
    with pytest.raises(RunFailed, match="step 0: the loss is not finite"):
        pretrain(small(tmp_path / "run"))
    assert not (tmp_path / "run" / "checkpoint").exists()


def test_threads_are_those_of_the_recipe_and_restored(tmp_path):
    before = torch.get_num_threads()
    seen: list[int] = []
    try:
        torch.set_num_threads(2)
        pretrain(small(tmp_path, ONE), advance=lambda n, note: seen.append(torch.get_num_threads()))
        assert torch.get_num_threads() == 2 and set(seen) == {1}
    finally:
        torch.set_num_threads(before)


def test_the_log_measures_loss_and_accuracy(tmp_path):
    watch = dataclasses.replace(QUIET, problems=1, length=8, block=4)
    last = pretrain(small(tmp_path, ONE, watch=watch))
    assert last["step"] == 2 and set(last["test"]) == set(last["test_loss"])
    assert all(math.isfinite(x) for x in last["test_loss"].values())
    assert all(1 <= v["steps"] <= 8 for v in last["test"].values())
    assert json.loads((tmp_path / "log.jsonl").read_text().splitlines()[-1]) == last


def test_schedule():
    section = OptimSection(warmup=4, decay=5, floor=0.0)
    rates = [rate(section, i, 20) for i in range(20)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0] and set(rates[4:16]) == {1.0}
    assert rates[15:] == pytest.approx([1.0, 0.8, 0.6, 0.4, 0.2])


def test_every_parameter_has_one_optimiser(backbone):
    optimisers = make_optimisers(backbone.model, OptimSection())
    decayed, kept = optimisers.adam.param_groups
    assert {p.ndim for p in decayed["params"]} == {2} and decayed["weight_decay"] > 0
    assert {p.ndim for p in kept["params"]} == {1} and kept["weight_decay"] == 0
    assert len(decayed["params"]) == 2  # embedding and head
    assert all("layers" in name for name in optimisers.momenta)
    count = len(decayed["params"]) + len(kept["params"]) + len(optimisers.momenta)
    assert count == len(list(backbone.model.parameters()))


def test_batches_have_no_padding_and_cover_the_stream_once(backbone, tmp_path):
    recipe = small(tmp_path)
    get = batches(recipe, backbone)
    seen: list[int] = []
    for step in range(8):
        batch = get(step)
        seen += batch.example_id.tolist()
        assert not batch.padded and batch.valid.all() and batch.attention_mask() is None
        for row in range(batch.size):
            number = int(batch.example_id[row])
            canvas = make_canvas(recipe, backbone, number, recipe.stage(step)[0])
            n = len(canvas.ids)
            assert batch.ids[row, :n].tolist() == canvas.ids
            assert (batch.ids[row, n:] == backbone.pad_id).all()
            assert not batch.response[row, : canvas.prompt_length].any()
            assert batch.response[row, canvas.prompt_length :].all()
            assert backbone.turn_end_id in canvas.ids[canvas.prompt_length :]
    assert sorted(seen) == list(range(32))
    assert torch.equal(get(1).ids, batches(recipe, backbone)(1).ids)  # whatever was asked before


def test_pretraining_never_sees_a_test_problem(tmp_path):
    recipe = small(tmp_path)
    for number in range(300):
        problem = problem_number(recipe, number, recipe.stages[0])
        assert not is_test(problem.task, problem.key)


def test_the_mix_is_obeyed(tmp_path):
    recipe = small(tmp_path, mix={"chain": 3.0, "sort": 1.0})
    tasks = [problem_number(recipe, i, recipe.stages[0]).task for i in range(200)]
    assert set(tasks) == {"chain", "sort"} and 120 <= tasks.count("chain") <= 180
    other = StageSection(4, mix={"story": 1.0})
    assert {problem_number(recipe, i, other).task for i in range(20)} == {"story"}


def test_a_stage_has_its_own_share_of_hard_problems(tmp_path):
    recipe = small(tmp_path, mix={"sort": 1.0})
    length = {
        share: np.mean(
            [
                len(problem_number(recipe, i, StageSection(4, hard=share)).answer.split())
                for i in range(100)
            ]
        )
        for share in (0.0, 0.5, 1.0)
    }
    assert length[0.0] < 4.0 < length[0.5] < 6.0 < length[1.0]


def test_a_dream_model_is_pretrained_with_the_shift(tmp_path):
    section = dataclasses.replace(SMALL, family="dream")
    pretrain(small(tmp_path / "a", ONE, model=section))
    pretrain(small(tmp_path / "b", ONE, model=section))
    assert losses(tmp_path / "a") == losses(tmp_path / "b")
    backbone = load_backbone(tmp_path / "a" / "model")
    assert backbone.family.name == "dream" and backbone.shift
    assert len(backbone.tokenizer) == backbone.model.config.vocab_size
    problem = problem_number(small(tmp_path), 3, ONE[0])
    assert backbone.decode(backbone.response_ids(problem.response)) == problem.response


def test_trailing_end_tokens():
    section = CanvasSection(short=0.3, short_length=8, full=0.3, lengths=(64, 96))
    draws = [trailing(section, Keys(0).rng(i, Stream.ORDER), 50) for i in range(600)]
    counts = {n: draws.count(n) for n in set(draws)}
    assert set(counts) == {*range(9), 14, 46}
    assert 120 <= counts[14] + counts[46] <= 240 and counts[0] > 200
    full = CanvasSection(short=0.0, full=1.0, lengths=(32,))
    assert trailing(full, np.random.Generator(np.random.Philox(0)), 50) == 0  # already longer


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["stagse=3"], "stagse: unknown key; did you mean 'stages'"),
        (["model.widht=3"], "model.widht: unknown key; did you mean 'width'"),
        (
            ["stages=[{steps: 4, optim: {ls: 3}}]"],
            "stages[0].optim.ls: unknown key; did you mean 'lr'",
        ),
        (["batch_size=many"], "batch_size: Input should be a valid integer"),
        (["batch_size=0"], "batch_size: 0 must be at least 1"),
        (["stages=[{steps: 6}]"], "stages[0].steps: 6 must be a positive multiple of window = 4"),
        (["stages=[]"], "stages: at least one is needed"),
        (["model.width=32"], "model.width: 32 must be a multiple"),
        (["stages=[{steps: 4, hard: 2}]"], "stages[0].hard: 2.0 must lie in [0, 1]"),
        (["stages=[{steps: 4, frontier: -1}]"], "stages[0].frontier: -1.0 must lie in"),
        (["model.family=qwen"], "model.family: Input should be 'llada' or 'dream'"),
        (["noise_floor=0"], "noise_floor: 0.0 must lie in"),
        (["mix.chian=1"], "mix.chian: unknown family of problems; did you mean 'chain'"),
        (["mix.chain=0"], "mix.chain: 0.0 must be positive"),
        (
            ["stages=[{steps: 4, mix: {sotr: 1}}]"],
            "stages[0].mix.sotr: unknown family of problems; did you mean 'sort'",
        ),
    ],
)
def test_recipes_are_strict(words, message):
    with pytest.raises(GoldimaskError, match=r"tools/tiny-base\.yaml: ") as error:
        load_pretraining(RECIPE, words)
    assert message in str(error.value)


def test_the_recipe_round_trips(tmp_path):
    recipe = load_pretraining(RECIPE)
    file = tmp_path / "copy.yaml"
    file.write_text(pretraining_yaml(recipe))
    assert load_pretraining(file) == recipe
    with pytest.raises(GoldimaskError, match="no such recipe"):
        load_pretraining(tmp_path / "missing.yaml")


def test_the_script_prints_one_json_object(tmp_path):
    words = [f"output={tmp_path}/run", "stages=[{steps: 2}]", "batch_size=2", "window=1"]
    words += ["model.width=16", "model.layers=1", "model.heads=2", "model.mlp=16"]
    words += ["watch.problems=0", "watch.heldout=1"]
    script = RECIPE.with_name("pretrain.py")
    command = [sys.executable, str(script), str(RECIPE), *words, "--json"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    printed = json.loads(result.stdout)
    assert printed["step"] == 2 and printed["output"] == f"{tmp_path}/run"
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
