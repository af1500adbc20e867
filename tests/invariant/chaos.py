"""Kill train, eval and compare at random points, go on with the same command, and compare.

    python tests/invariant/chaos.py --train 50 --eval 20 --compare 20 --seed 1      (make chaos)

A life is a folder that the command is started in again and again until it ends by itself; all but
the last start are ended by SIGKILL. The point is drawn from (seed, verb, start): half of them just
before the n-th change of the disk, n uniform over those of an undisturbed start, and half after a
time uniform over its duration. In a campaign the point may fall on the campaign or on its jobs.

    lost        a start that did not go on by itself: refused, or ended with an error
    differing   a life whose result is not that of the undisturbed one

Everything is imported once and forked for each start, so that a kill costs what it interrupts.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

HERE = Path(__file__).resolve().parents[1]
for place in (HERE, HERE.parent / "src", HERE.parent / "tools"):
    sys.path.insert(0, str(place))

from invariant.runs import logged, same, weights  # noqa: E402

CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink")
MODEL = "tiny"
SMALL = {
    "data.limit": 24,
    "data.validation": 4,
    "global_batch_size": 4,
    "evaluation.pairs": 4,
    "trainer.max_steps": 6,
    "trainer.logging_steps": 2,
    "trainer.eval_steps": 3,
    "trainer.save_steps": 2,
    "trainer.warmup_steps": 0,
}


@dataclass(frozen=True)
class Verb:
    """A command over a folder, and what must come of it."""

    words: Callable[[Path, bool], list[str]]  # (folder, whether it is there already)
    result: Callable[[Path], Any]
    equal: Callable[[Any, Any], bool] = lambda a, b: a == b


@dataclass
class Tally:
    """What came of a verb."""

    kills: int = 0
    lives: int = 0
    starts: int = 0
    lost: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)


# --- one start -----------------------------------------------------------------------------------


def changes_disk(event: str, details: tuple[Any, ...], folder: str) -> bool:
    """Whether an audit event is a change inside a folder."""
    if event == "open":
        path, _, flags = details
        return isinstance(path, str) and path.startswith(folder) and bool(flags & 3)
    return event in CHANGES and any(isinstance(x, str) and x.startswith(folder) for x in details)


def start(words: list[str], folder: Path, at: int, log: Path) -> int:
    """Fork a start of `goldimask WORDS` that kills itself before its `at`-th change; its pid."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(out, stream)
    seen, life = [0], str(folder.parent)

    def watch(event: str, details: tuple[Any, ...]) -> None:
        if (event == "open" or event in CHANGES) and changes_disk(event, details, life):
            seen[0] += 1
            if seen[0] == at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    code = command(words)
    log.with_suffix(".count").write_text(str(seen[0]))
    os._exit(code)


def command(words: list[str]) -> int:
    """The exit code of `goldimask WORDS`, run in this process."""
    from goldimask.cli import main

    sys.argv = ["goldimask", *words]
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    except BaseException:
        import traceback

        traceback.print_exc()
        code = 1
    else:
        code = 0
    sys.stdout.flush()
    sys.stderr.flush()
    return code


class Forked:
    """What `executors` needs of a process; forked, so that a job need not import anything."""

    def __init__(self, words: list[str], log: Path) -> None:
        from goldimask.campaign.executors import _end_with_parent

        def job() -> None:
            _end_with_parent()
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for stream in (1, 2):
                os.dup2(out, stream)
            os._exit(command(words))

        self.process = get_context("fork").Process(target=job)
        self.process.start()

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode

    def poll(self) -> int | None:
        return self.process.exitcode

    def terminate(self) -> None:
        self.process.terminate()

    def kill(self) -> None:
        self.process.kill()

    def wait(self, timeout: float | None = None) -> None:
        self.process.join(timeout)


def fork_jobs() -> None:
    """Let campaigns fork their jobs."""
    from goldimask.campaign import executors

    def forked(
        job: executors.Job, logs: Path, program: object, words: Any, slot: Any, lock: Any
    ) -> executors._Running:
        log = executors.forget(logs, job.name)
        process: Any = Forked(list(words), log)
        return executors._Running(job, process, log, slot, lock)

    executors._start = forked


