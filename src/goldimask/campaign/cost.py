"""Training cost of every row relative to Vanilla: CPU time of a step, measured in one process.

    all methods in turn on one batch and its draws, minimum over the rounds (`train/cost.py`)

Rows that differ only in an exponent or a cap cost the same; each is timed all the same, so that the
spread of such rows shows how exact the figures are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from goldimask.campaign.cache import VERSION, adapter_facts, digest, weights_hash
from goldimask.campaign.settings import BASE, Lab, label, section
from goldimask.config import MethodSection
from goldimask.files import write_json


def costs(lab: Lab, backbone: str, folder: Path) -> dict[str, float]:
    """Row -> ratio; from the folder when nothing changed. Empty when not asked for."""
    rows = [row for row in dict.fromkeys(("vanilla", *lab.rows)) if row != BASE]
    if lab.cost_rounds < 1:
        return {}
    dump = TypeAdapter(MethodSection | None).dump_python
    facts = {
        "version": VERSION,
        "weights": weights_hash(backbone),
        "rows": {row: dump(section(lab, row), mode="json") for row in rows},
        "batch_size": lab.tuning.batch_size,
        "corpus": lab.corpus,
        "rounds": lab.cost_rounds,
        **adapter_facts(lab),
    }
    key = digest(json.dumps(facts, sort_keys=True).encode())
    file = folder / "cells" / f"{label(backbone)}_cost_{key}.json"
    try:
        return json.loads(file.read_text("utf-8"))["ratios"]
    except (OSError, json.JSONDecodeError, KeyError):
        pass
    found = measure(lab, backbone, rows)
    write_json(file, {**facts, **found})
    return found["ratios"]


def measure(lab: Lab, backbone: str, rows: list[str]) -> dict[str, Any]:
    from goldimask.campaign.cell import trainable
    from goldimask.campaign.data import to_examples, training_rows
    from goldimask.data.batches import make_batch
    from goldimask.processes import torch_threads
    from goldimask.train.attention_layer import resolve_layer
    from goldimask.train.cost import run_rounds
    from goldimask.train.prepare import make_method

    seed = lab.seeds[0]
    loaded = trainable(lab, backbone, seed)
    examples = to_examples(training_rows(lab.corpus, lab.examples, seed, lab.eta), loaded)
    built = {}
    for row in rows:
        method = section(lab, row)
        assert method is not None
        built[row], _ = resolve_layer(
            make_method(method), loaded, [], examples, seed, None, lambda line: None
        )
    size = lab.tuning.batch_size
    middle = sorted(examples, key=len)[max(0, (len(examples) - size) // 2) :][:size]
    batch = make_batch(middle, loaded.pad_id, 8)
    with torch_threads():
        best = run_rounds(loaded, built, [batch], lab.cost_rounds, lambda *a, **k: None)
    vanilla = best["vanilla"].seconds
    return {
        "ratios": {row: best[row].seconds / vanilla for row in rows},
        "vanilla_seconds": vanilla,
    }
