"""Campaign folders without a training: cells written through the records, with known answers.

Of the problems of a task, a row has the first `share` right; a seed moves that by one problem.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from goldimask.files import write_json
from goldimask.records import (
    Decoding,
    Manifest,
    Metric,
    Outcome,
    Trial,
    append_lines,
    write_manifest,
)
from unit.report.support import HOSTILE

LOW = Decoding(decoder="low-confidence", options={"block": 32})
ROWS = {"vanilla": 0.3, "cart": 0.4, "lift-2": 0.35, "lift-3": 0.45, "goldimask-d": 0.6}
LENGTHS = {"gsm8k": (256, 512), "countdown": (128,), "humaneval": (256,)}


def threshold(tau: float) -> Decoding:
    return Decoding(decoder="threshold", options={"block": 32, "tau": tau})


def answers(
    share: float,
    tasks: Sequence[str],
    decodings: Sequence[Decoding] = (LOW,),
    problems: int = 10,
    part: tuple[int, int] = (0, 1),
    text: str = "the answer is 4",
    steps: int = 20,
) -> list[Outcome]:
    """Answers to each task at all of its lengths; `part` is a share (first, every) of them."""
    return [
        Outcome(
            **{"task": task, "version": "1", "protocol": "fixed", "item": f"p{i}", "index": i},
            **{"length": length, "seed": 0, "decoding": way, "prompt": f"h{i}", "output": text},
            **{"extracted": "4", "correct": i < round(share * problems) - (length == 256)},
            **{"detail": "", "hits": 0.0, "of": 0.0, "steps": steps, "seconds": 0.1, "tokens": 30},
        )
        for way in decodings
        for task in tasks
        for length in LENGTHS.get(task, (64,))
        for i in range(part[0], problems, part[1])
    ]


def trials(found: Sequence[Outcome], items: int) -> list[Trial]:
    """The trials of some answers, with as many problems as there are in all."""
    places = dict.fromkeys(o.place for o in found)
    return [
        Trial(task=t, length=n, seed=s, decoding=d, items=items, prompts="h")
        for t, n, s, d in places
    ]


def write_cell(
    folder: Path,
    method: dict[str, Any] | None,
    found: Sequence[Outcome],
    *,
    seed: int = 0,
    backbone: str = "tiny",
    corpus: str = "tiny-1k",
    items: int = 10,
    logs: int = 20,
    seconds: float = 60.0,
) -> Path:
    """A run of a method (None: the untuned backbone) with its evaluation."""
    if method is not None:
        folder.mkdir(parents=True, exist_ok=True)
        recipe = {"seed": seed, "backbone": {"name": backbone}, "data": {"corpus": corpus}}
        (folder / "recipe.yaml").write_text(yaml.safe_dump({**recipe, "method": method}))
        loss = [1 + math.exp(-i / 5) + 0.01 * seed for i in range(logs)]
        lines = [{"step": 10 * (i + 1), "loss": x, "n_eff_ratio": 0.5} for i, x in enumerate(loss)]
        lines += [{"step": 10 * logs, "eval_loss": loss[-1]}]
        text = "".join(json.dumps(Metric(**x).model_dump()) + "\n" for x in lines)
        (folder / "metrics.jsonl").write_text(text)
        facts = {
            **{"steps": 10 * logs, "examples": 99, "eval_loss_first": 2.0},
            **{"eval_loss_last": loss[-1], "seconds": {"training": seconds, "hardware": ["cpu"]}},
            "classes": {"words": {"candidates": 0.25, "targets": 0.3, "weight": 0.2}},
        }
        made = Manifest(kind="train", key="k", model=backbone, weights="b", facts=facts)
        write_manifest(folder, made)
        (folder / "step.html").write_text("<p>one step</p>")
    if found:
        append_lines(folder / "eval" / "samples-0.jsonl", found)
        model = backbone if method is None else folder.name
        made = Manifest(
            kind="evaluate", key="k", model=model, weights="w", trials=trials(found, items)
        )
        write_manifest(folder / "eval", made)
    return folder


def write_campaign_folder(
    out: Path,
    backbones: Sequence[str] = ("tiny",),
    corpora: Sequence[str] = ("tiny-1k",),
    rows: dict[str, float] | None = None,
    seeds: Sequence[int] = (0, 1),
    tasks: Sequence[str] = ("gsm8k", "countdown"),
    decodings: Sequence[Decoding] = (LOW,),
    problems: int = 10,
    logs: int = 20,
    text: str = " ".join(HOSTILE[:8]),
    **part: Any,
) -> Path:
    """A campaign of all combinations; the last cell has failed, the one before is running."""
    cells = []
    for backbone in backbones:
        name = f"{backbone}_base"
        found = answers(0.2, tasks, decodings, problems, text=text)
        write_cell(out / "cells" / name, None, found, backbone=backbone, items=problems)
        cells.append({"name": name, "row": "base", "backbone": backbone, "folder": f"cells/{name}"})
        for corpus in corpora:
            for row, share in (rows or ROWS).items():
                for seed in seeds:
                    name = f"{backbone}_{corpus}_{row}_s{seed}"
                    shown = f"{row} says: {text}"
                    found = answers(
                        share + 0.1 * (seed % 2), tasks, decodings, problems, text=shown
                    )
                    write_cell(
                        out / "cells" / name,
                        {"preset": row} if row in PRESET_NAMES else {"preset": "goldimask-d"},
                        found,
                        seed=seed,
                        backbone=backbone,
                        corpus=corpus,
                        items=problems,
                        logs=logs,
                    )
                    cell = {"name": name, "row": row, "backbone": backbone, "corpus": corpus}
                    cells.append({**cell, "seed": seed, "folder": f"cells/{name}"})
    cells = [{**c, "state": "done", "done": True} for c in cells]
    waiting = {"row": "goldimask-r", "backbone": backbones[-1], "corpus": corpora[-1], "seed": 0}
    cells.append(
        {**waiting, "name": "late", "folder": "cells/late", "state": "running", "done": False}
        | {"step": 40, "steps": 200}
    )
    cells.append(
        {**waiting, "name": "lost", "folder": None, "state": "failed", "done": False, "seed": 1}
        | {"error": "CUDA out of memory <b>at</b> step 3"}
    )
    names = [c["name"] for c in cells]
    parts = [{"name": "all", "title": "Tables", "cells": names, **part}]
    write_json(out / "campaign.json", {"name": "made-up", "cells": cells, "parts": parts})
    return out


def preset_names() -> frozenset[str]:
    from goldimask.presets import PRESETS

    return frozenset(PRESETS.names())


PRESET_NAMES = preset_names()