# --- verbs ---------------------------------------------------------------------------------------


def training(folder: Path) -> Any:
    """Log, weights, held-out losses, key and names of the files of a run."""
    manifest = json.loads((folder / "manifest.json").read_text())
    losses = (folder / "held_out.json").read_text()
    names = sorted(
        str(f.relative_to(folder)) for f in folder.rglob("*") if "tfevents" not in f.name
    )
    return [logged(folder), losses, manifest["key"], names], weights(folder)


def same_training(a: Any, b: Any) -> bool:
    return a[0] == b[0] and same(a[1], b[1])


def answers(folder: Path) -> Any:
    """Every answer of an evaluation, once, without what a clock measured."""
    from goldimask.records import read_evaluation, unfinished

    manifest, found = read_evaluation(folder)
    assert not unfinished(manifest, found)
    rows = [o.model_dump(exclude={"seconds"}) for o in found]
    return sorted(rows, key=lambda r: json.dumps(r, sort_keys=True))


def tables(folder: Path) -> Any:
    """Answers and weights of every cell, and the tables made of them."""
    cells = sorted((folder / "cells").iterdir())
    assert not [c.name for c in cells if c.name.endswith(".partial")]
    shown = {f.name: f.read_text() for f in sorted((folder / "tables").glob("*.md"))}
    found = [(c.name, answers(c / "eval")) for c in cells if not c.name.startswith(".")]
    return (found, shown), [weights(c) for c in cells if (c / "adapter").is_dir()]


def same_tables(a: Any, b: Any) -> bool:
    return a[0] == b[0] and all(same(x, y) for x, y in zip(a[1], b[1], strict=True))


def train_words(folder: Path, there: bool) -> list[str]:
    changes = [f"{k}={v}" for k, v in SMALL.items()]
    return ["train", "tiny", f"output={folder}", *changes, *["--resume"] * there]


def eval_words(folder: Path, there: bool) -> list[str]:
    words = ["eval", MODEL, "--tasks", "tiny-sort,tiny-chain", "--limit", "6", "--lengths", "32"]
    return [*words, "--batch-size", "2", "--out", str(folder)]


def compare_words(folder: Path, there: bool) -> list[str]:
    changes = [f"change.{k}={v}" for k, v in SMALL.items()]
    changes += ["rows=[base, vanilla]", f"backbones=[{MODEL}]", "seeds=[0]"]
    changes += ["judging.tasks=[tiny-sort]", "judging.problems=4", "judging.taus=[0.9]"]
    changes += [
        "judging.main_tau=0.9",
        "judging.batch_size=2",
        "tables=[main, paired]",
        "figures=[]",
    ]
    return ["compare", "lab", *changes, "--out", str(folder), "--jobs", "2"]


VERBS = {
    "train": Verb(train_words, training, same_training),
    "eval": Verb(eval_words, answers),
    "compare": Verb(compare_words, tables, same_tables),
}


# --- the campaign --------------------------------------------------------------------------------


def life_of(root: Path, name: str, number: str) -> Path:
    """The folder of a life, alone in a folder."""
    (root / f"{name}-{number}").mkdir()
    return root / f"{name}-{number}" / "x"


def undisturbed(verb: Verb, folder: Path) -> tuple[Any, int, float]:
    """(result, changes of the disk, seconds) of a start that nobody ends."""
    log, began = folder.parent.with_suffix(".log"), time.monotonic()
    code = os.waitstatus_to_exitcode(
        os.waitpid(start(verb.words(folder, False), folder, 0, log), 0)[1]
    )
    if code != 0:
        raise SystemExit(f"undisturbed: exit {code}\n{log.read_text()}")
    count = int(log.with_suffix(".count").read_text())
    return verb.result(folder), count, time.monotonic() - began


