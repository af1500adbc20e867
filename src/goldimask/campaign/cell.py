"""One cell: fine-tune, score held-out text, decode the test problems at every threshold.

Nothing of a cell depends on other cells or on the process it runs in. The record holds every
verdict and step count, so that tables and intervals are made from cells alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from goldimask.campaign.settings import BASE, Cell, Lab, problems_at, section, shard, tasks_of
from goldimask.files import write_json


def run_cell(
    lab: Lab, cell: Cell, key: str, commit: str = "", say: Callable[[str], None] = lambda x: None
) -> dict[str, Any]:
    """The record of a cell; everything on one thread."""
    from goldimask.campaign.data import heldout_examples, heldout_rows
    from goldimask.processes import torch_threads
    from goldimask.studies.heldout import held_out

    began = time.process_time()
    with torch_threads():
        backbone, training = trainable(lab, cell.backbone, cell.seed), None
        if cell.row != BASE:
            say("training")
            training = trained(lab, cell, backbone)
        rows = heldout_rows(lab.corpus, lab.judging.heldout)
        scored = held_out(backbone, heldout_examples(rows, backbone)).summary()
        between = time.process_time()
        tasks: dict[str, Any] = {}
        for tau in lab.judging.taus:
            say(f"decoding at {tau:g}")
            tasks[f"{tau:g}"] = decoded(lab, cell, backbone, tau)
    return {
        "cell": asdict(cell),
        "key": key,
        "commit": commit,
        "training": training,
        "heldout": scored,
        "tasks": tasks,
        "cpu_seconds": {
            "all": time.process_time() - began,
            "decoding": time.process_time() - between,
        },
    }


def trainable(lab: Lab, name: str, seed: int) -> Any:
    """A fresh backbone, with an adapter if the lab asks for one."""
    from goldimask.backbones import load_backbone

    backbone = load_backbone(name, dtype="float32", device="cpu")
    if lab.lora_rank == 0:
        return backbone
    from goldimask.backbones.lora import add_lora

    return add_lora(backbone, seed, r=lab.lora_rank, alpha=2.0 * lab.lora_rank, dropout=0.0)


def trained(lab: Lab, cell: Cell, backbone: Any) -> dict[str, Any]:
    """Fine-tune in place."""
    from goldimask.campaign.classes import Tally, classify
    from goldimask.campaign.data import clean_rows, to_examples, training_rows
    from goldimask.studies.tuning import tune
    from goldimask.train.attention_layer import resolve_layer
    from goldimask.train.prepare import make_method

    method = section(lab, cell.row)
    assert method is not None
    rows = training_rows(lab.corpus, lab.examples, cell.seed, lab.eta)
    examples = to_examples(rows, backbone)
    clean = clean_rows(lab.corpus, lab.examples, cell.seed)
    tally = Tally(classify(rows, clean, examples, backbone))
    built, layers = resolve_layer(
        make_method(method), backbone, [], examples, cell.seed, None, lambda line: None
    )
    done = tune(backbone, examples, built, lab.tuning, cell.seed, tally)
    tail = done.losses[-10:]
    return {
        "cpu_seconds": done.cpu_seconds,
        "steps": len(done.losses),
        "loss_first": done.losses[0] if done.losses else None,
        "loss_last": sum(tail) / len(tail) if tail else None,
        "attention_layer": built.attention_layer,
        "layer_probe": layers,
        "metrics": done.metrics,
        "classes": tally.shares(),
    }


def decoded(lab: Lab, cell: Cell, backbone: Any, tau: float) -> dict[str, Any]:
    """Verdicts and steps of every task at one threshold."""
    from goldimask.campaign.data import cached_task
    from goldimask.eval.run import evaluate

    judging, share = lab.judging, shard(lab, cell.seed)
    out = {}
    for name in tasks_of(lab):
        found = evaluate(
            backbone,
            [cached_task(name, judging.problems)],
            options={"tau": tau, "block": judging.block},
            seeds=[0],
            limit=problems_at(judging, tau),
            batch_size=judging.batch_size,
            shard=share,
        )
        out[name] = {
            "first": share[0],
            "every": share[1],
            "correct": "".join(str(int(s.correct)) for s in found.outcomes),
            "steps": [s.steps for s in found.outcomes],
            "unparsable": sum(s.extracted is None for s in found.outcomes),
        }
    return out


def run_and_write(lab: Lab, cell: Cell, key: str, file: Path, commit: str) -> dict[str, Any]:
    """For a worker: the record is on disk before anybody hears of it."""
    record = run_cell(lab, cell, key, commit)
    write_json(file, record)
    return record
