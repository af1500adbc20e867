"""Reference programs of HumanEval and MBPP in the sandbox: do they pass, and how fast?

    python benchmarks/sandbox.py DATA --mode limits                     all of them, who fails
    python benchmarks/sandbox.py DATA --mode limits --before COMMIT     ratio to an earlier sandbox

DATA is a folder of test sets, as of `goldimask eval --data`. The ratio is of seconds (what runs
under bubblewrap is not counted as its child): the two take turns, of each the minimum counts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

ROOT = Path(__file__).resolve().parents[1]
FIELDS = ("source", "tests", "prelude", "names")  # of a Program, in both versions


def references(data: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(test set, item, program) of every reference solution."""
    from goldimask.eval.sandbox import Program
    from goldimask.eval.tasks import humaneval, mbpp

    for folder, module in (("humaneval", humaneval), ("mbpp_sanitized", mbpp), ("mbpp_full", mbpp)):
        files = sorted((data / folder).glob("*.jsonl"))
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
        for i, row in enumerate(rows):
            item = module.item_of(row, i, "standard")
            program = module.build_fixed(item, item.meta["reference"])
            assert isinstance(program, Program), f"{item.id}: {program}"
            yield folder, item.id, {name: getattr(program, name) for name in FIELDS}


class Server:
    """A sandbox of one version of the package, in a process of its own."""

    def __init__(self, source: Path, mode: str) -> None:
        command = [sys.executable, __file__, "-", "--mode", mode, "--serve"]
        env = {**os.environ, "PYTHONPATH": str(source)}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True
        )

    def run(self, program: Mapping[str, Any]) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        print(json.dumps(program), file=self.process.stdin, flush=True)
        return json.loads(self.process.stdout.readline())


def serve(mode: Any) -> None:
    """Answer programs with verdicts and the seconds they took."""
    from goldimask.eval.sandbox import Program, open_sandbox

    box = open_sandbox(True, mode)
    for line in sys.stdin:
        program = json.loads(line)
        began = time.perf_counter()
        found = box.run(Program(**{**program, "names": tuple(program["names"])}))
        spent = time.perf_counter() - began
        said = {"status": found.status, "detail": found.detail, "seconds": spent}
        print(json.dumps(said), flush=True)


@contextmanager
def checkout(commit: str) -> Iterator[Path]:
    """The package's source as of a commit."""
    with tempfile.TemporaryDirectory() as folder:
        packed = subprocess.run(
            ["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
        yield Path(folder) / "src"


def main(
    data: Annotated[Path, typer.Argument(help="a folder of test sets")],
    mode: Annotated[str, typer.Option(help="limits or bubblewrap")] = "limits",
    before: Annotated[str, typer.Option(help="a commit to compare with")] = "",
    programs: Annotated[int, typer.Option(help="of a test set, for the ratio")] = 25,
    rounds: Annotated[int, typer.Option(help="for the ratio")] = 9,
    serving: Annotated[bool, typer.Option("--serve", hidden=True)] = False,
) -> None:
    if serving:
        return serve(mode)
    found: dict[str, list[tuple[str, dict[str, Any]]]] = {}
    for name, item, program in references(data):
        found.setdefault(name, []).append((item, program))
    now = Server(ROOT / "src", mode)
    if not before:
        for name, items in found.items():
            ended = [(item, now.run(program)) for item, program in items]
            failed = [(item, e) for item, e in ended if e["status"] != "pass"]
            print(f"{mode}, {name}: {len(ended) - len(failed)} of {len(ended)} pass", flush=True)
            for item, e in failed:
                print(f"  {item}: {e['status']}: {e['detail']} ({e['seconds']:.1f} s)", flush=True)
        return
    with checkout(before) as source:
        then = Server(source, mode)
        for name, items in found.items():
            ratios = []
            for _, program in items[:: max(1, len(items) // programs)][:programs]:
                pairs = [(now.run(program), then.run(program)) for _ in range(rounds)]
                new, old = (min(one[i]["seconds"] for one in pairs) for i in (0, 1))
                ratios.append((new, old))
            new, old = (median(one[i] for one in ratios) for i in (0, 1))
            print(f"{mode}, {name}: {1000 * new:.0f} ms, before {1000 * old:.0f}", end="; ")
            print(f"ratio {new / old:.2f} (medians of {len(ratios)})", flush=True)


if __name__ == "__main__":
    typer.run(main)
