"""Cells are found again by content.

    key = hash of: weights and tokenizer of the backbone, the texts trained on, the test problems
          and held-out texts, the resolved method, tuning and judging of the cell, its seed, VERSION

So a changed corpus, task, base or setting makes a new cell, and renaming an output folder or adding
rows, seeds and backbones does not. Source code is not hashed: `VERSION` is raised by hand when the
result of a cell changes for another reason, and every cell records the commit it was made at.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

import goldimask
from goldimask.campaign.data import heldout_rows, problem_texts, training_rows
from goldimask.campaign.settings import Cell, Lab, lab_dict, problems_at, section, shard, tasks_of
from goldimask.config import MethodSection
from goldimask.errors import GoldimaskError

VERSION = 2  # of what a cell contains


def cell_key(lab: Lab, cell: Cell) -> str:
    """What the result of a cell depends on, as 16 hexadecimal digits."""
    method = section(lab, cell.row)
    values = lab_dict(lab)
    judging = values["judging"]
    counts = {f"{tau:g}": problems_at(lab.judging, tau) for tau in lab.judging.taus}
    kept = {k: judging[k] for k in ("block", "batch_size", "heldout")}
    tuned = None if method is None else TypeAdapter(MethodSection).dump_python(method, mode="json")
    facts = {
        "version": (VERSION, goldimask.__version__),
        "weights": weights_hash(cell.backbone),
        "problems": problems_hash(tasks_of(lab), lab.judging.problems),
        "heldout": texts_hash(map(text_of, heldout_rows(lab.corpus, lab.judging.heldout))),
        "judging": {
            **kept,
            "tasks": tasks_of(lab),
            "shard": shard(lab, cell.seed),
            "counts": counts,
        },
        "method": tuned,
    }
    if tuned is not None:
        rows = training_rows(lab.corpus, lab.examples, cell.seed, lab.eta)
        facts |= {
            "seed": cell.seed,
            "tuning": values["tuning"],
            "data": texts_hash(map(text_of, rows)),
            **adapter_facts(lab),
        }
    return digest(json.dumps(facts, sort_keys=True).encode())


def adapter_facts(lab: Lab) -> dict[str, int]:
    """Nothing without an adapter, so that older cells keep their keys."""
    return {"lora_rank": lab.lora_rank} if lab.lora_rank else {}


@cache
def weights_hash(backbone: str) -> str:
    """Every file of the model's folder."""
    from goldimask.backbones import find_model

    folder = find_model(backbone).folder()
    files = sorted(f for f in Path(folder).iterdir() if f.is_file())
    if not files:
        raise GoldimaskError(f"backbone '{backbone}': {folder} is empty")
    return digest(*(part for f in files for part in (f.name.encode(), f.read_bytes())))


@cache
def problems_hash(tasks: tuple[str, ...], n: int) -> str:
    return texts_hash(text for task in tasks for text in problem_texts(task, n))


def texts_hash(texts: Iterable[str]) -> str:
    return digest(*(t.encode() for t in texts))


def text_of(row: dict[str, str]) -> str:
    return f"{row['prompt']}\0{row['response']}"


def digest(*parts: bytes) -> str:
    found = hashlib.blake2b(digest_size=8)
    for part in parts:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)
    return found.hexdigest()


def cell_file(folder: Path, cell: Cell, key: str) -> Path:
    return folder / "cells" / f"{cell.name}_{key}.json"


def read_cell(file: Path) -> dict[str, Any] | None:
    """A finished cell; None when it is not there or cannot be read (it is then made again)."""
    try:
        found = json.loads(file.read_text("utf-8"))
    except (OSError, json.JSONDecodeError):
        return None
    return found if isinstance(found, dict) and "tasks" in found else None
