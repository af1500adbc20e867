"""A campaign: one recipe, varied over backbones, corpora, methods and seeds, and how it is judged.

    cells = backbones x corpora x rows x seeds, and the blocks of `include`, without `exclude`
    row   = `base` (untuned), a method's preset, or a variant; `ROW@RATE` is it at a learning rate
    cell  -> goldimask train RECIPE key=value ... output=CELL ;  goldimask eval CELL --tasks ...

A campaign is a YAML file like a recipe, as strict, with presets that replace some of its keys.
`change` is what every cell changes in the recipe, `per` what those of one backbone, corpus, row or
seed do; everything else is as the recipe says. A file with `parts` is several campaigns in one
folder: cells that they share are made once.

With `judging.spread` the test problems are divided over the seeds: seed s judges problems s, s + S,
s + 2 S, ... so that every problem is judged once per row. Thresholds other than the main one may
take fewer problems (`sweep_problems`, the first ones); whatever compares thresholds then looks at
those problems alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatch
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter

from goldimask.config import (
    MethodSection,
    Recipe,
    apply_overrides,
    find_recipe,
    parse_recipe,
    read_yaml,
)
from goldimask.errors import GoldimaskError, nearest
from goldimask.presets import PRESETS
from goldimask.settings import STRICT, make

BASE = "base"  # the row of the untuned backbone
BASELINES = ("vanilla", "cart", "gift", "lift-2", "lift-3", "agdo")
AXES = ("backbones", "corpora", "rows", "seeds")


@dataclass(frozen=True)
class JudgingSection:
    """How a cell is judged; None and empty are each task's own."""

    tasks: tuple[str, ...] = ()  # empty: every tiny family
    problems: int | None = None  # distinct test problems per task; None: all
    spread: bool = False  # divide the problems over the seeds
    lengths: dict[str, tuple[int, ...]] = field(default_factory=dict)  # per task; "": the others
    decoder: str | None = None  # `threshold` where there are taus
    taus: tuple[float, ...] = ()
    main_tau: float = 0.9  # of the tables in the paper's form
    sweep_problems: int | None = None  # per task, at the other thresholds; None: all
    block: int | None = None
    temperature: float | None = None
    samples: int | None = None  # answers to a problem, with seeds 0, 1, ...
    protocol: Literal["fixed", "lift"] = "fixed"
    data: str | None = None  # folder of test sets
    shards: int = 1  # jobs that share the problems of a cell
    batch_size: int = 16
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Block:
    """A part of the grid; an axis that is left out is the campaign's own."""

    backbones: tuple[str, ...] = ()
    corpora: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    seeds: tuple[int, ...] = ()
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class PerSection:
    """Changes in the recipe for one value of an axis."""

    backbones: dict[str, dict[str, Any]] = field(default_factory=dict)
    corpora: dict[str, dict[str, Any]] = field(default_factory=dict)
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)
    seeds: dict[int, dict[str, Any]] = field(default_factory=dict)
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Campaign:
    """A whole comparison."""

    name: str = "campaign"  # the file's, unless it says otherwise
    title: str = ""
    output: str = "runs/campaign"
    recipe: str = "tiny"  # of every cell
    change: dict[str, Any] = field(default_factory=dict)  # in the recipe, key by key
    backbones: tuple[str, ...] = ("tiny",)
    corpora: tuple[str, ...] = ()  # names, files or Hub ids; empty: the recipe's
    rows: tuple[str, ...] = (BASE, "vanilla", "goldimask-d")
    seeds: tuple[int, ...] = (0, 1, 2)
    include: tuple[Block, ...] = ()
    exclude: tuple[Block, ...] = ()  # axes by pattern: rows: ["goldimask-*"]
    per: PerSection = field(default_factory=PerSection)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)  # method sections
    judging: JudgingSection | None = field(default_factory=JudgingSection)  # None: only trained
    tables: tuple[str, ...] = ("all",)
    figures: tuple[str, ...] = ("all",)
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Cell:
    """One fine-tuning and its evaluation."""

    backbone: str
    row: str
    seed: int
    corpus: str | None = None  # None: the recipe's

    @property
    def name(self) -> str:
        return f"{self.place}_s{self.seed}"

    @property
    def place(self) -> str:
        """The name without the seed."""
        corpus = [label(self.corpus)] if self.corpus else []
        return "_".join([label(self.backbone), *corpus, self.row])


