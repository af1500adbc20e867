"""Big inputs: a million rows, 100,000 generations, a page of 4,096 tokens, 1,000 run folders, a
campaign of 500 cells.

    python benchmarks/load.py [--only NAME] [--scale 0.01]      (make load)

Each case is a command in a process of its own: wall seconds, and the largest resident size of it
and its children (the browser's own processes are not counted). Inputs are generated from a fixed
seed and removed afterwards.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from goldimask.console import emit, say, table

PROGRAM = [sys.executable, "-m", "goldimask"]
ROOT = Path(__file__).resolve().parents[1]
METHODS = ("vanilla", "goldimask-d", "gift", "lift-2")
BACKBONES = ("tiny", "tiny-b", "tiny-dream")
PROBLEMS, CELL_PROBLEMS, LOGGED = 20, 90, 30  # of a task, of a cell's, lines of the log: of each


def rows(folder: Path, count: int) -> Iterator[tuple[str, list[str]]]:
    """A data file: planned, and trained on for one step."""
    file, rng = folder / "rows.jsonl", Random(1)
    with file.open("w") as out:
        for i in range(count):
            a, b = rng.randrange(90), rng.randrange(9)
            prompt = f"begin with {a}, first + {b}. what is left? ({i})"
            out.write(json.dumps({"prompt": prompt, "response": f"<answer> {a + b} </answer>"}))
            out.write("\n")
    size = f"{count:,} rows, {file.stat().st_size / 1e6:.0f} MB"
    words = [*PROGRAM, "train", "tiny", "data.corpus=null", f"data.path={file}"]
    words += ["data.validation=64", f"output={folder / 'run'}", "trainer.max_steps=1"]
    yield f"train --dry-run, {size}", [*words, "--dry-run", "--json"]
    yield f"train, to the end of its first step, {size}", [*words, "--json"]


def generations(folder: Path, count: int) -> Iterator[tuple[str, list[str]]]:
    """Stored answers of GSM8K's kind, half of them right."""
    file, rng = folder / "generations.jsonl", Random(1)
    with file.open("w") as out:
        for i in range(count):
            gold = rng.randrange(1000)
            text = "Some words about it. " * 30 + f"\\boxed{{{gold + i % 2}}}"
            row = {"question": f"What is problem {i}?", "ground_truth": gold, "generations": text}
            out.write(json.dumps(row) + "\n")
    size = f"{count:,} generations, {file.stat().st_size / 1e6:.0f} MB"
    yield f"score, {size}", [*PROGRAM, "score", str(file), "--task", "gsm8k", "--json"]


