"""What must not change a run: the loop, the split of a batch, an interruption."""

from __future__ import annotations

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from goldimask.errors import GoldimaskError, RunFailed
from invariant.runs import losses, recipe, run, same, weights

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def straight(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(recipe(small_model, tmp_path_factory.mktemp("runs") / "straight"))


def test_run_folder_is_complete(straight: Path) -> None:
    names = {p.name for p in straight.iterdir()}
    wanted = {"recipe.yaml", "manifest.json", "metrics.jsonl", "trainer_state.json", "model"}
    assert wanted <= names and "tensorboard" in names
    assert list((straight / "tensorboard").iterdir())
    manifest = json.loads((straight / "manifest.json").read_text())
    assert {"kind", "key", "weights", "versions", "git", "command"} <= manifest.keys()
    assert manifest["versions"]["torch"] and manifest["facts"]["steps"] == 8
    assert {"data_hash", "seed", "recipe"} <= manifest["facts"].keys()
    assert (straight / "complete.json").is_file()
    metrics = [json.loads(x) for x in (straight / "metrics.jsonl").read_text().splitlines()]
    first = next(x for x in metrics if "loss" in x)
    assert {"ce", "n_eff_ratio", "supervised", "reveal_fraction"} <= first.keys()
    assert not straight.with_name("straight.partial").exists()


def test_repeating_gives_the_same_bits(straight: Path, small_model: Path, tmp_path: Path) -> None:
    again = run(recipe(small_model, tmp_path / "again"))
    assert losses(again) == losses(straight)
    assert same(weights(again), weights(straight))


def test_accumulation_changes_nothing(small_model: Path, tmp_path: Path) -> None:
    """8 x 1 = 4 x 2 = 2 x 4. Plain SGD, since Adam turns rounding of tiny gradients into steps."""
    runs = {}
    for each in (8, 4, 2):
        options = {"per_device_train_batch_size": each, "optim": "sgd", "learning_rate": 0.05}
        runs[each] = run(recipe(small_model, tmp_path / f"{each}", trainer=options))
    for each in (4, 2):
        assert losses(runs[each])[:2] == pytest.approx(losses(runs[8])[:2], rel=1e-6)
        assert losses(runs[each]) == pytest.approx(losses(runs[8]), rel=5e-6)
        a, b = weights(runs[each]), weights(runs[8])
        assert max(float((a[k] - b[k]).abs().max()) for k in a) < 1e-5


@pytest.mark.parametrize("preset", ["goldimask-d", "goldimask-d-dro"])
def test_resume_equals_the_straight_run(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, preset: str
) -> None:
    """Stopped after step 5, resumed from the checkpoint of step 4: the same bits at the end."""
    from goldimask.train.trainer import GoldiTrainer

    whole = run(recipe(small_model, tmp_path / "whole", preset))
    made = recipe(small_model, tmp_path / "cut", preset)
    original = GoldiTrainer.compute_loss

    def dies(self, *args, **kwargs):
        if self.state.global_step == 5:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(GoldiTrainer, "compute_loss", dies)
        with pytest.raises(KeyboardInterrupt):
            run(made)
    assert not (tmp_path / "cut").exists() and (tmp_path / "cut.partial").is_dir()
    with pytest.raises(GoldimaskError, match="unfinished run"):
        run(made)
    with pytest.raises(GoldimaskError, match=r"seed \(5 then, 6 now\)"):
        run(recipe(small_model, tmp_path / "cut", preset, seed=6), resume=True)
    resumed = run(made, resume=True)
    assert losses(resumed) == losses(whole)
    assert same(weights(resumed), weights(whole))


def test_damaged_checkpoints_are_passed_over(straight: Path, tmp_path: Path) -> None:
    import shutil

    from goldimask.train.folders import last_sound

    folder = tmp_path / "copy"
    shutil.copytree(straight, folder)
    assert last_sound(folder) == folder / "checkpoint-8"
    said: list[str] = []
    file = folder / "checkpoint-8" / "optimizer.pt"
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)
    assert last_sound(folder, said.append) == folder / "checkpoint-4"
    assert "optimizer.pt' is damaged" in said[0]
    (folder / "checkpoint-4" / "complete.json").unlink()
    assert last_sound(folder, said.append) is None
    assert "not completely written" in said[-1]


