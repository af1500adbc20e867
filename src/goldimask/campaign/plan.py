"""`goldimask compare --plan`: cells, hours and disk, without loading, hashing or reading anything.

Cells are found by their recipe (`grid.by_recipe`). Hours of a training come from finished ones of
the same backbone, corpus and number of passes where there are any, else from the arithmetic of
`train/cards.py` on a card: parameters by the published sizes or config.json, `data.max_length`
tokens an example (an upper bound). An answer of length n takes n / 2 calls of the model over n +
PROMPT tokens; with a threshold it takes fewer, so that this is an upper bound too. The embedded
models are counted in hours of one CPU core, so that the lab's standard grid comes to the 5,084 CPU
seconds that it took on `tiny` (docs/log), and the start of a process to 8 more.

Disk: weights of the adapter in float32, as many checkpoints as the recipe keeps (weights and two
moments), KILOBYTES an answer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldimask.campaign.grid import Place, by_recipe, wanted
from goldimask.campaign.judging import Evaluation
from goldimask.campaign.settings import Campaign
from goldimask.files import read_object
from goldimask.jobs import partial_of
from goldimask.known import PUBLISHED
from goldimask.presets import PRESETS
from goldimask.records import read_manifest
from goldimask.train.cards import DEFAULT, SHARE, Card, card_named, step_seconds, token_work

PROBLEMS = {"gsm8k": 1319, "math500": 500, "countdown": 256, "sudoku": 256, "aime24": 30}
PROBLEMS |= {"aime25": 30, "humaneval": 164, "mbpp": 257}
PROMPT, LONGEST = 200, 4096  # tokens; of an example where the recipe does not say
KILOBYTES = 2.0
CANDIDATES = 0.68  # of a response, as in train/estimate.py
CORE_START, CORE_STEP, CORE_ANSWER = 8.0, 0.4, 0.12  # seconds: a job, a step of 16, an answer
EMBEDDED = ("tiny", "tiny-b", "tiny-dream")


@dataclass(frozen=True)
class Sizes:
    """What the arithmetic needs of a backbone."""

    weights: float  # that multiply a token
    width: int
    queries: int
    values: int  # width of keys and values
    mlp: int
    blocks: int

    def adapter(self, r: int, targets: Sequence[str]) -> float:
        """Weights of an adapter."""
        shapes = {
            "q_proj": (self.width, self.queries),
            "k_proj": (self.width, self.values),
            "v_proj": (self.width, self.values),
            "o_proj": (self.queries, self.width),
            "gate_proj": (self.width, self.mlp),
            "up_proj": (self.width, self.mlp),
            "down_proj": (self.mlp, self.width),
        }
        return float(self.blocks * r * sum(sum(shapes.get(t, (0, 0))) for t in targets))


def sizes_of(model: str) -> Sizes | None:
    """Of a published checkpoint, or by the config.json of a folder."""
    row = next((p for p in PUBLISHED if model in (p.name, p.hub)), None)
    package = Path(__file__).parents[1]
    folders = (Path(model), package / "assets" / model / "model")
    folders += (package.parents[1] / "models" / model / "model",)
    file = next((f / "config.json" for f in folders if (f / "config.json").is_file()), None)
    if row is None and file is None:
        return None
    c: dict[str, Any] = dict(row.sizes) if row else read_object(file)  # type: ignore[arg-type]

    def get(*names: str, other: int = 0) -> int:
        return int(next((c[n] for n in names if c.get(n)), other))

    width, heads = get("hidden_size", "d_model"), get("num_attention_heads", "n_heads", other=1)
    head = get("head_dim", other=width // heads)
    queries = head * heads
    values = head * get("num_key_value_heads", "n_kv_heads", other=heads)
    experts = get("num_experts_per_tok", other=1)
    mlp = get("moe_intermediate_size", "intermediate_size", "mlp_hidden_size") * experts
    blocks = get("num_hidden_layers", "n_layers")
    block = 2 * width * queries + 2 * width * values + 3 * width * mlp
    head_weights = width * get("vocab_size", "embedding_size")
    return Sizes(blocks * block + head_weights, width, queries, values, mlp, blocks)


@dataclass
class Cost:
    """Hours and bytes of a cell; `source` says where the hours come from."""

    train: float = 0.0
    judge: float = 0.0
    disk: float = 0.0
    source: str = ""


def cost_of(place: Place, card: Card, measured: dict[Any, list[float]]) -> Cost:
    """The estimate of a cell."""
    sizes, core = sizes_of(place.base), place.cell.backbone in EMBEDDED
    answers = sum(answers_of(e) for e in place.asked)
    out = Cost(disk=1e3 * KILOBYTES * answers)
    recipe = place.recipe
    if sizes is None:
        return Cost(disk=out.disk, source="unknown: neither a published name nor a folder here")
    out.source = (
        "one CPU core, by the pace of an earlier grid" if core else f"{card.name}, arithmetic"
    )
    if core:
        out.judge = (CORE_ANSWER * answers + CORE_START * len(place.asked)) / 3600
    else:
        seconds = sum(decode_seconds(e, sizes, card) for e in place.asked)
        out.judge = seconds / 3600
    if recipe is None:
        return out
    steps = int(recipe.trainer.get("max_steps", 1))
    trained = sizes.adapter(recipe.lora.r, recipe.lora.targets) if recipe.lora else sizes.weights
    kept = recipe.trainer.get("save_total_limit", 1)
    kept = 0 if recipe.trainer.get("save_strategy") == "no" else int(kept or 1)
    out.disk += (4 + 12 * kept) * trained
    if known := measured.get(kind_of(place)):
        out.train = sum(known) / len(known) * steps / 3600
        out.source = f"{len(known)} finished cells of its kind"
    elif core:
        out.train = (CORE_START + CORE_STEP * steps * recipe.global_batch_size / 16) / 3600
    else:
        length = float(recipe.data.max_length or LONGEST)
        checkpointed = bool(recipe.trainer.get("gradient_checkpointing"))
        passes = passes_of(place)
        work = token_work(
            *(sizes.weights, sizes.queries, sizes.blocks, length, passes),
            recipe.lora is not None,
            checkpointed,
        )
        flop = work.total * length * recipe.global_batch_size
        alone = passes > 1 and recipe.global_batch_size == 1
        spent = step_seconds(flop, card, 1, trained, CANDIDATES * length, alone)
        out.train = sum(spent.values()) * steps / 3600
    return out


def passes_of(place: Place) -> int:
    preset = place.recipe.method.preset if place.recipe else ""
    return (PRESETS.get(preset).passes if preset in PRESETS else 0) or 2


def kind_of(place: Place) -> tuple[Any, ...]:
    recipe = place.recipe
    batch = recipe.global_batch_size if recipe else 0
    return (place.base, place.cell.corpus, passes_of(place), batch)


def answers_of(e: Evaluation) -> int:
    total = 0
    for task, *_ in e.places():
        problems = PROBLEMS.get(task, e.problems or 0)
        problems = problems if e.problems is None else min(problems, e.problems)
        total += len(range(e.first, problems, e.every))
    return total


def decode_seconds(e: Evaluation, sizes: Sizes, card: Card) -> float:
    total = 0.0
    for task, length, *_ in e.places():
        problems = PROBLEMS.get(task, e.problems or 0)
        problems = problems if e.problems is None else min(problems, e.problems)
        tokens = PROMPT + length
        work = token_work(sizes.weights, sizes.queries, sizes.blocks, tokens, 1, True, False)
        flop = work.forward * tokens * (length / 2)
        total += len(range(e.first, problems, e.every)) * flop / (SHARE * card.tflops * 1e12)
    return total


def make_estimate(
    parts: Sequence[Campaign], folder: Path, card: str | None = None
) -> dict[str, Any]:
    """Everything that `--plan` shows."""
    found = by_recipe(wanted(parts), folder)
    on = card_named(card or DEFAULT)
    measured: dict[Any, list[float]] = {}
    for place in found:
        if place.recipe is not None and place.trained and place.folder is not None:
            manifest = read_manifest(place.folder)
            facts = manifest.facts if manifest else {}
            seconds, steps = facts.get("seconds", {}), facts.get("steps")
            if isinstance(seconds, dict) and steps and "training" in seconds:
                measured.setdefault(kind_of(place), []).append(seconds["training"] / steps)
    costs = {id(place): cost_of(place, on, measured) for place in found}
    lacking = {id(place): place.missing() for place in found}
    return {
        "campaign": parts[0].name if len(parts) == 1 else Path(parts[0].output).name,
        "folder": str(folder),
        "cells": len(found),
        "done": sum(p.trained and not lacking[id(p)] for p in found),
        "trainings": trainings(found),
        "evaluations": {
            "all": sum(len(p.asked) for p in found),
            "missing": sum(map(len, lacking.values())),
            "answers": sum(answers_of(e) for p in found for e in p.asked),
        },
        "tables": sum(len(part.tables) for part in parts),
        "figures": sum(len(part.figures) for part in parts),
        **hours(found, costs, lacking),
        "disk_gb": round(sum(c.disk for c in costs.values()) / 1e9, 3),
        "sources": sorted({c.source for c in costs.values() if c.source}),
        "not_here": not_here(found),
        "parts": [
            part_line(part, [p for p in found if part.name in p.parts], costs) for part in parts
        ],
    }


def trainings(found: Sequence[Place]) -> dict[str, int]:
    runs = [p for p in found if p.recipe is not None]
    done = sum(p.trained for p in runs)
    begun = sum(bool(p.folder) and not p.trained and partial_of(p.folder).is_dir() for p in runs)  # type: ignore[arg-type]
    return {
        "all": len(runs),
        "done": done,
        "unfinished": begun,
        "missing": len(runs) - done - begun,
    }


def hours(
    found: Sequence[Place], costs: dict[int, Cost], lacking: dict[int, list[Evaluation]]
) -> Any:
    """Of cards and of CPU cores, and how much of it is left."""
    names = ("gpu_hours", "gpu_hours_left", "core_hours", "core_hours_left")
    out: dict[str, float] = dict.fromkeys(names, 0.0)
    for p in found:
        c, kind = costs[id(p)], "core" if p.cell.backbone in EMBEDDED else "gpu"
        share = len(lacking[id(p)]) / len(p.asked) if p.asked else 0.0
        out[f"{kind}_hours"] += c.train + c.judge
        out[f"{kind}_hours_left"] += (0.0 if p.trained else c.train) + share * c.judge
    return {name: round(value, 3) for name, value in out.items()}


def part_line(part: Campaign, own: Sequence[Place], costs: dict[int, Cost]) -> dict[str, Any]:
    return {
        "name": part.name,
        "title": part.title,
        "cells": len(own),
        "trainings": trainings(own),
        "hours": round(sum(costs[id(p)].train + costs[id(p)].judge for p in own), 1),
        "tables": list(part.tables),
        "figures": list(part.figures),
    }


def not_here(found: Sequence[Place]) -> dict[str, str]:
    """Weights and data that cells cannot be keyed without yet: a run fetches them first."""
    from goldimask.data.corpora import CORPORA, Corpus
    from goldimask.data.rows import is_hub_id

    out: dict[str, str] = {}
    for place in found:
        row = next((p for p in PUBLISHED if place.base in (p.name, p.hub)), None)
        hub = row.hub if row else place.base if is_hub_id(place.base) else ""
        if hub and not Path(place.base).is_dir() and not cached("models", hub):
            out[place.base] = "weights are on the Hub, not in the local cache"
        data = place.recipe.data if place.recipe else None
        if data is None or data.mixture:
            continue
        corpus = CORPORA.get(data.corpus) if data.corpus and ":" not in data.corpus else None
        place_of = data.path or (corpus.hub if isinstance(corpus, Corpus) else "")
        if is_hub_id(place_of) and not Path(place_of).exists() and not cached("datasets", place_of):
            out[data.corpus or place_of] = "data is on the Hub, not in the local cache"
    return out


def cached(kind: str, hub: str) -> bool:
    """Whether the Hub's cache has a snapshot."""
    home = Path(os.environ.get("HF_HOME", Path.home() / ".cache" / "huggingface"))
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    return (cache / f"{kind}--{hub.replace('/', '--')}" / "snapshots").is_dir()