def torment(name: str, kills: int, seed: int, root: Path, say: Callable[[str], None]) -> Tally:
    """Lives of a verb until so many starts were killed."""
    verb, tally = VERBS[name], Tally()
    if name == "compare":
        fork_jobs()
    whole, changes, seconds = undisturbed(verb, life_of(root, name, "whole"))
    say(f"{name}: undisturbed in {seconds:.1f} s with {changes} changes of the disk")
    while tally.kills < kills:
        folder = life_of(root, name, str(tally.lives))
        tally.lives += 1
        there, alive = False, True
        while alive:
            rng = Random(f"{seed}/{name}/{tally.starts}")
            tally.starts += 1
            by_change = rng.random() < 0.5
            at = rng.randint(1, changes) if by_change else 0
            if tally.kills >= kills:  # let the last life end
                by_change, at = True, 0
            log = root / f"{name}.log"
            pid = start(verb.words(folder, there), folder, at, log)
            code = ended(pid, None if by_change else rng.random() * seconds)
            there, alive = True, code != 0
            if code == -signal.SIGKILL:
                tally.kills += 1
            elif code != 0 and name == "compare" and "SIGKILL" in log.read_text():
                tally.kills += 1  # of a job; the campaign said so and went on with the others
            elif code != 0:
                where = f"life {tally.lives - 1}, start {tally.starts - 1}: exit {code}"
                tally.lost.append(f"{where}\n{log.read_text()[-1500:]}")
                break
        if not alive and not verb.equal(verb.result(folder), whole):
            tally.differing.append(f"{folder.parent.name}: {told(verb.result(folder), whole)}")
        if not alive and (
            left := sorted({p.name for p in folder.parent.iterdir()} - {folder.name})
        ):
            tally.differing.append(f"{folder}: left behind: {left}")
        say(f"{name}: {tally.kills} kills in {tally.lives} lives")
    return tally


def told(found: Any, whole: Any) -> str:
    """Which parts of a result differ, in a line."""
    if isinstance(found, list | tuple) and len(found) == len(whole) and len(str(whole)) > 400:
        parts = [told(a, b) for a, b in zip(found, whole, strict=True) if str(a) != str(b)]
        return "; ".join(parts)[:600] or "weights"
    if isinstance(found, list) and isinstance(whole, list):
        return f"{[x for x in found if x not in whole]}, not {[x for x in whole if x not in found]}"
    return f"{found}, not {whole}"[:600]


def ended(pid: int, after: float | None) -> int:
    """The exit code of a start, which is killed after so many seconds if it is still there."""
    until = None if after is None else time.monotonic() + after
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if until is not None and time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            until = None
        time.sleep(0.002)


def campaign(kills: dict[str, int], seed: int, root: Path, say: Callable[[str], None]) -> bool:
    """Torment every verb; whether nothing was lost and nothing differs."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import_everything()
    sound = True
    print(f"{'verb':<10}{'kills':>7}{'lives':>7}{'lost':>6}{'differing':>11}")
    for name, count in kills.items():
        if count == 0:
            continue
        found = torment(name, count, seed, root, say)
        line = f"{name:<10}{found.kills:>7}{found.lives:>7}"
        print(f"{line}{len(found.lost):>6}{len(found.differing):>11}", flush=True)
        for text in (*found.lost, *found.differing):
            print(text, flush=True)
        sound = sound and not found.lost and not found.differing
    return sound


def import_everything() -> None:
    """What the verbs import, before the fork; one thread, which is all that survives one."""
    import torch

    torch.set_num_threads(1)
    import goldimask.backbones
    import goldimask.campaign.run
    import goldimask.decoding
    import goldimask.eval.run
    import goldimask.train.attention_layer
    import goldimask.train.run  # noqa: F401


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    for name, count in {"train": 50, "eval": 20, "compare": 20}.items():
        parser.add_argument(f"--{name}", type=int, default=count, help="kills")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kills = {name: getattr(given, name) for name in VERBS}
        say = lambda line: print(line, file=sys.stderr, flush=True)  # noqa: E731
        sound = campaign(kills, given.seed, Path(folder), say)
    raise SystemExit(0 if sound else 1)


if __name__ == "__main__":
    main()
