"""`goldimask init`: a look at somebody's rows, and a first recipe for them.

The look says what `shapes.py` finds in every row, how long the rows are in tokens of the model, how
many would be cut at which length, and what cannot be used. The recipe holds ordinary values for
fine-tuning on a few hundred or thousand rows with an adapter, none of them the paper's protocol:

    max_length   the least multiple of 64 that cuts nothing, within what the model was trained for
    validation   a tenth of the rows, 200 at most; none of fewer than 20
    epochs       three, in batches of eight
    adapter      on every projection, as is usual elsewhere (the paper: on q, k and v)
    rate         1e-4; 3e-3 for models below ten million parameters
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from goldimask.config import Recipe, parse_recipe
from goldimask.data.corpora import open_rows
from goldimask.data.rows import Row
from goldimask.data.shapes import Pair, columns_of, shape_of, to_pairs
from goldimask.errors import GoldimaskError, short
from goldimask.files import parse_yaml
from goldimask.keys import content_id
from goldimask.train.arguments import planned_steps

NAMED = 3  # bad rows that are shown
CUTS = (128, 256, 512, 1024, 2048, 4096, 8192)
A_TOKEN = 4  # characters, where no tokenizer is at hand
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
SMALL = 10_000_000  # parameters


@dataclass
class Look:
    """What is in a file."""

    path: str
    rows: int = 0
    shapes: Counter[str] = field(default_factory=Counter)
    columns: Counter[str] = field(default_factory=Counter)
    bad: int = 0
    first_bad: list[str] = field(default_factory=list)
    several: int = 0  # conversations with several assistant turns
    repeated: int = 0  # rows that are a copy of another
    prompt: list[int] = field(default_factory=list)  # tokens of each example
    response: list[int] = field(default_factory=list)
    unknown: int = 0  # tokens that the tokenizer has no word for
    measured: bool = True  # by the tokenizer; else a quarter of the characters

    @property
    def total(self) -> list[int]:
        return [a + b for a, b in zip(self.prompt, self.response, strict=True)]

    @property
    def good(self) -> int:
        return self.rows - self.bad

    @property
    def unknown_share(self) -> float:
        return self.unknown / max(1, sum(self.total))

    def cut(self, most: int) -> dict[int, int]:
        """How many examples are longer than each length, down to the first that cuts none."""
        found = {n: sum(t > n for t in self.total) for n in CUTS if n <= most}
        whole = next((n for n, count in found.items() if not count), most)
        return {n: count for n, count in found.items() if n <= whole}


def look_at(path: str, skeleton: Any, columns: Mapping[str, str] | None = None) -> Look:
    """Read every row; `skeleton` is a backbone without weights, perhaps without a tokenizer."""
    found = Look(path, measured=hasattr(skeleton, "tokenizer"))
    seen: set[int] = set()
    for row in open_rows(path=path, columns=columns):
        found.rows += 1
        try:
            pairs = to_pairs(row, "all")
            shape = shape_of(columns_of(row)) or "?"
            measured = [lengths(pair, skeleton if found.measured else None) for pair in pairs]
        except GoldimaskError as error:
            found.bad += 1
            found.columns.update(names(row))
            if len(found.first_bad) < NAMED:
                found.first_bad.append(short(str(error)))
            continue
        found.columns.update(names(row))
        found.shapes[shape] += 1
        found.several += len(pairs) > 1
        same = content_id(*(f"{m['role']}\0{m['content']}" for p in pairs for m in p.prompt))
        same = content_id(str(same), *(p.response for p in pairs))
        found.repeated += same in seen
        seen.add(same)
        for prompt, response, unknown in measured:
            found.prompt.append(prompt)
            found.response.append(response)
            found.unknown += unknown
    if not found.good:
        raise GoldimaskError(nothing_usable(found))
    return found


def names(row: Row) -> Iterable[str]:
    content = row.content
    return map(str, content) if isinstance(content, Mapping) else ()


def nothing_usable(found: Look) -> str:
    if not found.rows:
        return f"'{found.path}' holds no rows"
    which = ", ".join(found.columns) or "none"
    return (
        f"'{found.path}': none of its {found.rows} rows can be used. Its columns are: {which}. The "
        f"first: {found.first_bad[0]}. Say which columns are which with "
        "--columns prompt=NAME,response=NAME"
    )


def lengths(pair: Pair, renderer: Any) -> tuple[int, int, int]:
    """Tokens of prompt and response, and how many of them are unknown."""
    if renderer is None:
        asked = sum(len(m["content"]) for m in pair.prompt)
        return asked // A_TOKEN + 1, len(pair.response) // A_TOKEN + 1, 0
    prompt = renderer.prompt_ids(pair.prompt)
    response = renderer.response_ids(pair.response, turn_end=True)
    strange = renderer.tokenizer.unk_token_id
    return len(prompt), len(response), sum(i == strange for i in (*prompt, *response))


# --- the recipe ----------------------------------------------------------------------------------


def recipe_text(
    found: Look, model: str, skeleton: Any, columns: Mapping[str, str] | None = None
) -> str:
    """The recipe without its header."""
    linear = {
        n.rpartition(".")[2] for n, m in skeleton.model.named_modules() if isinstance(m, nn.Linear)
    }
    targets = ", ".join(name for name in TARGETS if name in linear)
    small = sum(p.numel() for p in skeleton.model.parameters()) < SMALL
    most = usable(skeleton)
    length = min(most, -(-max(found.total) // 64) * 64)
    cut = sum(n > length for n in found.total)
    held_out = min(200, found.good // 10) if found.good >= 20 else 0
    training = round(len(found.total) * (1 - held_out / found.good))  # conversations have several
    size = min(8, max(1, training // 8))
    trainer = {"num_train_epochs": 3}
    steps = planned_steps(trainer, size, training)
    every = max(1, steps // 4)
    turns = "all" if found.several else "last"
    which = f"{found.several} rows have several" if found.several else "no row has several"
    lines = [
        "seed: 42",
        f"output: {json.dumps(f'runs/{stem(found.path)}')}",
        f"backbone: {{name: {json.dumps(model)}}}  # goldimask list backbones, a folder, a Hub id",
        "lora:  # leave it out to train all weights",
        "  {r: 16, alpha: 32, dropout: 0.0,",
        f"   targets: [{targets}]}}",
        "method: {preset: goldimask-d}  # goldimask list methods",
        "data:",
        f"  path: {json.dumps(found.path, ensure_ascii=False)}",
        *([f"  columns: {json.dumps(dict(columns), ensure_ascii=False)}"] if columns else []),
        f"  max_length: {length}  # tokens; {cut} of {len(found.total)} examples are cut",
        f"  turns: {turns}  # assistant turns to train on: last, or all; {which}",
        f"  validation: {held_out}  # rows held out to judge by",
        "  supervise_turn_end: true  # learn where to stop",
        *["  skip_bad_rows: true"] * bool(found.bad),
        f"global_batch_size: {size}  # examples a step, whatever the number of devices",
        "trainer:  # any of transformers.TrainingArguments",
        "  num_train_epochs: 3  # or max_steps",
        f"  per_device_train_batch_size: {size if small else 1}",
        f"  learning_rate: {'3.0e-3' if small else '1.0e-4'}",
        f"  warmup_steps: {steps // 20}",
        f"  logging_steps: {max(1, min(10, steps // 20))}",
        f"  eval_steps: {every}  # and at the last step",
        f"  save_steps: {every}",
        "  save_total_limit: 2",
    ]
    return "\n".join(lines) + "\n"


def header(found: Look, model: str, plan: Mapping[str, Any]) -> str:
    shapes = ", ".join(found.shapes)
    hours = plan["hours_here"]
    return (
        f"# {model} on {found.path}: {found.good} rows of {shapes}.\n"
        "# Ordinary values for fine-tuning an adapter, not the paper's protocol.\n"
        f"# {plan['steps']} steps, {plan['memory_gib']:.2g} GiB (estimated), at least "
        f"{at_least(hours)} here: {plan['hours_here_at']}.\n"
    )


def at_least(hours: float) -> str:
    seconds = hours * 3600
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{hours:.1f} h"


def as_recipe(text: str, source: str) -> Recipe:
    return parse_recipe(parse_yaml(text, source), source)


def usable(skeleton: Any) -> int:
    """Tokens that the model was trained for, or has positions for."""
    config = skeleton.model.config
    positions = config.max_position_embeddings
    return min(positions, getattr(skeleton, "usable_length", None) or positions)


def stem(path: str) -> str:
    """`data/my.jsonl.gz` -> `my`."""
    return Path(path.rstrip("/")).name.partition(".")[0] or "own"
