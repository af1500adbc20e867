"""A campaign: one recipe, varied over backbones, methods and seeds, and how its runs are judged.

    cells = backbones x rows x seeds;  a row is `base` (untuned), a method's preset, or a variant
    cell  -> goldimask train RECIPE key=value ... output=CELL ;  goldimask eval CELL --tasks ...

A campaign is a YAML file like a recipe, as strict, with presets that replace some of its keys.
`change` is what every cell changes in the recipe; everything else is as the recipe says.

With `judging.spread` the test problems are divided over the seeds: seed s judges problems s, s + S,
s + 2 S, ... so that every problem is judged once per row. Thresholds other than the main one may
take fewer problems (`sweep_problems`, the first ones); whatever compares thresholds then looks at
those problems alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import TypeAdapter

from goldimask.config import (
    MethodSection,
    Recipe,
    apply_overrides,
    find_recipe,
    load_recipe,
    read_yaml,
)
from goldimask.errors import GoldimaskError, nearest
from goldimask.presets import PRESETS
from goldimask.settings import STRICT, make

BASE = "base"  # the row of the untuned backbone
BASELINES = ("vanilla", "cart", "gift", "lift-2", "lift-3", "agdo")


@dataclass(frozen=True)
class JudgingSection:
    """How a cell is judged."""

    tasks: tuple[str, ...] = ()  # empty: every tiny family
    problems: int = 500  # distinct test problems per task
    spread: bool = False  # divide the problems over the seeds
    taus: tuple[float, ...] = (0.7, 0.9)
    main_tau: float = 0.9  # of the tables in the paper's form
    sweep_problems: int | None = None  # per task, at the other thresholds; None: all
    block: int = 32
    batch_size: int = 32
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Campaign:
    """A whole comparison."""

    output: str = "runs/campaign"
    recipe: str = "tiny"  # of every cell
    change: dict[str, Any] = field(default_factory=dict)  # in the recipe, key by key
    backbones: tuple[str, ...] = ("tiny",)
    rows: tuple[str, ...] = (BASE, "vanilla", "goldimask-d")
    seeds: tuple[int, ...] = (0, 1, 2)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)  # method sections
    judging: JudgingSection = field(default_factory=JudgingSection)
    cost_rounds: int = 4  # timed rounds of the cost measurement; 0: do not measure
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Cell:
    """One fine-tuning and its evaluation."""

    backbone: str
    row: str
    seed: int

    @property
    def name(self) -> str:
        return f"{label(self.backbone)}_{self.row}_s{self.seed}"


def label(backbone: str) -> str:
    """What files and tables call a backbone: the last part of a path or Hub id."""
    return Path(backbone).name


def load_campaign(
    path: str | Path, preset: str | None = None, words: Sequence[str] = ()
) -> Campaign:
    """Read, choose the preset, override and check."""
    values = read_yaml(find_recipe(path))
    presets = values.pop("presets", {})
    if not isinstance(presets, Mapping):
        raise GoldimaskError(f"{path}: presets: expected a mapping of names")
    if preset is not None:
        if preset not in presets:
            raise GoldimaskError(f"--preset '{preset}': {nearest(preset, presets)}")
        values = merged(values, presets[preset] or {})
    return check(make(Campaign, apply_overrides(values, words), source=str(path)), str(path))


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` wins; sections are merged key by key."""
    out = dict(under)
    for key, value in over.items():
        inner = out.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        out[key] = merged(inner, value) if both else value  # type: ignore[arg-type]
    return out


def check(campaign: Campaign, source: str = "campaign") -> Campaign:
    """Everything that can be refused before the first cell."""
    for key in ("backbones", "rows", "seeds"):
        values = getattr(campaign, key)
        if not values or len(set(values)) < len(values):
            raise GoldimaskError(f"{source}: {key}: give at least one, and none twice")
    if len(set(map(label, campaign.backbones))) < len(campaign.backbones):
        raise GoldimaskError(f"{source}: backbones: two share the last part of their names")
    judging = campaign.judging
    if judging.main_tau not in judging.taus:
        raise GoldimaskError(
            f"{source}: judging.main_tau: {judging.main_tau:g} is not among judging.taus "
            f"{list(judging.taus)}"
        )
    if any(not 0 < tau <= 1 for tau in judging.taus):
        raise GoldimaskError(f"{source}: judging.taus: confidences lie in (0, 1]")
    fewest = min(judging.problems, judging.sweep_problems or judging.problems)
    if fewest < len(campaign.seeds):
        raise GoldimaskError(f"{source}: judging: at least one problem per seed")
    for cell in cells(campaign):
        cell_recipe(campaign, cell)
    from goldimask.eval.tasks import get_task

    for task in judging.tasks:
        get_task(task)
    return campaign


def method_values(campaign: Campaign, row: str) -> dict[str, Any] | None:
    """The method section of a row, as written; None for the untuned backbone."""
    if row == BASE:
        return None
    if row in campaign.variants:
        make(MethodSection, campaign.variants[row], f"variants.{row}")
        return dict(campaign.variants[row])
    if row in PRESETS:
        return {"preset": row}
    known = [BASE, *campaign.variants, *PRESETS.names()]
    raise GoldimaskError(f"rows: unknown row '{row}'; {nearest(row, known)}")


def cell_words(campaign: Campaign, cell: Cell) -> list[str]:
    """What a cell changes in the recipe, as words of the command line."""
    method = method_values(campaign, cell.row)
    assert method is not None, "the untuned backbone has no recipe"
    values = merged(
        campaign.change,
        {"backbone": {"name": cell.backbone}, "method": method, "seed": cell.seed},
    )
    return flat_words(values)


def cell_recipe(campaign: Campaign, cell: Cell) -> Recipe | None:
    """The recipe of a cell; None for the untuned backbone."""
    if cell.row == BASE:
        return None
    return load_recipe(campaign.recipe, cell_words(campaign, cell))


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


def cells(campaign: Campaign) -> list[Cell]:
    """Seeds outermost, so that an interrupted campaign still holds whole seeds.

    The untuned backbone has no seed: it is judged once, or once per share of the problems.
    """
    out = []
    for number, seed in enumerate(campaign.seeds):
        for backbone in campaign.backbones:
            for row in campaign.rows:
                if row != BASE or number == 0 or campaign.judging.spread:
                    out.append(Cell(backbone, row, seed))
    return out


def tasks_of(campaign: Campaign) -> tuple[str, ...]:
    """Evaluation tasks by name."""
    if campaign.judging.tasks:
        return campaign.judging.tasks
    from goldimask.tiny.families import PROBLEM_FAMILIES

    return tuple(f"tiny-{name}" for name in PROBLEM_FAMILIES)


def shard(campaign: Campaign, seed: int) -> tuple[int, int]:
    """(first, every) of the problems that belong to a seed."""
    if not campaign.judging.spread:
        return 0, 1
    return campaign.seeds.index(seed), len(campaign.seeds)


def problems_at(judging: JudgingSection, tau: float) -> int:
    """Test problems per task at a threshold."""
    few = judging.sweep_problems
    if few is None or tau == judging.main_tau:
        return judging.problems
    return min(few, judging.problems)


def campaign_dict(campaign: Campaign) -> dict[str, Any]:
    """Plain values."""
    return TypeAdapter(Campaign).dump_python(campaign, mode="json")
