"""Where a selection runs: the dense engine's launches, the race between engines, threads."""

from __future__ import annotations

import shutil
import threading
import time

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from goldimask.errors import GoldimaskError
from goldimask.keys import Keys
from goldimask.objective import Support
from goldimask.select import dense, race
from goldimask.select.base import Selection
from goldimask.select.engine import Rules, Task, run
from goldimask.select.race import Race
from goldimask.select.reveal import SubmodularSelect
from instances import instance
from unit.select.test_reveal import scene, selector

CPU = torch.device("cpu")


def state(selector: str, n: int = 40, steps: int = 8) -> tuple:
    """The arguments of `reveal_next` on an empty set."""
    attention, priority = instance("real", n, heads=2)
    at = torch.from_numpy(attention.T.copy()).double()[None]
    keys = dense.draw_keys([7], steps, n, CPU) if selector == "randomized" else None
    return (
        at, torch.from_numpy(priority)[None], torch.tensor([[steps]]), torch.full((1, 1), 1e-12),
        keys, Support(), torch.zeros(1, n).double(), torch.full((1, n), -1),
        torch.zeros(1, n).double(), torch.zeros(1, n).long(),
    )  # fmt: skip


class Count(TorchDispatchMode):
    """Counts what would be a kernel: everything but views and allocations."""

    FREE = ("view", "expand", "unsqueeze", "squeeze", "slice", "select", "empty", "scalar_tensor")

    def __init__(self) -> None:
        super().__init__()
        self.launches = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        self.launches += name == "index_select" or not name.startswith(self.FREE)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "most"), [("greedy", 33), ("randomized", 42)])
def test_operations_of_a_reveal_without_a_compiler(name, most):
    made = state(name)
    with Count() as count:
        dense.reveal_next(*made)
    assert count.launches <= most


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which compiles the kernels")
@pytest.mark.real
@pytest.mark.parametrize("name", dense.DENSE)
def test_a_compiled_reveal_is_at_most_six_kernels(name):
    """Loop nests that torch.compile makes of it for the CPU, each a kernel on a device."""
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    step = torch.compile(dense.reveal_next, dynamic=True)
    plain, compiled = state(name), state(name)
    _, (code,) = run_and_get_code(step, *compiled)
    for turn in range(8):
        dense.reveal_next(*plain)
        if turn:
            step(*compiled)
    assert plain[7].tolist() == compiled[7].tolist()
    outer = "\n        {\n" if "#pragma omp parallel" in code else "\n    {\n"
    nests = code.count(outer)
    print(f"\nkernels of a reveal, {name}: {nests}")
    assert code.count("async_compile.cpp") == 1 and 1 <= nests <= 6


def test_eager_where_compiling_fails(monkeypatch, caplog):
    def broken(*_: object) -> None:
        raise RuntimeError("no compiler\nand a long story")

    monkeypatch.setattr(dense, "ADVANCE", {"cpu": broken})
    attention, priority = instance("real", 30, heads=2)
    args = (torch.from_numpy(attention)[None], priority[None], np.array([9]))
    rest = (np.ones((1, 30), bool), [0], "greedy", Support())
    found = [dense.run_dense(*args, *rest)[0].order.tolist() for _ in range(2)]
    told = [r.getMessage() for r in caplog.records]
    assert len(told) == 1 and "no compiler" in told[0] and "long story" not in told[0]
    task = Task(attention, np.arange(30), priority, 9)
    assert found == [run([task], Rules("greedy", Support()))[0].order.tolist()] * 2


def sides(host: float, device: float, other: bool = False):
    def side(seconds: float, order: list[int]):
        def action() -> list[Selection]:
            time.sleep(seconds)
            return [Selection(np.array(order), np.zeros(2), 0.0)]

        return action

    return side(host, [3, 1]), side(device, [1, 4] if other else [1, 3])


@pytest.mark.parametrize(
    ("host", "device", "spare", "winner"),
    [(0.0, 0.01, 0.0, "host"), (0.01, 0.0, 0.0, "device"), (0.01, 0.0, 1.0, "host")],
)
def test_the_faster_engine_wins_and_is_named_once(host, device, spare, winner, caplog):
    runner = Race()
    for turn in range(race.TIMED + 1):
        assert runner.winner is None, turn
        assert runner(*sides(host, device), CPU, spare)[0].order.tolist() == [3, 1]
    assert runner.winner == winner
    assert [f"'{winner}'" in r.getMessage() for r in caplog.records] == [True]


