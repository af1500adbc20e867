"""Run the fuzz campaign: `python tests/fuzz/drive.py --scale 1` (or `make fuzz`).

Every case is a function of (seed, border, number), so that a failure is made again by its number:
`--only rows --start 4711 --count 1`. A case fails if anything but a GoldimaskError comes out, if it
takes more than ten seconds of the processor, or if the process grows by more than a gigabyte. With
`--only BORDER --atheris` (pip install atheris) the bytes come from a coverage-guided fuzzer
instead, until it is stopped.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parents[1]
for place in (HERE, HERE.parent / "src", HERE.parent / "tools"):
    sys.path.insert(0, str(place))

from fuzz.borders import BORDERS, TASKS, TINY, Generations  # noqa: E402
from goldimask.errors import GoldimaskError  # noqa: E402

SECONDS, MEGABYTES = 10, 1000
# cases of a whole campaign: about 9 rows a file, 20 generations a case
FULL = {"rows": 11_500, "recipes": 10_000, "model folders": 1000, "run folders": 1000}
FULL |= {"tables and pages": 5000, "chat templates": 1000, "generations": 1000}


def borders(folder: Path, only: str) -> Iterator[Any]:
    """Every border whose name begins so, made when its turn comes."""
    for i, kind in enumerate(BORDERS):
        if kind.name.startswith(only):
            (folder / str(i)).mkdir()
            yield kind(folder / str(i))
    for task in (*TASKS, *TINY):
        if task.startswith(only):
            yield Generations(folder, task)
            if task in TASKS:
                yield Generations(folder, task, "lift")


class Hang(BaseException):
    """Not an Exception, so that nothing on the way takes it for its own."""


def on_alarm(*_: object) -> None:
    raise Hang


def attempt(border: Any, number: int, seed: int) -> tuple[int, str]:
    """(units tried, what went wrong) of one case."""
    case = border.case(Random(f"{seed}/{border.name}/{number}"))
    before = peak()
    signal.signal(signal.SIGPROF, on_alarm)
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    wrong = ""
    units = 1
    try:
        units = border.attempt(case)
    except GoldimaskError as error:
        if len(str(error)) > 2000:
            wrong = f"a message of {len(str(error))} characters"
    except Hang:
        wrong = f"more than {SECONDS} s"
    except Exception:
        wrong = traceback.format_exc(limit=-4)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    if not wrong and peak() - before > MEGABYTES:
        wrong = f"{peak() - before:.0f} MB more"
    return units, wrong


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def run(border: Any, start: int, count: int, seed: int, budget: float = 1e9) -> dict[str, Any]:
    """Cases of one border, as many as the seconds allow."""
    began, units, done, slowest, failures = time.monotonic(), 0, 0, 0.0, []
    for number in range(start, start + count):
        if time.monotonic() - began > budget:
            break
        since = time.process_time()
        tried, wrong = attempt(border, number, seed)
        units, done = units + tried, done + 1
        slowest = max(slowest, time.process_time() - since)
        if wrong:
            failures.append((number, wrong))
    seconds = time.monotonic() - began
    return {
        "units": units,
        "cases": done,
        "slowest": slowest,
        "seconds": seconds,
        "wrong": failures,
    }


def guided(border: Any) -> None:
    import atheris

    def one(data: bytes) -> None:
        with suppress(GoldimaskError):
            border.attempt(border.guided(data))

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], "-timeout=10", "-rss_limit_mb=4000"], one)
    atheris.Fuzz()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--scale", type=float, default=1.0, help="share of the whole campaign")
    parser.add_argument("--only", default="", help="a border, by the beginning of its name")
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--count", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9, help="for each border, at most")
    parser.add_argument("--atheris", action="store_true", help="coverage-guided; with --only")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for border in borders(Path(folder), options.only):
            if options.atheris:
                guided(border)
            full = FULL.get(border.name, FULL["generations"])
            count = options.count or max(1, round(full * options.scale))
            found = run(border, options.start, count, options.seed, options.seconds)
            wrong, slowest = len(found["wrong"]), found["slowest"]
            line = f"{border.name:20} {found['units']:8,} {border.unit:11} {wrong:4} wrong"
            print(f"{line} {slowest:6.2f} s slowest {found['seconds']:7.0f} s", flush=True)
            for number, wrong in found["wrong"][:5]:
                print(f"--- case {number}\n{wrong}", flush=True)
            failed += len(found["wrong"])
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
