"""A campaign under faults, against an undisturbed one: `python tests/invariant/faults.py FOLDER`.

    a full disk       every file below cells/ that is opened for writing: no space left on device
    two masters       on one folder at once, their runs killed with -9 at random moments, and the
                      first master too
    a cell that fails always

Then the same command once more. Nothing may be lost: every sound cell is done, and the tables are
those of the undisturbed campaign. Everything is imported once and forked (`chaos.py`).
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from invariant.chaos import SMALL, changes_disk, command, fork_jobs

KILLS = 5
FAILS = "{rows: {gift: {data: {max_length: 4}}}}"  # no room for a response


def words(folder: Path, *more: str) -> list[str]:
    changes = [f"change.{k}={v}" for k, v in SMALL.items()]
    changes += [
        "rows=[vanilla, goldimask-d]",
        "seeds=[0, 1]",
        "include=[{rows: [gift], seeds: [0]}]",
    ]
    changes += [f"per={FAILS}", "judging.tasks=[tiny-sort]", "judging.problems=4"]
    changes += ["judging.taus=[0.9]", "tables=[main, paired]", "figures=[]"]
    return ["compare", "lab", *changes, "--out", str(folder), *more]


def master(folder: Path, *more: str, full: bool = False) -> int:
    """Fork a campaign; its pid."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    log = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(log, stream)
    if full:
        cells = str(folder / "cells")

        def watch(event: str, details: tuple[Any, ...]) -> None:
            if event == "open" and changes_disk(event, details, cells) and "lock" not in details[0]:
                raise OSError(errno.ENOSPC, "No space left on device", details[0])

        sys.addaudithook(watch)
    os._exit(command(words(folder, *more)))


def ended(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(x) for x in task.read_text().split()]
        except OSError:
            continue
    return found


def tables(folder: Path) -> dict[str, str]:
    return {f.name: f.read_text() for f in sorted((folder / "tables").glob("*.csv"))}


def done(folder: Path) -> list[str]:
    names = sorted(p.parent.name for p in folder.glob("cells/*/manifest.json"))
    return [n for n in names if list((folder / "cells" / n / "eval").glob("done-*.json"))]


def storm(folder: Path, seed: int = 7) -> int:
    """Two masters, whose runs and first of whom are killed; how many kills there were."""
    draw, killed = Random(seed), 0
    masters = {master(folder, "--retry"): True for _ in range(2)}
    first = next(iter(masters))
    while any(masters.values()):
        time.sleep(draw.uniform(0.3, 1.5))
        below = [child for pid, alive in masters.items() if alive for child in children(pid)]
        if below and killed < KILLS:
            killed += 1
            os.kill(draw.choice(below), signal.SIGKILL)
        if killed == 2 and masters[first]:
            os.kill(first, signal.SIGKILL)
        for pid in [p for p, alive in masters.items() if alive]:
            masters[pid] = os.waitpid(pid, os.WNOHANG)[0] == 0
    return killed


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    import goldimask.report.campaign_report
    import goldimask.train.run  # noqa: F401  imported once, for all that are forked

    fork_jobs()
    calm, torn = folder / "calm", folder / "torn"
    assert ended(master(calm)) == 3, "one cell always fails, and says so"
    assert len(done(calm)) == 4 and len(tables(calm)) >= 2
    assert ended(master(torn, full=True)) == 3 and not done(torn)
    text = torn.with_suffix(".log").read_text()
    assert "No space left" in text, text[-2000:]
    kills = storm(torn)
    assert ended(master(torn)) == 3
    assert done(torn) == done(calm), (done(torn), done(calm))
    assert tables(torn) == tables(calm)
    assert "leaves no room" in (torn / "logs" / "tiny_gift_s0-train.json").read_text()
    print(f"{kills} kills, tables equal")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
