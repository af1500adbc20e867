"""Tests that run on the rehearsal device, in a process that `test_rehearsal.py` starts.

bfloat16 base, float32 adapters, autocast: what a GPU user runs. Host waits are counted.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from transformers import TrainerCallback
from typer.testing import CliRunner

from device import rehearsal
from goldimask import decode, load_backbone, method
from goldimask.backbones.lora import add_lora
from goldimask.cli import app
from goldimask.data.batches import make_batch
from goldimask.decoding.rules import DECODERS
from goldimask.errors import RunFailed
from goldimask.keys import Keys
from goldimask.metrics import MetricPool, step_metrics
from goldimask.presets import PRESETS
from goldimask.processes import clock
from goldimask.select import dense
from goldimask.select.api import SELECTOR_NAMES
from goldimask.select.reveal import SubmodularSelect, fetch
from goldimask.step import MaskedStep, helper
from goldimask.types import Batch, Example
from invariant.runs import recipe, run, same, weights

NAMES = [n for n in PRESETS.names() if ":" not in n]
SELECTION = 1  # wait of a selection on the host: for the cut


def waits() -> float:
    return float(sum(rehearsal.counts().values()))


@pytest.fixture(scope="module")
def backbone(small_model: Path) -> Any:
    loaded = load_backbone(small_model)
    found = {(p.device.type, p.dtype) for p in loaded.model.parameters()}
    assert found == {("rehearsal", torch.bfloat16)}
    return add_lora(loaded, 0, r=4, alpha=8, dropout=0.05)


def examples() -> list[Example]:
    rng = np.random.default_rng(0)
    sizes = {1: 40, 2: 33}
    return [
        Example(rng.integers(10, 60, n).tolist(), 8, [False] * 8 + [True] * (n - 8), i)
        for i, n in sizes.items()
    ]


@pytest.fixture(scope="module")
def batch(backbone: Any) -> Batch:
    with rehearsal.strict():  # a batch travels without a wait
        return make_batch(examples(), backbone.pad_id, 8).to("rehearsal")


@pytest.mark.parametrize("name", NAMES)
def test_a_step_of_every_preset(backbone: Any, batch: Batch, name: str) -> None:
    """The clock of the step counts waits instead of seconds, phase by phase."""
    backbone.model.train()
    chosen = method(name)
    if isinstance(chosen.select, SubmodularSelect):  # `auto` would race the engines first
        chosen = replace(chosen, select=replace(chosen.select, engine="host"))
    step = MaskedStep(chosen, backbone.scorer, clock=waits)
    with torch.autocast("rehearsal", dtype=torch.bfloat16):
        out = step(backbone.model, batch, Keys(0))
    assert torch.isfinite(out.loss.cpu()) and out.logp.dtype == torch.float32
    assert out.seconds["corrupt"] == out.seconds["weigh"] == 0
    if name != "goldimask-a":  # its memory lives on the host
        assert out.seconds["probe"] == 0 and out.seconds["train"] <= 1
        assert out.seconds["select"] <= (SELECTION if maximises(step) else 0)
    pool = MetricPool()
    if maximises(step) and "-d" not in name:  # these select a second time for a metric
        pool.add(step_metrics(out, batch))
    else:
        with rehearsal.strict():
            pool.add(step_metrics(out, batch))
    with rehearsal.strict():
        out.loss.backward()
    assert pool.pop()["candidates"] > 0
    for p in backbone.model.parameters():
        p.grad = None


def maximises(step: MaskedStep) -> bool:
    return step.method.shown["maximiser"] in SELECTOR_NAMES


def test_two_devices_in_one_operator_are_an_error() -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(2, 2, device="rehearsal") @ torch.ones(2, 2)
    with pytest.raises(RuntimeError, match="rehearsal:0 and rehearsal:1"):
        torch.ones(2, device="rehearsal:0") + torch.ones(2, device="rehearsal:1")


def test_strict_finds_a_wait() -> None:
    with rehearsal.strict(), pytest.raises(RuntimeError, match="the host waits"):
        torch.ones((), device="rehearsal").item()


def test_a_copy_is_late_until_somebody_waits_for_it() -> None:
    there = torch.arange(4.0).to("rehearsal:1")
    late = fetch(there)  # the current device is another one
    assert torch.accelerator.current_device_index() == 0
    kept = late.__closure__
    assert any(torch.is_tensor(c.cell_contents) and c.cell_contents.isnan().all() for c in kept)
    with ThreadPoolExecutor(1) as pool:  # a thread begins with device 0
        assert pool.submit(late).result().tolist() == [0, 1, 2, 3]
    source = torch.zeros(4).pin_memory()
    source.to("rehearsal", non_blocking=True)
    source += 1
    with pytest.raises(RuntimeError, match="pinned memory was written"):
        torch.accelerator.synchronize()


@pytest.mark.parametrize("engine", ["host", "device"])
def test_a_group_on_the_second_device(
    small_model: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Selected ahead, from late copies, by a thread: the losses of the CPU."""
    monkeypatch.setitem(dense.ADVANCE, "rehearsal", dense.reveal_next)
    found = []
    for place in ("cpu", "rehearsal:1"):
        loaded = load_backbone(small_model, dtype="float32", device=place)
        chosen = method("goldimask-d", select={"engine": engine})
        step = MaskedStep(chosen, loaded.scorer, clock=clock(torch.device(place)))
        group = [(make_batch(examples(), loaded.pad_id).to(place), Keys(0, k)) for k in range(3)]
        for out in step.accumulate(loaded.model, group):
            out.loss.backward()
            found.append((out.loss.detach().cpu(), out.reveal.mask.cpu()))
            assert float(out.seconds["train"]) > 0
    for (loss, mask), (other, same_mask) in zip(found[:3], found[3:], strict=True):
        assert torch.equal(mask, same_mask) and float((loss - other).abs()) < 1e-5


