"""Selection beside the next probe: the same losses, sets, weights and gradients, bit for bit."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator

from goldimask.keys import Keys
from goldimask.methods import Method, method
from goldimask.select import engine
from goldimask.select.race import Race
from goldimask.select.reveal import SubmodularSelect
from goldimask.step import MaskedStep
from invariant.runs import losses, recipe, run, same, weights
from unit.fakes import FakeScorer, TableModel, make_batch

AHEAD = ("goldimask-d", "goldimask-r", "goldimask-t", "goldimask-p", "goldimask-d-dro")
NOT_AHEAD = ("vanilla", "goldimask-a", "lift-2", "agdo")


def groups(rounds: int = 2):
    for r in range(rounds):
        yield [
            (make_batch((20, 14, 17), seed=i + 4 * r, first_id=100 * i), Keys(3, r))
            for i in range(4)
        ]


def decided(out) -> list[torch.Tensor]:
    parts = [out.loss.detach(), out.reveal.mask, out.supervised, out.logp, out.weights.value]
    return [p.clone() for p in parts]


def plain(step, model, group):
    return (step(model, batch, keys) for batch, keys in group)


def train(loop, preset: str, accelerated: bool, **options) -> list[torch.Tensor]:
    """Everything two optimiser steps decide, with dropout on in the training pass."""
    torch.manual_seed(0)
    made = method(preset, **options)
    step, model = MaskedStep(made, FakeScorer()), TableModel(dropout=0.2).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4) if accelerated else None
    if accelerator:
        model, optimizer = accelerator.prepare(model, optimizer)
    found: list[torch.Tensor] = []
    for group in groups():
        for out in loop(step, model, group):
            if accelerator:
                with accelerator.accumulate(model):
                    accelerator.backward(out.loss)
                    optimizer.step()
                    optimizer.zero_grad()
            else:
                (out.loss / 4).backward()
            found += decided(out)
        if not accelerator:
            found += [p.grad.clone() for p in model.parameters() if p.grad is not None]
            optimizer.step()
            optimizer.zero_grad()
    return found + [p.detach().clone() for p in model.parameters()]


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names of the threads that select."""
    seen: set[str] = set()
    original = engine.run

    def noted(*args, **kwargs):
        seen.add(threading.current_thread().name.split("_")[0])
        return original(*args, **kwargs)

    monkeypatch.setattr(engine, "run", noted)
    return seen


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("preset", AHEAD + NOT_AHEAD)
def test_a_group_is_its_steps(preset: str, accelerated: bool, threads: set[str]) -> None:
    expected = train(plain, preset, accelerated)
    assert "goldimask-ahead" not in threads
    got = train(MaskedStep.accumulate, preset, accelerated)
    assert len(got) == len(expected)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert ("goldimask-ahead" in threads) == (preset in AHEAD)


def test_a_probe_with_dropout_is_not_begun_ahead(threads: set[str]) -> None:
    options = {"probe_mode": "train"}
    expected = train(plain, "goldimask-d", False, **options)
    got = train(MaskedStep.accumulate, "goldimask-d", False, **options)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))
    assert "goldimask-ahead" not in threads


@pytest.mark.parametrize("where", ["host", "device", "auto"])
def test_the_next_probe_comes_before_the_training_pass(
    where: str, monkeypatch: pytest.MonkeyPatch, threads: set[str]
) -> None:
    """Two calls a step, in the order that leaves time to select. The order is the same whatever
    engine a rank found to be faster: sharded models meet in every call."""
    order: list[str] = []
    monkeypatch.setattr(SubmodularSelect, "runs", lambda self, device: where)

    class Noted(FakeScorer):
        def __call__(self, model, batch, *args, **kwargs):
            name = "train" if torch.is_grad_enabled() else "probe"
            order.append(f"{name} {int(batch.example_id[0]) // 100}")
            return super().__call__(model, batch, *args, **kwargs)

    step = MaskedStep(method("goldimask-d"), Noted())
    for out in step.accumulate(TableModel(), next(groups())):
        out.loss.backward()
    assert order == [
        "probe 0", "probe 1", "train 0", "probe 2", "train 1", "probe 3", "train 2", "train 3",
    ]  # fmt: skip
    assert ("goldimask-ahead" in threads) == (where == "host")


def test_a_race_knows_what_the_loop_hides(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[float] = []

    def race(self, host, device, where, spare):
        told.append(float(spare))
        return host()

    monkeypatch.setattr(SubmodularSelect, "runs", lambda self, device: "auto")
    monkeypatch.setattr(Race, "__call__", race)
    step = MaskedStep(method("goldimask-d"), FakeScorer())
    list(step.accumulate(TableModel(), next(groups())))
    assert len(told) == 4 and min(told) > 0
    plain_step = list(step.accumulate(TableModel(), next(groups())[:1]))
    assert plain_step and told[4:] == [0.0]  # nothing to hide behind


def test_an_error_of_the_selection_reaches_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("in the thread")

    monkeypatch.setattr(engine, "run", fails)
    step = MaskedStep(method("goldimask-d"), FakeScorer())
    with pytest.raises(ValueError, match="in the thread"):
        list(step.accumulate(TableModel(), next(groups())))


def test_the_trainer_selects_ahead(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: set[str]
) -> None:
    options = {"per_device_train_batch_size": 2, "max_steps": 3}
    ahead = run(recipe(small_model, tmp_path / "ahead", trainer=options))
    assert "goldimask-ahead" in threads
    threads.clear()
    monkeypatch.setattr(Method, "overlaps", property(lambda self: False))
    alone = run(recipe(small_model, tmp_path / "alone", trainer=options))
    assert "goldimask-ahead" not in threads
    assert losses(ahead) == losses(alone)
    assert same(weights(ahead), weights(alone))