def test_different_sets_end_the_race(caplog):
    runner = Race()
    found = runner(*sides(0.01, 0.0, other=True), CPU)
    assert found[0].order.tolist() == [3, 1] and runner.winner == "host"
    assert "different sets" in caplog.text


def test_a_device_that_cannot_loses_the_race(caplog):
    def cannot() -> list[Selection]:
        raise TypeError("no float64 here\nand more")

    runner = Race()
    assert runner(sides(0.0, 0.0)[0], cannot, CPU)[0].order.tolist() == [3, 1]
    assert runner.winner == "host" and "cannot: no float64 here)" in caplog.text


class FakeGraph:
    """Notes what was called while it recorded, and calls it again."""

    def __init__(self) -> None:
        self.calls, self.mode, self.recording = [], "", False

    def capture_begin(self, pool=None, capture_error_mode="global") -> None:
        self.mode, self.recording = capture_error_mode, True

    def capture_end(self) -> None:
        self.recording = False

    def replay(self) -> None:
        for call in self.calls:
            call()


def test_a_reveal_is_recorded_without_emptying_the_memory(monkeypatch):
    """The stream and graph of CUDA, and none of what `torch.cuda.graph` does besides."""
    from contextlib import nullcontext

    made: list[FakeGraph] = []

    def graph() -> FakeGraph:
        made.append(FakeGraph())
        return made[-1]

    class Stream:
        def __init__(self, device=None) -> None:
            self.waited: list[object] = []

        def wait_stream(self, other: object) -> None:
            self.waited.append(other)

    def advance(*state: object) -> None:
        if made and made[-1].recording:
            made[-1].calls.append(lambda: dense.reveal_next(*state))
        else:
            dense.reveal_next(*state)

    def forbidden(*_: object) -> None:
        raise AssertionError("waits for the device, or gives its memory back")

    now = Stream()
    for name, fake in {
        "CUDAGraph": graph, "Stream": Stream, "current_stream": lambda device: now,
        "stream": lambda s: nullcontext(), "empty_cache": forbidden, "synchronize": forbidden,
    }.items():  # fmt: skip
        monkeypatch.setattr(f"torch.cuda.{name}", fake)
    plain, replayed = state("greedy"), state("greedy")
    for _ in range(5):
        dense.reveal_next(*plain)
    dense.reveal_next(*replayed)
    recorded = dense.recorded(advance, replayed)
    assert recorded.mode == "thread_local" and len(now.waited) == 1
    for _ in range(4):
        recorded.replay()
    assert replayed[7].tolist() == plain[7].tolist()


def test_attention_that_is_no_number_is_an_error_after_one_wait():
    attention, priority = instance("real", 12, heads=2)
    for bad in (np.nan, -1.0):
        broken = attention.copy()
        broken[3, 7] = bad
        args = (torch.from_numpy(broken)[None], priority[None], np.array([4]))
        with pytest.raises(GoldimaskError, match="negative or not finite"):
            dense.run_dense(*args, np.ones((1, 12), bool), [0], "greedy", Support())


def test_auto_races_on_an_accelerator_only(monkeypatch):
    c, signals, batch = scene()
    auto = selector("greedy")
    assert auto.runs(CPU) == "host" and auto.runs(torch.device("cuda")) == "auto"
    assert selector("twin").runs(torch.device("cuda")) == "host"
    assert selector("greedy", engine="device").runs(CPU) == "device"
    expected = auto(c, signals, batch, Keys(5))
    assert auto.race.seconds == {"host": [], "device": []}
    race_on = lambda self, device: self.race.winner or "auto"  # noqa: E731
    monkeypatch.setattr(SubmodularSelect, "runs", race_on)
    for _ in range(race.TIMED + 2):
        assert auto(c, signals, batch, Keys(5)).order == expected.order
    assert auto.race.winner in ("host", "device")
    assert len(auto.race.seconds["device"]) == race.TIMED + 1


def test_kernels_release_the_lock():
    """While a thread selects, this one goes on."""
    attention, priority = instance("flat", 900, heads=1)
    task = Task(attention, np.arange(900), priority, 450)
    run([task], Rules("greedy", Support()))
    worker = threading.Thread(target=run, args=([task] * 4, Rules("greedy", Support())))
    worker.start()
    turns = 0
    while worker.is_alive():
        turns += 1
        time.sleep(0.0005)
    assert turns > 5
