"""A recipe becomes objects: method, backbone with its adapter, examples.

The only place where configuration meets algorithms; everything behind it takes plain arguments.
Every mistake that a recipe can hold surfaces here, before the first step.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from goldimask import processes
from goldimask.backbones import Backbone, find_model, load_backbone
from goldimask.backbones.identity import weights_hash
from goldimask.config import (
    BackboneSection,
    DataSection,
    LoraSection,
    MethodSection,
    Recipe,
    recipe_dict,
)
from goldimask.data.corpora import mix, open_rows, token_classes
from goldimask.data.examples import DataReport, Renderer, load_examples, split
from goldimask.data.rows import Row
from goldimask.errors import GoldimaskError
from goldimask.jobs import job_key
from goldimask.methods import Method, method
from goldimask.tabulated import tables_of
from goldimask.train.arguments import check_trainer
from goldimask.types import Example

FEW = 8  # held-out examples: fewer say little
LONGEST = 4096  # tokens of an example, where neither the recipe nor the model says less


@dataclass(frozen=True)
class Data:
    """What is trained on, what is held out, and what happened to the rows."""

    train: list[Example]
    validation: list[Example]
    report: DataReport
    classes: tuple[str, ...] = ()  # kinds of tokens that the corpus tells apart


@dataclass(frozen=True)
class Prepared:
    """Everything a run needs, built and checked before the first step."""

    recipe: Recipe
    method: Method
    backbone: Backbone
    data: Data


def prepare(recipe: Recipe, device: str | None = None) -> Prepared:
    """Build the objects of a recipe, on the device of this process unless told."""
    built = make_method(recipe.method)
    check_trainer(recipe.trainer)
    backbone = make_backbone(recipe.backbone, device)
    data = make_data(recipe.data, backbone, recipe.seed)
    if recipe.lora is not None:
        backbone = with_adapter(backbone, recipe.lora, recipe.seed)
    return Prepared(recipe, built, backbone, data)


def make_method(section: MethodSection) -> Method:
    """The method of a recipe; a key that is left out keeps the preset's value."""
    return method(
        section.preset,
        noise=section.noise,
        select=section.select,
        weigh=section.weigh,
        protocol=section.protocol,
        attention_layer=section.attention_layer,
        probe_mode=section.probe.mode,
    )


def make_backbone(section: BackboneSection, device: str | None = None) -> Backbone:
    """The backbone of a recipe; one with an adapter is refused, for it could not be saved.

    A model to be sharded stays in host memory until it is, with the precision of its device.
    """
    name = section.path or section.name
    place = torch.device(device) if device else processes.own_device()
    waits = processes.sharded() and section.quant is None and place.type != "cpu"
    dtype = {"auto": "bfloat16" if waits else None}.get(section.dtype, section.dtype)
    if find_model(name).adapter is not None:
        raise GoldimaskError(
            f"backbone.path: {name} is a run with an adapter; merge it first (goldimask merge)"
        )
    return load_backbone(
        name,
        dtype=dtype,
        device="cpu" if waits else place,
        attn=section.attn,
        quant=section.quant,
        kernel=section.kernel,
        attention_rows=section.attention_rows,
        compile=section.compile,
        layout=section.layout,
        shift=section.shift,
        mask_id=section.mask_id,
    )


def with_adapter(backbone: Backbone, lora: LoraSection, seed: int) -> Backbone:
    """A fresh adapter on a backbone."""
    from goldimask.backbones.lora import add_lora

    return add_lora(
        backbone, seed, r=lora.r, alpha=lora.alpha, dropout=lora.dropout, targets=lora.targets
    )


def make_data(section: DataSection, renderer: Renderer, seed: int) -> Data:
    """The examples of a recipe. The seed draws generated rows, mixes, and splits."""
    classes = token_classes(section.corpus)
    if section.max_length is not None and section.max_length > renderer.max_length:
        raise GoldimaskError(
            f"data.max_length: {section.max_length:,} is more than the {renderer.max_length:,} "
            f"tokens that the model has positions for; set at most {renderer.max_length}"
        )
    examples, report = load_examples(
        data_rows(section, seed),
        renderer,
        max_length=section.max_length or LONGEST,
        overlength=section.overlength,
        supervise=section.supervise,
        supervise_turn_end=section.supervise_turn_end,
        skip_bad_rows=section.skip_bad_rows,
        turns=section.turns,
        classes=classes,
    )
    train, validation = split(examples, section.validation, seed, report.groups)
    return Data(train, validation, report, classes.names if classes else ())


def few_held_out(section: DataSection, count: int) -> str | None:
    """Said of a held-out share that is too small to judge by."""
    if not 0 < section.validation < 1 or count >= FEW:
        return None
    return (
        f"data.validation {section.validation:g} holds {count} examples out, too few to judge "
        "checkpoints by; data.validation=0.1 holds a tenth out"
    )


def data_rows(section: DataSection, seed: int) -> Iterable[Row]:
    """The rows of a recipe, from one source or a mixture."""
    if not section.mixture:
        return open_rows(
            section.corpus,
            section.path,
            split=section.split,
            subset=section.subset,
            options=section.options,
            columns=section.columns,
            limit=section.limit,
            seed=seed,
        )
    if section.path is not None or section.corpus is not None:
        raise GoldimaskError("data: give data.mixture, or data.path and data.corpus, not both")
    parts = [
        open_rows(
            item.corpus,
            item.path,
            split=item.split,
            subset=item.subset,
            options=item.options,
            columns=item.columns,
            limit=section.limit,
            seed=seed,
        )
        for item in section.mixture
    ]
    weights = [item.weight for item in section.mixture]
    return mix(parts, weights, section.mixture_size, seed)


def train_key(recipe: Recipe, weights: str | None = None) -> str:
    """What a training's result depends on: its settings, the base's weights, the text of its rows.

    `weights` is the hash of the base where it is known already. Nothing is tokenised or loaded.
    """
    settings = {k: v for k, v in recipe_dict(recipe).items() if k != "output"}
    if curves := method_tables(recipe):
        settings["method"] = [_without_files(settings["method"]), curves]
    read = (row.content for row in data_rows(recipe.data, recipe.seed))
    rows = [str(x) if isinstance(x, GoldimaskError) else x for x in read]  # one that is skipped
    return job_key(
        "train", weights=weights or weights_hash(base_of(recipe)), settings=settings, data=rows
    )


def method_tables(recipe: Recipe) -> dict[str, list[tuple[float, ...]]]:
    """Points of the tabulated curves of a recipe's method, by key."""
    found = tables_of(recipe_dict(recipe)["method"])
    return {key: [table.x, table.y] for key, table in found}


def _without_files(section: Any) -> Any:
    """A section without the names of its tables' files, whose points count instead."""
    if not isinstance(section, dict):
        return section
    table = section.get("kind") == "table"
    return {k: _without_files(v) for k, v in section.items() if not (table and k == "file")}


def base_of(recipe: Recipe) -> str:
    """What the weights are loaded from."""
    return recipe.backbone.path or recipe.backbone.name
