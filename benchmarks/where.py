"""Where do runs gain and lose? Held-out log p by class of token.

    python benchmarks/where.py base=tiny vanilla=RUN,RUN goldimask-d=RUN,RUN [--eta 0.2]

Rows of `tiny-skills`, drawn with a seed of their own, by skill and class of token, each masked at
t = 0.25, 0.5 and 0.75 with the same masks for every run; the mean of log p of the row's token, and
its difference to the first name, with 95 % intervals over rows. Several runs of a name (its seeds)
are averaged, token by token.

    result      the last number of a line of the trace: what is computed (`facts`)
    copy        any other number of the trace, which stands in the prompt or above
    operator    + - max min
    answer      numbers of the answer
    words       everything else: ordinals, tags, order words, the end of the turn
    wrong       with --eta, a replaced number: here less is better
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from goldimask.backbones import Backbone, load_backbone
from goldimask.bootstrap import interval, weights
from goldimask.console import emit, progress, table
from goldimask.data.batches import make_batch
from goldimask.data.examples import load_examples
from goldimask.errors import GoldimaskError
from goldimask.figures import Bar, Figure, Intervals, write
from goldimask.step import module_mode
from goldimask.studies.heldout import LEVELS, uniforms
from goldimask.tiny.corpora import tiny_skills
from goldimask.tiny.skills import SKILLS
from goldimask.types import Example

CLASSES = ("result", "copy", "operator", "answer", "words", "wrong")
SHOWN = ("result", "copy", "wrong")  # in the figure
OPERATORS = {"+", "-", "max", "min"}
SEED = 7919  # of rows that no recipe draws
FEW = 50  # targets, below which a class is left out


def classes_of(example: Example, clean: list[int], words: list[str]) -> list[str]:
    """The class of every token of an example; prompts have none."""
    first, found, inside = example.prompt_length, ["words"] * len(words), False
    for i in range(first, len(words)):
        word = words[i].strip()
        if word == "<answer>":
            inside = True
        elif clean and example.ids[i] != clean[i - first]:
            found[i] = "wrong"
        elif word in OPERATORS:
            found[i] = "operator"
        elif word.isdigit():
            after = words[i + 1] if i + 1 < len(words) else ""
            found[i] = "answer" if inside else "result" if "\n" in after else "copy"
    return found


@torch.no_grad()
def scored(backbone: Backbone, examples: list[Example]) -> np.ndarray:
    """[levels, examples, longest] log p at masked positions, NaN elsewhere."""
    out = np.full((len(LEVELS), len(examples), max(map(len, examples))), np.nan)
    order = sorted(range(len(examples)), key=lambda i: len(examples[i]))
    with module_mode(backbone.model, train=False):
        for start in range(0, len(order), 16):
            chosen = order[start : start + 16]
            batch = make_batch([examples[i] for i in chosen], backbone.pad_id)
            response = batch.response.numpy()
            draws = uniforms(response, batch.example_id.tolist(), len(LEVELS), 0)
            for k, level in enumerate(LEVELS):
                hidden = response & (draws[k] < level)
                found = backbone.scorer(backbone.model, batch, torch.from_numpy(hidden)).logp
                assert found is not None
                values = np.where(hidden, found.double().numpy(), np.nan)
                width = min(values.shape[1], out.shape[2])
                out[k, chosen, :width] = values[:, :width]
    return out


def drawn_by_class(lines: list[dict[str, Any]], first: str) -> Figure:
    """A line of charts for each skill: its results, copies and wrong labels."""
    charts = []
    for skill in SKILLS:
        for kind in SHOWN:
            mine = [x for x in lines if (x["skill"], x["class"]) == (skill, kind)]
            bars = (Bar(x["run"], *x["difference"]) for x in mine if x["run"] != first)
            charts.append(Intervals(f"{skill}: {kind}", tuple(bars)))
    return Figure("skills-where", f"Held-out log p to {first}'s", tuple(charts))


def main(
    runs: Annotated[list[str], typer.Argument(help="NAME=RUN,...; others are held to the first")],
    rows: Annotated[int, typer.Option(help="of each of the four skills")] = 40,
    eta: Annotated[float, typer.Option(help="share of wrong results in the rows")] = 0.0,
    figure: Annotated[Path | None, typer.Option(help="folder of a figure")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Held-out log p by class of token."""
    named = {name: paths.split(",") for name, paths in (word.split("=", 1) for word in runs)}
    found: dict[str, np.ndarray] = {}
    sure: dict[str, np.ndarray] = {}
    kinds: np.ndarray | None = None
    data = tiny_skills(4 * rows, seed=SEED, eta=eta)
    with progress("runs", sum(map(len, named.values()))) as advance:
        for name, run in ((name, run) for name, many in named.items() for run in many):
            backbone = load_backbone(run)
            examples, _ = load_examples(data, backbone, supervise_turn_end=True)
            values = scored(backbone, examples) / len(named[name])
            if kinds is not None and values.shape[1:] != kinds.shape:
                raise GoldimaskError(f"{run}: its rows have other tokens than the first run's")
            found[name] = found.get(name, 0.0) + values
            confident = (np.exp(len(named[name]) * values) >= 0.9) / len(named[name])
            sure[name] = sure.get(name, 0.0) + confident
            if kinds is None:
                kinds = np.full(found[name].shape[1:], "", dtype=object)
                for i, (example, row) in enumerate(zip(examples, data, strict=True)):
                    text = [backbone.decode([t]) for t in example.ids]
                    clean = backbone.response_ids(row["clean"])
                    example = replace(example, ids=list(example.ids))
                    kinds[i, : len(text)] = classes_of(example, clean, text)
            advance(1)
    assert kinds is not None
    skills = np.array([row["task"] for row in data])
    lines: list[dict[str, Any]] = []
    first = next(iter(found))
    drawn = weights(len(data), 500)
    for skill in SKILLS:
        for kind in CLASSES:
            mine = (kinds == kind) & (skills == skill)[:, None]
            for name, values in found.items():
                there = ~np.isnan(values) & mine[None]
                count = there.sum((0, 2)).astype(float)
                if count.sum() < FEW:
                    continue
                apart = np.where(there, values - found[first], 0.0).sum((0, 2))
                line = {"skill": skill, "class": kind, "run": name, "targets": int(count.sum())}
                line["logp"] = float(np.where(there, values, 0.0).sum() / count.sum())
                line["sure"] = float(sure[name][there].mean())
                low, high = interval((drawn @ apart) / np.maximum(drawn @ count, 1e-9))
                lines.append(line | {"difference": [float(apart.sum() / count.sum()), low, high]})
    cells = [
        (x["skill"], x["class"], x["run"], x["targets"], f"{x['logp']:.3f}", f"{x['sure']:.2f}",
         "{:+.3f} [{:+.3f}, {:+.3f}]".format(*x["difference"]))
        for x in lines
    ]  # fmt: skip
    head = ("skill", "class", "run", "targets", "log p", "p >= .9", f"to {first}")
    emit(lines, as_json, table("Held-out log p by class of token", head, cells, left=3))
    if figure:
        write(drawn_by_class(lines, first), figure)


if __name__ == "__main__":
    typer.run(main)
