"""Campaign files: read, with presets, parts and words of the command line, and checked.

Strict like a recipe: a mistake names the file and the key, before anything is run. A file with
`parts` names other campaigns; what it says beside them holds for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from goldimask.campaign.settings import (
    AXES,
    Campaign,
    JudgingSection,
    cell_recipe,
    cells,
    corpora_of,
    label,
    merged,
    values_of,
)
from goldimask.config import apply_overrides, find_recipe, read_yaml
from goldimask.errors import GoldimaskError, nearest
from goldimask.presets import PRESETS
from goldimask.settings import make

OWN = ("name", "title", "output", "parts", "presets")  # of a file with parts, not of its parts


def load_parts(
    path: str | Path, preset: str | None = None, words: Sequence[str] = ()
) -> tuple[Campaign, ...]:
    """Read, choose the preset, override and check; one campaign, or those of `parts`.

    What a file says beside its `parts` holds for all of them.
    """
    values = read_yaml(find_recipe(path))
    presets = values.pop("presets", {})
    if not isinstance(presets, Mapping):
        raise GoldimaskError(f"{path}: presets: expected a mapping of names")
    if preset is not None:
        if preset not in presets:
            known = nearest(preset, presets) if presets else "the campaign has none"
            raise GoldimaskError(f"--preset '{preset}': {known}")
        values = merged(values, presets[preset] or {})
    values.setdefault("name", Path(path).name.removesuffix(".yaml"))
    parts = values.pop("parts", None)
    if parts is None:
        one = check(make(Campaign, apply_overrides(values, words), source=str(path)), str(path))
        check_per([one], str(path))
        return (one,)
    if not isinstance(parts, list) or not parts or not all(isinstance(p, str) for p in parts):
        raise GoldimaskError(f"{path}: parts: expected a list of campaigns")
    shared = {k: v for k, v in values.items() if k not in OWN}
    output = apply_overrides(values, words).get("output", "runs/campaign")
    found = []
    for part in parts:
        own = {k: v for k, v in read_yaml(find_recipe(part)).items() if k != "presets"}
        if "parts" in own:
            raise GoldimaskError(f"{path}: parts: '{part}' has parts itself; name those")
        given = apply_overrides(merged(own, shared), words)
        given |= {"name": Path(part).name.removesuffix(".yaml"), "output": output}
        if own.get("judging", {}) is None:  # what is said of the others' judging is not for it
            given["judging"] = None
        found.append(check(make(Campaign, given, source=str(part)), str(part)))
    check_per(found, str(path))
    return tuple(found)


def load_campaign(
    path: str | Path, preset: str | None = None, words: Sequence[str] = ()
) -> Campaign:
    """A campaign without parts."""
    first, *more = load_parts(path, preset, words)
    if more:
        raise GoldimaskError(f"{path}: has parts; give one of them")
    return first


def check(campaign: Campaign, source: str = "campaign") -> Campaign:
    """Everything that can be refused before the first cell."""
    for key in AXES:
        values = getattr(campaign, key)
        if (not values and key != "corpora") or len(set(values)) < len(values):
            raise GoldimaskError(f"{source}: {key}: give at least one, and none twice")
    found = cells(campaign)
    if not found:
        raise GoldimaskError(f"{source}: exclude: nothing is left of the grid")
    for key, used in (("backbones", {c.backbone for c in found}), ("corpora", corpora_of(found))):
        if len(set(map(label, used))) < len(used):
            raise GoldimaskError(f"{source}: {key}: two share the last part of their names")
    if campaign.judging is not None:
        check_judging(campaign.judging, campaign.seeds, source)
    check_names(campaign, source)
    for cell in found:
        cell_recipe(campaign, cell)
    return campaign


def check_per(parts: Sequence[Campaign], source: str) -> None:
    """Changes for a value that no cell of any part has are a slip of the pen.

    Of rows, a known method may be left out: a preset or a word on the command line names fewer.
    """
    for key in AXES:
        used = {str(v) for part in parts for c in cells(part) for v in values_of(c, key)}
        if key == "rows":
            used |= {*PRESETS.names(), *(v for part in parts for v in part.variants)}
        for value in (v for part in parts for v in getattr(part.per, key)):
            if str(value) not in used:
                hint = nearest(str(value), used)
                raise GoldimaskError(f"{source}: per.{key}.{value}: no cell has it; {hint}")


def check_judging(judging: JudgingSection, seeds: Sequence[int], source: str) -> None:
    from goldimask.eval.tasks import get_task

    if judging.taus and judging.main_tau not in judging.taus:
        raise GoldimaskError(
            f"{source}: judging.main_tau: {judging.main_tau:g} is not among judging.taus "
            f"{list(judging.taus)}"
        )
    if any(not 0 < tau <= 1 for tau in judging.taus):
        raise GoldimaskError(f"{source}: judging.taus: confidences lie in (0, 1]")
    counts = [n for n in (judging.problems, judging.sweep_problems) if n is not None]
    if min(counts, default=len(seeds)) < len(seeds):
        raise GoldimaskError(f"{source}: judging: at least one problem per seed")
    if judging.shards < 1 or (judging.samples or 1) < 1:
        raise GoldimaskError(f"{source}: judging: shards and samples are at least 1")
    for task in judging.tasks:
        get_task(task)
    if strange := [t for t in judging.lengths if t and t not in judging.tasks]:
        known = nearest(strange[0], judging.tasks)
        raise GoldimaskError(f"{source}: judging.lengths.{strange[0]}: not a task of it; {known}")


def check_names(campaign: Campaign, source: str) -> None:
    from goldimask.report.paper import FIGURES, TABLES

    for key, known in (("tables", TABLES), ("figures", FIGURES)):
        for name in getattr(campaign, key):
            if name not in known and name != "all":
                hint = nearest(name, ["all", *known])
                raise GoldimaskError(f"{source}: {key}: unknown '{name}'; {hint}")
