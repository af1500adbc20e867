"""What a comparison is made of: a recipe of its own, with presets inside.

    backbones x rows x seeds     a row is `base` (untuned), a method preset, or one of `variants`
    each cell                    fine-tune on `examples` rows of `corpus`, decode the test problems
                                 at every tau, score held-out text

`presets: {smoke: {...}}` inside the file are merged over the other fields by `--preset`; words such
as `tuning.steps=300` come last. With `judging.spread`, the test problems are divided over the seeds
(problem i belongs to seed number i mod S): every row is still judged on the same problems with the
same seeds, on `problems` distinct ones per task, at a fraction of the decoding. Thresholds other
than the main one may take fewer problems (`sweep_problems`, the first ones); whatever compares
thresholds then looks at those problems alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from goldimask.config import MethodSection, apply_overrides, find_recipe, read_yaml
from goldimask.errors import GoldimaskError, nearest
from goldimask.presets import PRESETS
from goldimask.settings import make
from goldimask.studies.schedule import Tuning

_STRICT = ConfigDict(extra="forbid")
BASE = "base"  # the row of the untuned backbone
BASELINES = ("vanilla", "cart", "gift", "lift-2", "lift-3", "agdo")


@dataclass(frozen=True)
class JudgingSection:
    """How a cell is judged."""

    tasks: tuple[str, ...] = ()  # evaluation tasks; empty: every tiny family
    problems: int = 500  # distinct test problems per task
    spread: bool = False  # divide the problems over the seeds
    taus: tuple[float, ...] = (0.7, 0.9)
    main_tau: float = 0.9  # of the tables in the paper's form
    sweep_problems: int | None = None  # per task, at the other thresholds; None: all
    block: int = 32
    batch_size: int = 32
    heldout: int = 200  # examples of the held-out loss
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class Lab:
    """A whole comparison."""

    output: str = "runs/lab"
    backbones: tuple[str, ...] = ("tiny",)
    corpus: str = "tiny-1k-labels"
    examples: int = 480
    eta: float | None = None  # share of wrong results; None: the corpus's own
    rows: tuple[str, ...] = (BASE, "vanilla", "goldimask-d")
    seeds: tuple[int, ...] = (0, 1, 2)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)  # method sections
    attention_layer: int | float | str | None = None  # of every row that does not name its own
    lora_rank: int = 0  # adapters on q, k, v with alpha = 2 r as in the paper; 0: all weights
    tuning: Tuning = field(default_factory=Tuning)
    judging: JudgingSection = field(default_factory=JudgingSection)
    cost_rounds: int = 4  # timed rounds of the cost measurement; 0: do not measure
    __pydantic_config__ = _STRICT


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


def load_lab(path: str | Path, preset: str | None = None, words: Sequence[str] = ()) -> Lab:
    """Read, choose the preset, override and check."""
    values = read_yaml(find_recipe(path))
    presets = values.pop("presets", {})
    if not isinstance(presets, Mapping):
        raise GoldimaskError(f"{path}: presets: expected a mapping of names")
    if preset is not None:
        if preset not in presets:
            raise GoldimaskError(f"--preset '{preset}': {nearest(preset, presets)}")
        values = merged(values, presets[preset] or {})
    return check(make(Lab, apply_overrides(values, words), source=str(path)), str(path))


def merged(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`over` wins; sections are merged key by key."""
    out = dict(under)
    for key, value in over.items():
        inner = out.get(key)
        both = isinstance(inner, Mapping) and isinstance(value, Mapping)
        out[key] = merged(inner, value) if both else value  # type: ignore[arg-type]
    return out


def check(lab: Lab, source: str = "lab") -> Lab:
    """Everything that can be refused before the first cell."""
    for key in ("backbones", "rows", "seeds"):
        values = getattr(lab, key)
        if not values or len(set(values)) < len(values):
            raise GoldimaskError(f"{source}: {key}: give at least one, and none twice")
    if len(set(map(label, lab.backbones))) < len(lab.backbones):
        raise GoldimaskError(f"{source}: backbones: two share the last part of their names")
    for row in lab.rows:
        section(lab, row)
    if lab.eta is not None:
        from goldimask.campaign.data import flawed_corpus
        from goldimask.tiny.corpora import Flaws

        flawed_corpus(lab.corpus)
        Flaws(eta=lab.eta)  # refuses what is not a probability
    if lab.lora_rank < 0:
        raise GoldimaskError(f"{source}: lora_rank: 0 (all weights) or more, got {lab.lora_rank}")
    judging = lab.judging
    if judging.main_tau not in judging.taus:
        raise GoldimaskError(
            f"{source}: judging.main_tau: {judging.main_tau:g} is not among judging.taus "
            f"{list(judging.taus)}"
        )
    if any(not 0 < tau <= 1 for tau in judging.taus):
        raise GoldimaskError(f"{source}: judging.taus: confidences lie in (0, 1]")
    fewest = min(judging.problems, judging.sweep_problems or judging.problems)
    if fewest < len(lab.seeds) or judging.heldout < 1:
        raise GoldimaskError(
            f"{source}: judging: at least one problem per seed and one held-out example"
        )
    from goldimask.eval.tasks import get_task

    for task in judging.tasks:
        get_task(task)
    return lab


def section(lab: Lab, row: str) -> MethodSection | None:
    """The method of a row; None for the untuned backbone."""
    if row == BASE:
        return None
    if row in lab.variants:
        found = make(MethodSection, lab.variants[row], source=f"variants.{row}")
    elif row in PRESETS:
        found = MethodSection(preset=row)
    else:
        known = [BASE, *lab.variants, *PRESETS.names()]
        raise GoldimaskError(f"rows: unknown row '{row}'; {nearest(row, known)}")
    if found.attention_layer is None and lab.attention_layer is not None:
        found = replace(found, attention_layer=lab.attention_layer)
    return found


def cells(lab: Lab) -> list[Cell]:
    """Seeds outermost, so that an interrupted comparison still holds whole seeds.

    The untuned backbone has no seed: it is judged once, or once per share of the problems.
    """
    out = []
    for number, seed in enumerate(lab.seeds):
        for backbone in lab.backbones:
            for row in lab.rows:
                if row != BASE or number == 0 or lab.judging.spread:
                    out.append(Cell(backbone, row, seed))
    return out


def tasks_of(lab: Lab) -> tuple[str, ...]:
    """Evaluation tasks by name."""
    if lab.judging.tasks:
        return lab.judging.tasks
    from goldimask.tiny.families import PROBLEM_FAMILIES

    return tuple(f"tiny-{family}" for family in PROBLEM_FAMILIES)


def shard(lab: Lab, seed: int) -> tuple[int, int]:
    """(first, every) of the problems that belong to a seed."""
    return (lab.seeds.index(seed), len(lab.seeds)) if lab.judging.spread else (0, 1)


def problems_at(judging: JudgingSection, tau: float) -> int:
    """Test problems per task at a threshold."""
    few = judging.sweep_problems
    if few is None or tau == judging.main_tau:
        return judging.problems
    return min(few, judging.problems)


def lab_dict(lab: Lab) -> dict[str, Any]:
    """Plain values."""
    return TypeAdapter(Lab).dump_python(lab, mode="json")
