"""Work spread over processes: the same for any number of them, whoever dies."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from goldimask.errors import GoldimaskError, RunFailed
from goldimask.processes import worker_devices
from goldimask.workers import Pool

TOY = """
import os, sys, time
from pathlib import Path
from goldimask.errors import RunFailed

def worker(device, folder, fatal=(), once=True):
    if device == "broken":
        sys.exit("no such card")

    def work(items, power):
        print("noise on stdout")
        for index, x in enumerate(items):
            with open(Path(folder) / "asked", "a") as file:
                file.write(f"{x} {len(items)}\\n")
            if x == "bad":
                raise RunFailed("item 'bad' cannot be answered")
            if x in fatal and not (once and (Path(folder) / f"died-{x}").exists()):
                (Path(folder) / f"died-{x}").touch()
                os.kill(os.getpid(), 9)
            yield index, [x**power, items]
    return work
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "toy.py").write_text(TOY)
    paths = [str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(p for p in paths if p))
    said: list[str] = []

    def pool(*devices: str, size: int = 3, **setup: Any) -> Pool:
        return Pool("toy:worker", {"folder": str(tmp_path), **setup}, devices, size, said.append)

    pool.said = said
    pool.asked = lambda: [x.split()[0] for x in (tmp_path / "asked").read_text().splitlines()]
    return pool


def squares_and_cubes(pool: Pool) -> list[dict[int, Any]]:
    """Two lists of items in one queue; every number is answered once."""
    with pool:
        both = [pool.submit(range(8), power=2), pool.submit(range(5), power=3)]
        found = [list(answers) for answers in both]
    assert all(len(dict(x)) == len(x) for x in found)
    assert all(p.returncode is not None for p in pool.processes)
    return [dict(sorted(x)) for x in found]


def test_any_number_of_processes_gives_the_same_answers_in_the_same_units(toy):
    found = [squares_and_cubes(toy(*["cpu"] * n)) for n in (1, 2, 3)]
    assert found[0] == found[1] == found[2]  # with the items that were asked for together
    assert [x for x, _ in found[0][0].values()] == [x**2 for x in range(8)]
    assert found[0][1][3] == [27, [3, 4]]
    assert toy.said == []


def test_what_a_killed_process_owes_is_done_by_the_others_and_nothing_twice(toy):
    found = squares_and_cubes(toy("cpu", "cpu", "cpu", fatal=[1, 7]))
    assert [[x for x, _ in part.values()] for part in found] == [
        [x**2 for x in range(8)],
        [x**3 for x in range(5)],
    ]
    assert toy.asked().count("0") == 2  # of the squares and of the cubes: answered before the kill
    assert toy.asked().count("1") == 3  # the one it died of was asked for again
    assert len(toy.said) == 2
    assert all("died: SIGKILL" in x and "the others take its share" in x for x in toy.said)


def test_a_process_that_cannot_begin_is_left_out(toy):
    found = squares_and_cubes(toy("broken", "cpu", "broken"))
    assert [x for x, _ in found[0].values()] == [x**2 for x in range(8)]
    assert all("(broken) died: exit 1 | no such card" in line for line in toy.said)


def test_a_unit_that_kills_everybody_ends_the_work(toy):
    with pytest.raises(RunFailed, match=r"process \d \(cpu\) died: SIGKILL.*same command"):
        squares_and_cubes(toy("cpu", "cpu", "cpu", fatal=[5], once=False))
    assert toy.asked().count("5") == 2
    with pytest.raises(RunFailed, match="no such card"):
        squares_and_cubes(toy("broken"))


def test_a_mistake_is_told_once_with_its_exit_code(toy):
    mistake = pytest.raises(GoldimaskError, match=r"^item 'bad' cannot be answered$")
    with mistake as told, toy("cpu", "cpu") as pool:
        list(pool.submit(["bad"] * 8, power=2))
    assert told.value.exit_code == RunFailed.exit_code and toy.said == []


def test_processes_end_with_their_pool_however_it_ends(toy, tmp_path):
    code = (
        "import time; from goldimask.workers import Pool\n"
        f"with Pool('toy:worker', {{'folder': {str(tmp_path)!r}}}, ['cpu'], 1) as pool:\n"
        "    next(pool.submit([1, 2], power=2))\n"
        "    print(pool.processes[0].pid, flush=True); time.sleep(60)\n"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.kill()
    until = time.monotonic() + 20
    while running(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not running(worker)


def running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_every_process_has_a_device_of_its_own(monkeypatch):
    import torch

    from goldimask import processes

    assert worker_devices(3, "cpu") == ["cpu"] * 3
    monkeypatch.setattr(processes, "devices", lambda: 4)
    monkeypatch.setattr(processes, "own_device", lambda: torch.device("cuda", 0))
    assert worker_devices(2) == worker_devices(2, "cuda") == ["cuda:0", "cuda:1"]
    assert worker_devices(1, "cuda:3") == ["cuda:3"]
    with pytest.raises(GoldimaskError, match="5 processes for 4 device"):
        worker_devices(5)
    with pytest.raises(GoldimaskError, match="2 processes on 'cuda:1' alone; say --device cuda"):
        worker_devices(2, "cuda:1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(GoldimaskError, match="a launcher has started this process"):
        worker_devices(2)