def write_runs(
    folder: Path, count: int, problems: int, backbones: Sequence[str] = ("tiny",)
) -> Iterator[tuple[Path, str, str, int]]:
    """Runs of four methods and many seeds, each with adapter, log and evaluation."""
    import yaml

    from goldimask.backbones import load_backbone
    from goldimask.backbones.identity import weights_hash
    from goldimask.backbones.lora import add_lora, save_adapter
    from goldimask.records import Decoding, Manifest, Outcome, write_manifest

    save_adapter(add_lora(load_backbone("tiny"), 0, r=2, alpha=4.0), folder / "adapter")
    rng, way = Random(1), Decoding(decoder="threshold", options={"tau": 0.9})
    hashes: dict[str, str] = {}
    for i in range(count):
        method, backbone = METHODS[i % 4], backbones[i // 4 % len(backbones)]
        seed = i // 4 // len(backbones)
        run = folder / "runs" / f"{backbone}-{method}-s{seed}"
        (run / "eval").mkdir(parents=True)
        (run / "adapter").symlink_to(folder / "adapter")
        recipe = {"seed": seed, "backbone": {"name": backbone}, "data": {"corpus": "tiny-sft"}}
        recipe["method"] = {"preset": method}
        (run / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        facts = {"steps": LOGGED, "eval_loss_first": 2.0, "eval_loss_best": 1.0}
        own = Manifest(kind="train", key=str(i), model="tiny", weights="b", facts=facts)
        write_manifest(run, own)
        lines = [{"step": k, "loss": 2 - k / LOGGED + rng.random()} for k in range(LOGGED)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
        hashes[backbone] = hashes.get(backbone) or weights_hash(run)
        judged = Manifest(kind="evaluate", key="k", model="m", weights=hashes[backbone])
        write_manifest(run / "eval", judged)
        answers = [
            Outcome(
                task=task, version="1", protocol="fixed", item=f"{task}/{k}", index=k, length=64,
                seed=0, decoding=way, prompt="p", output="x = 1\n" * 60, extracted="x",
                correct=rng.random() < 0.5, detail="", hits=0.0, of=0.0, steps=8, seconds=0.1,
            )
            for task in ("tiny-chain", "tiny-sort", "tiny-lookup")
            for k in range(problems)
        ]  # fmt: skip
        text = "".join(json.dumps(o.model_dump()) + "\n" for o in answers)
        (run / "eval" / "samples-0.jsonl").write_text(text)
        yield run, method, backbone, seed


def folders(folder: Path, count: int) -> Iterator[tuple[str, list[str]]]:
    """Any runs, named one by one."""
    found = [str(run) for run, *_ in write_runs(folder, count, PROBLEMS)]
    words = [*PROGRAM, "report", *found, "--out", str(folder / "report.html"), "--json"]
    yield f"report, {count:,} runs of {3 * PROBLEMS} answers and {LOGGED} log lines", words


def campaign(folder: Path, count: int) -> Iterator[tuple[str, list[str]]]:
    """The cells of a campaign."""
    cells = []
    for run, row, backbone, seed in write_runs(folder, count, CELL_PROBLEMS, BACKBONES):
        own = {"backbone": backbone, "row": row, "seed": seed, "state": "done", "done": True}
        cells.append({**own, "name": run.name, "folder": str(run.relative_to(folder))})
    (folder / "campaign.json").write_text(json.dumps({"name": "big", "cells": cells}))
    what = f"report, a campaign of {count:,} cells of {3 * CELL_PROBLEMS} answers"
    yield what, [*PROGRAM, "report", str(folder), "--json"]


def tokens(folder: Path, count: int) -> Iterator[tuple[str, list[str]]]:
    """A replay of one decode and the page of one step, written and opened in chromium."""
    for name in ("decode", "step"):
        page = folder / f"{name}.html"
        words = [sys.executable, __file__, "--write", name, "--page", str(page)]
        yield f"page of a {name}, {count:,} tokens: written", [*words, "--count", str(count)]
        words = [sys.executable, __file__, "--open", "--page", str(page)]
        yield f"page of a {name}, {count:,} tokens: opened", words


CASES: dict[str, tuple[Callable[[Path, int], Iterator[tuple[str, list[str]]]], int]] = {
    "rows": (rows, 1_000_000),
    "generations": (generations, 100_000),
    "folders": (folders, 1000),
    "campaign": (campaign, 500),
    "tokens": (tokens, 4096),
}


def write_page_of(name: str, page: Path, count: int) -> None:
    """A page over `count` tokens, model-free."""
    from browser.test_pages import (
        Tokenizer,
        decode_page,
        decode_record,
        examples,
        make_batch,
        step,
        step_record,
        steps_section,
        write_page,
    )
    from unit.report.test_decode_page import decoded

    if name == "decode":
        made = decoded(steps=count // 4, n=count)
        decode_page(page, [decode_record(made, Tokenizer(), "one")])
        return
    batch = make_batch(examples([(64, count - 64)]), 0)
    out, _, method = step("goldimask-d", batch, t=0.5)
    record = step_record(out, batch, 0, Tokenizer(), method)
    write_page(page, "step", [steps_section([record], "a", "b")])


def open_page(page: Path) -> None:
    from browser.tools import node

    ran = node("check.mjs", str(page), "open")
    if ran.returncode != 0 or json.loads(ran.stdout)["problems"]:
        raise SystemExit(ran.stdout[-2000:] + ran.stderr)


def measure(words: list[str]) -> tuple[float, float]:
    """(seconds, MB) of a command; its last words if it fails."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with tempfile.TemporaryFile() as out:
        began = time.monotonic()
        process = subprocess.Popen(words, stdout=out, stderr=subprocess.STDOUT, env=environment)
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            out.seek(0)
            raise SystemExit(out.read().decode()[-3000:])
        return time.monotonic() - began, used.ru_maxrss / 1000


def main(
    only: Annotated[str, typer.Option(help=f"One of {', '.join(CASES)}.")] = "",
    scale: Annotated[float, typer.Option(help="Share of the full size.")] = 1.0,
    write: Annotated[str, typer.Option(hidden=True)] = "",
    opened: Annotated[bool, typer.Option("--open", hidden=True)] = False,
    page: Annotated[Path, typer.Option(hidden=True)] = Path(),
    count: Annotated[int, typer.Option(hidden=True)] = 0,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Time and memory of big inputs."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tools")]
    if write:
        return write_page_of(write, page, count)
    if opened:
        return open_page(page)
    found = []
    for name, (make, full) in CASES.items():
        if only in ("", name):
            with tempfile.TemporaryDirectory() as folder:
                for label, words in make(Path(folder), max(64, round(full * scale))):
                    seconds, size = measure(words)
                    say(f"{label}: {seconds:.1f} s, {size:.0f} MB")
                    found.append((label, f"{seconds:.1f}", f"{size:.0f}"))
    shown = table("Big inputs", ("case", "seconds", "MB"), found)
    emit([dict(zip(("case", "seconds", "mb"), x, strict=True)) for x in found], as_json, shown)


if __name__ == "__main__":
    typer.run(main)