def test_a_selection_on_the_device_waits_twice(
    backbone: Any, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For log p, which becomes priorities on the host, and for the sets."""
    monkeypatch.setitem(dense.ADVANCE, "rehearsal", dense.reveal_next)
    for name in ("goldimask-d", "goldimask-r"):
        chosen = method(name, select={"engine": "device"})
        with torch.autocast("rehearsal", dtype=torch.bfloat16), torch.no_grad():
            out = MaskedStep(chosen, backbone.scorer, clock=waits)(backbone.model, batch, Keys(0))
        assert out.seconds["select"] <= 2, rehearsal.counts()


# --- decoding ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def plain() -> Any:
    return load_backbone("tiny", dtype="float32")


@pytest.fixture(scope="module")
def on_cpu() -> Any:
    return load_backbone("tiny", dtype="float32", device="cpu")


PROMPTS = ["What is 2+3?", "Compute 17 + 5 please."]


@pytest.mark.parametrize("options", [{}, {"cache": "prefix"}, {"cache": "dual"}, {"cfg": 0.5}])
def test_decoding_as_on_the_cpu_with_one_wait_a_call(
    plain: Any, on_cpu: Any, options: dict
) -> None:
    same_as_cpu(plain, on_cpu, "threshold", {"length": 16, "block": 8, **options})


@pytest.mark.parametrize("decoder", [d for d in DECODERS.names() if d != "threshold"])
def test_every_decoder(plain: Any, on_cpu: Any, decoder: str) -> None:
    same_as_cpu(plain, on_cpu, decoder, {"length": 8})


def test_sampling(plain: Any, on_cpu: Any) -> None:
    options = {"temperature": 0.7, "top_p": 0.9, "top_k": 20, "length": 8}
    same_as_cpu(plain, on_cpu, "threshold", options)


def same_as_cpu(plain: Any, on_cpu: Any, decoder: str, options: dict) -> None:
    """The same tokens; one wait a call, and one more where float32 could not tell."""
    calls = []
    hook = plain.model.register_forward_hook(lambda *_: calls.append(1))
    rehearsal.reset()
    found = decode(plain, PROMPTS, decoder, **options)
    counted = waits()
    hook.remove()
    expected = decode(on_cpu, PROMPTS, decoder, **options)
    assert [d.tokens for d in found] == [d.tokens for d in expected]
    assert [d.steps for d in found] == [d.steps for d in expected]
    print(f"\nhost waits of {decoder} {options}: {counted:.0f} in {len(calls)} calls")
    most = 2 if decoder in ("entropy", "dream-entropy", "dream-topk-margin") else 1
    assert 0 < counted <= len(calls) * most, rehearsal.counts()


# --- the Trainer and the verbs --------------------------------------------------------------------


class Waits(TrainerCallback):
    """Host waits between the ends of two optimiser steps, by the run's folder and step."""

    found: ClassVar[dict[tuple[str, int], dict[str, int]]] = {}

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        name = Path(args.output_dir).name.partition(".")[0]
        self.found[name, state.global_step] = rehearsal.counts()
        rehearsal.reset()


def settings(model: Path, folder: Path, chosen: Any, batch: int = 2, **trainer: Any) -> Any:
    return recipe(
        model,
        folder,
        method=chosen,
        backbone={"path": str(model), "dtype": "bfloat16"},
        lora={"r": 4, "alpha": 8, "dropout": 0.05},
        data={"corpus": "tiny-sft", "limit": 20, "validation": 4, "supervise_turn_end": True},
        global_batch_size=batch,
        trainer={
            "max_steps": 4, "eval_steps": 2, "save_steps": 2, "logging_steps": 4, "bf16": True,
            "gradient_checkpointing": True, "report_to": "none", **trainer,
        },
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("aboard")


@pytest.fixture(scope="module")
def finished(small_model: Path, folder: Path) -> Path:
    import transformers.training_args as arguments

    import goldimask.train.run as runs

    arguments.is_torch_bf16_gpu_available = lambda: True  # it knows devices by name
    made = runs.make_trainer

    def watched(*words: Any) -> Any:
        trainer, bar = made(*words)
        assert trainer.args.device.type == "rehearsal" and trainer.args.n_gpu <= 1
        trainer.add_callback(Waits())
        return trainer, bar

    runs.make_trainer = watched
    return run(settings(small_model, folder / "run", {"preset": "random-waterfill"}))


def test_a_run_waits_at_most_three_times_a_step(finished: Path) -> None:
    """Step 2: nothing is logged, evaluated or saved between the ends of steps 1 and 2."""
    counted = Waits.found["run", 2]
    print(f"\nhost waits between two optimiser steps: {counted}")
    assert sum(counted.values()) <= 3
    lines = [json.loads(x) for x in (finished / "metrics.jsonl").read_text().splitlines()]
    logged = next(x for x in lines if "loss" in x)
    assert logged["seconds/train"] > 0 and any("eval_loss" in x for x in lines)


def test_a_resumed_run_ends_as_the_straight_one(
    finished: Path, small_model: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from goldimask.train.trainer import GoldiTrainer

    whole = GoldiTrainer.compute_loss

    def failing(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.state.global_step == 3:
            raise RunFailed("enough")
        return whole(self, *args, **kwargs)

    made = settings(small_model, folder / "again", {"preset": "random-waterfill"})
    monkeypatch.setattr(GoldiTrainer, "compute_loss", failing)
    with pytest.raises(RunFailed, match="enough"):
        run(made)
    monkeypatch.undo()
    assert same(weights(run(made, resume=True)), weights(finished))


def test_goldimask_d_with_full_tuning_keeps_float32_masters(
    finished: Path, small_model: Path, folder: Path
) -> None:
    chosen = {"preset": "goldimask-d", "select": {"engine": "host"}}
    options = {"max_steps": 2, "learning_rate": 5e-6, "per_device_train_batch_size": 1}
    made = settings(small_model, folder / "full", chosen, 4, **options)
    helper().submit(rehearsal.C.rehearsal_beside, 1).result()  # its waits hold nobody up
    done = run(replace(made, lora=None))
    counted = Waits.found["full", 2]
    print(f"\nhost waits of a step of four micro-batches: {counted}")
    assert counted.pop("beside: an event") == 4  # one cut each
    assert sum(counted.values()) <= 3
    assert {v.dtype for v in weights(done).values()} == {torch.float32}
    tuned = load_backbone(done, dtype="float32", device="cpu").model.state_dict()
    before = load_backbone(small_model, dtype="bfloat16", device="cpu").model.state_dict()
    moved = sum(int((tuned[k] != before[k].float()).sum()) for k in tuned)
    # in bfloat16 hardly any weight would have moved
    assert moved > 0.5 * sum(v.numel() for v in tuned.values())


@pytest.mark.parametrize(
    "words",
    [
        "eval RUN --tasks tiny-chain --limit 1 --lengths 16 --out OUT/eval",
        "inspect RUN --methods vanilla,goldimask-d",
        "merge RUN --to OUT/merged",
        "study quality MODEL --examples 8 --seeds 1 --out OUT/study",
    ],
)
def test_verbs(words: str, finished: Path, small_model: Path, folder: Path) -> None:
    places = {"RUN": finished, "MODEL": small_model, "OUT": folder}
    for name, path in places.items():
        words = words.replace(name, str(path))
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 0, done.output[-2000:] + repr(done.exception)


def test_selftest(folder: Path) -> None:
    """Against the CPU; a resumed run and the dense engine have tests of their own."""
    out = folder / "selftest.json"
    parts = "machine,arithmetic,block,optional"
    done = CliRunner().invoke(app, ["selftest", "--only", parts, "--out", str(out)])
    found = json.loads(out.read_text())
    failed = [x for x in found["lines"] if x["verdict"] == "failed"]
    assert done.exit_code == 0 and not failed, failed
    assert found["device"] == "rehearsal:0"
