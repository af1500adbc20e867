"""One training step of one example, under several methods and noise levels, on the same draws.

    t fixed at a level:  every other draw (rho's, the mask's, the selector's) keeps its key

so the slider over t changes the noise level alone: with the uniforms u_i held, a larger t masks a
superset. The model runs in eval mode without gradient; losses are those of a step without dropout,
and stateful methods (goldimask-a, DRO) are shown as on a first visit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from goldimask.config import MethodSection, Recipe, load_recipe
from goldimask.data.batches import make_batch
from goldimask.errors import GoldimaskError, nearest
from goldimask.keys import Keys, Stream
from goldimask.methods import PRESETS, Method
from goldimask.noise import EPS, draw
from goldimask.records import read_manifest
from goldimask.report.page import write_page
from goldimask.report.step_page import step_record, steps_section
from goldimask.step import MaskedStep, module_mode
from goldimask.train.prepare import make_backbone, make_data, make_method
from goldimask.types import Example

if TYPE_CHECKING:
    from goldimask.backbones import Backbone

METHODS = (
    *("vanilla", "cart", "gift", "lift-2", "agdo"),
    *("goldimask-d", "goldimask-r", "goldimask-t", "goldimask-p"),
)
SEARCHED = 100  # examples, for one that shows a reveal
LEVELS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.95)


@dataclass(frozen=True)
class Subject:
    """What is looked at: a model and one example of its training data."""

    name: str
    recipe: Recipe
    backbone: Backbone
    example: Example
    index: int
    count: int  # training examples to choose from


class PinnedDraws:
    """A generator whose first scalar uniform is given; the others are those of the key."""

    def __init__(self, rng: np.random.Generator, first: float) -> None:
        self._rng, self._first = rng, first
        self._used = False

    def random(self, size: int | None = None) -> Any:
        drawn = self._rng.random(size)
        if self._used or size is not None:
            return drawn
        self._used = True
        return self._first


@dataclass(frozen=True)
class PinnedKeys:
    """`Keys` with the noise level held at `t`."""

    seed: int
    epoch: int
    t: float

    def rng(self, example_id: int, stream: Stream) -> Any:
        rng = Keys(self.seed, self.epoch).rng(example_id, stream)
        if stream is not Stream.NOISE:
            return rng
        return PinnedDraws(rng, (self.t - EPS) / (1.0 - EPS))


def open_subject(
    source: str,
    overrides: Sequence[str],
    index: int | None = None,
    seed: int | None = None,
    epoch: int = 0,
    t: float | None = None,
) -> Subject:
    """The model and example `index` of a recipe, or of a run folder with its trained weights.

    Without an index it is the first example whose draws reveal something.
    """
    run = Path(source)
    is_run = (run / "recipe.yaml").is_file()
    recipe = load_recipe(run / "recipe.yaml" if is_run else source, overrides)
    if is_run:
        from goldimask.backbones import load_backbone

        backbone = load_backbone(run)
        scorer = replace(backbone.scorer, attention_rows=recipe.backbone.attention_rows)
        backbone = replace(backbone, scorer=scorer)
        recipe = replace(recipe, method=settled_layer(recipe.method, run))
    else:
        backbone = make_backbone(recipe.backbone)
    if recipe.method.attention_layer == "probe":
        raise GoldimaskError(
            f"{source}: method.attention_layer: 'probe' is settled by training; inspect a finished "
            "run, or add method.attention_layer=last"
        )
    train = make_data(recipe.data, backbone, recipe.seed).train
    if index is None:
        seed = recipe.seed if seed is None else seed
        keys = Keys(seed, epoch) if t is None else cast(Keys, PinnedKeys(seed, epoch, t))
        index = first_telling(train, make_method(recipe.method), keys)
    if not 0 <= index < len(train):
        raise GoldimaskError(
            f"--example: {index} is not among the {len(train)} training examples; "
            f"use 0 to {len(train) - 1}"
        )
    name = run.resolve().name if is_run else Path(source).stem
    return Subject(name, recipe, backbone, train[index], index, len(train))


def first_telling(examples: Sequence[Example], method: Method, keys: Keys) -> int:
    """The first example of which the draws mask more than they keep, so that a reveal is seen."""
    for i, example in enumerate(examples[:SEARCHED]):
        drawn = method.noise(make_batch([example], 0), keys)
        if int(drawn.candidates.sum()) > int(drawn.keep[0]) > 0:
            return i
    return 0


def settled_layer(section: MethodSection, run: Path) -> MethodSection:
    """The block that `attention_layer: probe` came to in a run, from its manifest."""
    manifest = read_manifest(run)
    if section.attention_layer != "probe" or manifest is None:
        return section
    layer = manifest.facts.get("attention_layer")
    return replace(section, attention_layer=layer) if isinstance(layer, int) else section


def chosen_methods(section: MethodSection, names: Sequence[str]) -> list[Method]:
    """The recipe's own method first, then the named presets.

    Presets take over what the recipe says about a part of the same kind (noise, weighting), the
    attention layer and the probe, so that they differ in what their names say.
    """
    own = PRESETS.get(section.preset, "method.preset")
    methods = [make_method(section)]
    for name in names:
        if name not in PRESETS and ":" not in name:
            raise GoldimaskError(
                f"--methods: unknown method '{name}'; {nearest(name, PRESETS.names())}"
            )
        row = PRESETS.get(name, "--methods")
        if row is own:
            continue
        shared = {
            part: getattr(section, part)
            for part in ("noise", "weigh")
            if getattr(row, part)["kind"] == getattr(own, part)["kind"]
        }
        other = MethodSection(
            preset=name, attention_layer=section.attention_layer, probe=section.probe, **shared
        )
        methods.append(make_method(other))
    return methods


def drawn_level(example: Example, seed: int, epoch: int = 0) -> float:
    """The noise level that training would draw."""
    return float(draw(Keys(seed, epoch), example.example_id, 1).t)


def levels_around(t: float) -> list[float]:
    """The level asked for first, then a grid without its nearest neighbour."""
    near = min(LEVELS, key=lambda level: abs(level - t))
    return [t, *(level for level in LEVELS if level != near)]


def inspect_steps(
    backbone: Backbone,
    example: Example,
    methods: Sequence[Method],
    seed: int,
    levels: Sequence[float] | None = None,
    epoch: int = 0,
) -> list[dict[str, Any]]:
    """Records of every method at every level; the first is the first method at the first level.

    Without `levels`: the level that training draws, and a grid around it.
    """
    if levels is None:
        levels = levels_around(drawn_level(example, seed, epoch))
    batch = make_batch([example], backbone.pad_id).to(next(backbone.model.parameters()).device)
    records = []
    with torch.no_grad(), module_mode(backbone.model, train=False):
        for t in levels:
            if not 0.0 < t <= 1.0:
                raise GoldimaskError(f"--t: {t:g} is not a noise level; use a number in (0, 1]")
            keys = cast(Keys, PinnedKeys(seed, epoch, t))
            outs = [MaskedStep(m, backbone.scorer)(backbone.model, batch, keys) for m in methods]
            reference = next(
                (
                    o.signals
                    for o in outs
                    if o.signals.attention is not None and o.signals.logp is not None
                ),
                None,
            )
            for method, out in zip(methods, outs, strict=True):
                records.append(
                    step_record(
                        out,
                        batch,
                        0,
                        backbone.tokenizer,
                        method,
                        reference=reference,
                        special=sorted(backbone.special_ids),
                    )
                )
    return records


def inspect_page(path: Path | str, records: Sequence[dict[str, Any]], subject: Subject) -> Path:
    """The one-step viewer of a subject."""
    note = (
        f"Example {subject.index} of {subject.count} under the same random draws for every method "
        "and noise level. Switch the method, move the noise level, step through the reveal; point "
        "at a token or move with the arrow keys."
    )
    return write_page(
        path, f"One step of {subject.name}", [steps_section(records, "One training step", note)]
    )