def label(name: str) -> str:
    """What files and tables call a backbone or a corpus: the last part of a path or Hub id."""
    path = Path(name)
    return path.stem if path.suffix in (".jsonl", ".json", ".csv", ".parquet") else path.name


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` wins; sections are merged key by key."""
    out = dict(under)
    for key, value in over.items():
        inner = out.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        out[key] = merged(inner, value) if both else value  # type: ignore[arg-type]
    return out


# --- cells ---------------------------------------------------------------------------------------


def cells(campaign: Campaign) -> list[Cell]:
    """Seeds outermost, so that an interrupted campaign still holds whole seeds.

    The untuned backbone has neither seed nor corpus: it is judged once, or once per share of the
    problems.
    """
    spread = campaign.judging is not None and campaign.judging.spread
    found: dict[Cell, None] = {}
    for block in (Block(), *campaign.include):
        axes = {key: getattr(block, key) or getattr(campaign, key) for key in AXES}
        corpora = axes["corpora"] or (None,)
        for seed, backbone, corpus, row in product(
            axes["seeds"], axes["backbones"], corpora, axes["rows"]
        ):
            cell = Cell(backbone, row, seed, corpus)
            if row == BASE:
                if campaign.judging is None:
                    continue
                cell = Cell(backbone, row, seed if spread else campaign.seeds[0])
            if not any(matches(block, cell) for block in campaign.exclude):
                found[cell] = None
    order = list(dict.fromkeys(cell.seed for cell in found))
    return sorted(found, key=lambda cell: order.index(cell.seed))


def values_of(cell: Cell, axis: str) -> tuple[Any, ...]:
    """The value of a cell on an axis; the untuned backbone has no corpus and no seed."""
    value = {"backbones": cell.backbone, "rows": cell.row, "corpora": cell.corpus}.get(axis)
    if axis == "seeds":
        value = None if cell.row == BASE else cell.seed
    return () if value is None else (value,)


def matches(block: Block, cell: Cell) -> bool:
    """Whether every axis that a block names has the cell's value, by pattern."""
    given = {key: getattr(block, key) for key in AXES if getattr(block, key)}
    return bool(given) and all(
        any(fnmatch(str(v), str(p)) for p in patterns for v in values_of(cell, key))
        for key, patterns in given.items()
    )


def corpora_of(found: Sequence[Cell]) -> set[str]:
    return {c.corpus for c in found if c.corpus is not None}


def method_values(campaign: Campaign, row: str) -> dict[str, Any]:
    """The method section of a row, as written."""
    name = at_rate(row)[0]
    if name in campaign.variants:
        make(MethodSection, campaign.variants[name], f"variants.{name}")
        return dict(campaign.variants[name])
    if name in PRESETS:
        return {"preset": name}
    known = [BASE, *campaign.variants, *PRESETS.names()]
    raise GoldimaskError(f"rows: unknown row '{row}'; {nearest(row, known)}")


def at_rate(row: str) -> tuple[str, float | None]:
    """The method of a row and the learning rate behind its `@`, if it has one."""
    name, at, rate = row.partition("@")
    if not at:
        return name, None
    with suppress(ValueError):
        if 0 < (found := float(rate)) < float("inf"):
            return name, found
    raise GoldimaskError(f"rows: '{row}': '{rate}' is no learning rate; write {name}@1e-3")


def changes(campaign: Campaign, cell: Cell) -> dict[str, Any]:
    """What a cell changes in the recipe."""
    values = campaign.change
    for axis in AXES:
        for value in values_of(cell, axis):
            for name in dict.fromkeys((at_rate(value)[0], value) if axis == "rows" else (value,)):
                values = merged(values, getattr(campaign.per, axis).get(name, {}))
    values = merged(values, {"backbone": {"name": cell.backbone}})
    if cell.row == BASE:
        return values
    if cell.corpus is not None:
        from goldimask.data.corpora import CORPORA

        named = cell.corpus in CORPORA or ":" in cell.corpus
        data = {"corpus": cell.corpus} if named else {"corpus": None, "path": cell.corpus}
        values = merged(values, {"data": data})
    if rate := at_rate(cell.row)[1]:
        values = merged(values, {"trainer": {"learning_rate": rate}})
    return merged(values, {"method": method_values(campaign, cell.row), "seed": cell.seed})


def model_of(campaign: Campaign, cell: Cell) -> str:
    """What the untuned backbone is loaded from."""
    section = changes(campaign, cell)["backbone"]
    return str(section.get("path") or section["name"])


def cell_words(campaign: Campaign, cell: Cell) -> list[str]:
    """The changes as words of the command line."""
    return flat_words(changes(campaign, cell))


def cell_recipe(campaign: Campaign, cell: Cell) -> Recipe | None:
    """The recipe of a cell; None for the untuned backbone."""
    if cell.row == BASE:
        return None
    file = find_recipe(campaign.recipe)
    return _recipe(file, file.stat().st_mtime_ns, tuple(cell_words(campaign, cell)))


@cache
def _recipe(file: Path, modified: int, words: tuple[str, ...]) -> Recipe:
    """A campaign asks for the same few recipes again and again."""
    return parse_recipe(apply_overrides(_values(file, modified), words), str(file))


@cache
def _values(file: Path, modified: int) -> dict[str, Any]:
    return read_yaml(file)


def flat_words(values: Mapping[str, Any], at: str = "") -> list[str]:
    """{"a": {"b": 1}} -> ["a.b=1"]; empty sections and lists are written as YAML."""
    words = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            words += flat_words(value, f"{at}{key}.")
        else:
            text = yaml.safe_dump(value, default_flow_style=True, width=10**6).strip()
            words.append(f"{at}{key}={text.removesuffix('...').strip()}")
    return words


def campaign_dict(campaign: Campaign) -> dict[str, Any]:
    """Plain values."""
    return TypeAdapter(Campaign).dump_python(campaign, mode="json")