def test_best_checkpoint_is_what_is_saved(small_model: Path, tmp_path: Path) -> None:
    """With a rate that ruins the model, the best weights are the early ones."""
    made = recipe(
        small_model,
        tmp_path / "x",
        "vanilla",
        trainer={"load_best_model_at_end": True, "learning_rate": 1.0, "max_grad_norm": 1e9},
    )
    folder = run(made)
    state = json.loads((folder / "trainer_state.json").read_text())
    best = state["best_model_checkpoint"]
    assert best == f"checkpoint-{state['best_global_step']}"  # a path within the run
    from safetensors.torch import load_file

    from goldimask.backbones import load_backbone

    saved = load_backbone(str(folder / "model")).model.state_dict()
    wanted = load_file(folder / best / "model.safetensors")
    assert all(torch.equal(saved[k], wanted[k]) for k in wanted)


def test_non_finite_loss_stops_and_leaves_no_run(small_model: Path, tmp_path: Path) -> None:
    made = recipe(small_model, tmp_path / "x", "vanilla", trainer={"learning_rate": 1e30})
    with pytest.raises(RunFailed, match="non-finite loss at step") as failure:
        run(made)
    assert not (tmp_path / "x").exists() and not (tmp_path / "x.partial").exists()
    kept = tmp_path / "x.non_finite.json"
    assert str(kept) in str(failure.value)
    found = json.loads(kept.read_text())
    assert set(found["bad"]) <= set(found["batch"]) and len(found["batch"]) == 8
    assert found["bad"] and found["seed"] == made.seed and found["step"] >= 1


def test_one_bad_micro_batch_of_a_group_is_named_before_the_weights_move(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses are looked at once an optimiser step, when all of its micro-batches are in."""
    from goldimask.step import MaskedStep

    whole, steps = MaskedStep.finish, []

    def finish(self, model, begun, denominator=None):
        out = whole(self, model, begun, denominator)
        if torch.is_grad_enabled():
            steps.append((begun.batch.on_host()[1], next(model.parameters()).detach().clone()))
        if len(steps) != 2:
            return out
        return replace(out, loss=out.loss * float("nan"), per_example=out.per_example * math.nan)

    monkeypatch.setattr(MaskedStep, "finish", finish)
    options = {"per_device_train_batch_size": 2, "max_steps": 2}
    with pytest.raises(RunFailed, match="non-finite loss at step 1"):
        run(recipe(small_model, tmp_path / "x", "vanilla", trainer=options))
    found = json.loads((tmp_path / "x.non_finite.json").read_text())
    assert len(steps) == 4 and found["bad"] == found["batch"] == steps[1][0]
    assert torch.equal(steps[0][1], steps[3][1])


def test_weights_that_score_nothing_are_said_so(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from goldimask.train.trainer import GoldiTrainer

    monkeypatch.setattr(GoldiTrainer, "_held_out_losses", lambda self: [1.0, math.nan])
    with pytest.raises(RunFailed, match="non-finite held-out loss at step"):
        run(recipe(small_model, tmp_path / "x", "vanilla", trainer={"max_steps": 1}))


def test_kernels_are_compiled_before_the_first_step(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from goldimask.select import lazy
    from goldimask.step import MaskedStep
    from goldimask.train import trainer

    known: list[list[int]] = []
    kernels = (lazy.run_greedy, lazy.sweep, lazy.follow)

    def signatures() -> None:
        known.append([len(k.signatures) for k in kernels])

    class Watched(MaskedStep):
        def begin(self, *args, **kwargs):
            signatures()
            return super().begin(*args, **kwargs)

    warmed = []
    real = trainer.warm_up
    monkeypatch.setattr(trainer, "warm_up", lambda *a: warmed.append(len(known)) or real(*a))
    monkeypatch.setattr("goldimask.train.run.MaskedStep", Watched)
    run(recipe(small_model, tmp_path / "x", "goldimask-d"))
    signatures()
    assert warmed == [0]  # once, before any step
    assert len(known) > 2 and known[0] == known[-1] and min(known[0][:2]) > 0


def test_all_loops_give_the_same_losses(small_model: Path) -> None:
    """A plain torch loop, Accelerate, and GoldiTrainer."""
    import tempfile

    from transformers import PrinterCallback

    from goldimask.backbones import load_backbone
    from goldimask.data.examples import load_examples
    from goldimask.methods import method
    from goldimask.step import MaskedStep
    from goldimask.train.arguments import training_arguments
    from goldimask.train.trainer import GoldiTrainer

    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import accelerate_loop
        import plain_loop
    finally:
        sys.path.pop(0)
    options = {"model": str(small_model), "preset": "goldimask-d", "steps": 6, "seed": 42}
    plain = plain_loop.main(batch_size=8, **options)
    accelerated = accelerate_loop.main(batch_size=8, cpu=True, **options)

    backbone = load_backbone(str(small_model))
    examples, _ = load_examples("tiny-sft", backbone, limit=200)
    values = {
        "max_steps": 6,
        "learning_rate": 3e-4,
        "weight_decay": 0.0,
        "optim": "adamw_torch",  # the fused kernel rounds differently
        "lr_scheduler_type": "constant",
        "logging_steps": 1,
        "save_strategy": "no",
        "eval_strategy": "no",
        "load_best_model_at_end": False,
    }
    with tempfile.TemporaryDirectory() as folder:
        trainer = GoldiTrainer(
            model=backbone.model,
            args=training_arguments(
                values, Path(folder), seed=42, global_batch_size=8, has_validation=False
            ),
            step=MaskedStep(method("goldimask-d"), backbone.scorer),
            examples=examples,
            validation=[],
            seed=42,
            global_batch_size=8,
            pad_id=backbone.pad_id,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    trained = [x["loss"] for x in trainer.state.log_history if "loss" in x]
    assert plain == accelerated
    assert trained == pytest.approx(plain, rel=1e-6)


def test_validation_repeats_and_ignores_batch_size(small_model: Path, tmp_path: Path) -> None:
    from goldimask.train.run import make_trainer, prepare

    found = []
    for size in (16, 5, 1, 16):
        made = recipe(small_model, tmp_path / "x", evaluation={"batch_size": size})
        trainer, _ = make_trainer(prepare(made), tmp_path / f"{size}")
        found.append(trainer.evaluate())
        assert found[-1]["eval_loss_se"] > 0 and len(trainer.held_out[0]) == 12
    assert found[0] == found[3]
    assert all(x == pytest.approx(found[0], rel=1e-5) for x in found)


@pytest.mark.parametrize(
    ("trainer", "words"),
    [
        ({"learning_rat": 1}, "trainer.learning_rat: unknown key; did you mean 'learning_rate'"),
        ({"learning_rate": "fast"}, "trainer.learning_rate"),
        ({"seed": 1}, "trainer.seed: set 'seed'"),
        ({"remove_unused_columns": True}, "is fixed"),
        ({"per_device_train_batch_size": 3}, "not a multiple"),
        ({"save_steps": 3, "load_best_model_at_end": True}, "trainer.save_steps"),
    ],
)
def test_trainer_section_is_checked(tmp_path: Path, trainer: dict, words: str) -> None:
    from goldimask.train.arguments import training_arguments

    made = recipe(tmp_path, tmp_path, trainer=trainer)
    with pytest.raises(GoldimaskError) as error:
        training_arguments(made.trainer, tmp_path, seed=1, global_batch_size=8, has_validation=True)
    assert words in str(error.value)


def test_probe_patience_and_the_data_table(small_model: Path, tmp_path: Path) -> None:
    """One run with a rate that ruins the model: it says what it sees, measures, and stops early."""
    from goldimask.train.run import train

    made = recipe(
        small_model,
        tmp_path / "x",
        method={"preset": "goldimask-d", "attention_layer": "probe"},
        evaluation={"patience": 1},
        trainer={
            "max_steps": 20,
            "eval_steps": 2,
            "save_steps": 2,
            "learning_rate": 1.0,
            "max_grad_norm": 1e9,
            "load_best_model_at_end": True,
            "report_to": "none",
        },
    )
    said: list[str] = []
    summary = train(made, show=2, say=said.append)
    assert summary["steps"] < 20
    text = "\n".join(said)
    assert "60 rows: 48 to train on, 12 held out" in text and "median" in text
    assert text.count("┃") == 4 and "chosen by measurement" in text
    manifest = json.loads((tmp_path / "x" / "manifest.json").read_text())["facts"]
    assert manifest["attention_layer"] in (0, 1)
    assert manifest["layer_probe"]["best"] == manifest["attention_layer"]
    assert not (tmp_path / "x" / "tensorboard").exists()


def test_faithful_validation_repeats_at_the_same_step(small_model: Path, tmp_path: Path) -> None:
    """Masks are redrawn, but from the step: a repeated run gives the same figures."""
    options = {"evaluation": {"objective": "lift"}, "trainer": {"max_steps": 4, "eval_steps": 2}}
    found = []
    for name in "ab":
        folder = run(recipe(small_model, tmp_path / name, "lift-2", **options))
        lines = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
        found.append([x["eval_loss"] for x in lines if "eval_loss" in x])
    assert found[0] == found[1] and len(set(found[0])) == 2


def test_a_second_training_into_a_folder_is_told_who_is_there(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is prepared."""
    from goldimask.jobs import locked

    monkeypatch.setattr("goldimask.train.run.prepare", lambda recipe: pytest.fail("prepared"))
    with (
        locked(tmp_path / "x"),
        pytest.raises(GoldimaskError, match=r"x' is being written by process \d+ on .* since"),
    ):
        run(recipe(small_model, tmp_path / "x"))


def test_kinds_of_tokens_are_counted_over_the_whole_run(small_model: Path, tmp_path: Path) -> None:
    """At every log, and in all: a resumed run counts what a straight one does."""
    from goldimask.records import open_run
    from goldimask.train.trainer import GoldiTrainer

    options = {
        "data": {"corpus": "tiny-1k", "options": {"eta": 0.5}, "limit": 40, "validation": 4},
        "trainer": {"max_steps": 6, "logging_steps": 5, "save_steps": 3, "eval_steps": 3},
    }
    straight = open_run(run(recipe(small_model, tmp_path / "a", **options)))
    made = recipe(small_model, tmp_path / "b", **options)
    original = GoldiTrainer.compute_loss

    def dies(self, *args, **kwargs):
        if self.state.global_step == 4:
            raise KeyboardInterrupt
        return original(self, *args, **kwargs)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GoldiTrainer, "compute_loss", dies)
        with pytest.raises(KeyboardInterrupt):
            run(made)
    resumed = open_run(run(made, resume=True))
    assert straight.manifest is not None and resumed.manifest is not None
    found = straight.manifest.facts["classes"]
    assert set(found) == {"words", "numbers", "wrong", "identifiers"}
    assert all(0 < row[part] < 1 for row in found.values() for part in row)
    for part in ("candidates", "targets", "weight"):
        assert sum(row[part] for row in found.values()) == pytest.approx(1.0)
        for kind, row in found.items():
            assert resumed.manifest.facts["classes"][kind][part] == pytest.approx(row[part])
    logged = [m.values for m in straight.metrics if "loss" in m.values]
    assert sum(v for k, v in logged[0].items() if k.endswith("/weight")) == pytest.approx(1.0)
