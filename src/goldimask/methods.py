"""A method is a composition: noise x select x weigh, and how the probe pass runs.

Every baseline and every ablation is a row of `PRESETS`; a recipe starts from a row and overrides any
part of it:

    method: {preset: goldimask-d, weigh: {cap: 5}, attention_layer: 2}
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, get_type_hints

from pydantic import ConfigDict, ValidationError, create_model

from goldimask.errors import GoldimaskError, nearest
from goldimask.noise import NOISES, Noise
from goldimask.registry import Registry
from goldimask.select.base import SELECTORS, Select
from goldimask.types import Signal
from goldimask.weighting import WEIGHERS, Weigh


@dataclass(frozen=True)
class Method:
    """What one step does to a batch."""

    noise: Noise
    select: Select
    weigh: Weigh
    attention_layer: int | float | str = "last"  # "probe" becomes an index before the first step
    probe_mode: Literal["eval", "train"] = "eval"
    name: str = "custom"

    @property
    def needs(self) -> frozenset[Signal]:
        return self.select.needs | self.weigh.needs


@dataclass(frozen=True)
class Preset:
    """A named row: the three parts as recipe sections."""

    noise: Mapping[str, Any]
    select: Mapping[str, Any]
    weigh: Mapping[str, Any]
    paper: str = ""  # where it is defined
    options: Mapping[str, Any] = field(default_factory=dict)  # attention_layer, probe_mode


PRESETS: Registry[Preset] = Registry("method")

_GOLDIMASK: dict[str, Any] = {
    "noise": {"kind": "overmask"},
    "weigh": {"kind": "waterfill", "cap": 10.0, "priority": "p(1-p)^3"},
}
PRESETS.add(
    "vanilla",
    Preset({"kind": "uniform"}, {"kind": "none"}, {"kind": "uniform"}, paper="section 3.1"),
    summary="Masked SFT at rate t with uniform weights.",
)
PRESETS.add(
    "goldimask-d",
    Preset(
        select={
            "kind": "greedy",
            "priority": "p(1-p)^3",
            "support": {"kind": "saturating", "s0": 0.05},
        },
        paper="Algorithm 1",
        **_GOLDIMASK,
    ),
    summary="Deterministic greedy reveal, water-filled weights.",
)


def method(
    preset: str = "goldimask-d",
    *,
    noise: Mapping[str, Any] | None = None,
    select: Mapping[str, Any] | None = None,
    weigh: Mapping[str, Any] | None = None,
    **options: Any,
) -> Method:
    """Build a method from a preset and overrides, e.g. `method("goldimask-d", weigh={"cap": 5})`.

    A section that names another `kind` than the preset starts from that kind's own defaults.
    """
    row = PRESETS.get(preset, "method.preset")
    unknown = set(options) - {"attention_layer", "probe_mode"}
    if unknown:
        name = sorted(unknown)[0]
        valid = ("preset", "noise", "select", "weigh", "attention_layer", "probe_mode")
        raise GoldimaskError(f"method.{name}: unknown key; {nearest(name, valid)}")
    return Method(
        noise=build(NOISES, merge(row.noise, noise), "method.noise"),
        select=build(SELECTORS, merge(row.select, select), "method.select"),
        weigh=build(WEIGHERS, merge(row.weigh, weigh), "method.weigh"),
        name=preset,
        **{**row.options, **options},
    )


def merge(base: Mapping[str, Any], override: Mapping[str, Any] | None) -> dict[str, Any]:
    """Overrides on top of a preset's section; a new `kind` drops the old kind's options."""
    override = dict(override or {})
    if override.get("kind", base["kind"]) != base["kind"]:
        return override
    merged = dict(base)
    for key, value in override.items():
        nested = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = {**merged[key], **value} if nested else value
    return merged


def build(registry: Registry[Callable[..., Any]], section: Mapping[str, Any], where: str) -> Any:
    """Call the registered factory with a section's options, checked against its signature."""
    options = {k: v for k, v in section.items() if k != "kind"}
    factory = registry.get(section["kind"], f"{where}.kind")
    checked = check_options(factory, options, where)
    return factory(**checked)


def check_options(
    factory: Callable[..., Any], options: Mapping[str, Any], where: str
) -> dict[str, Any]:
    """Coerce and check options by the factory's type hints; errors name the recipe key."""
    model, names = _signature_model(factory)
    for key in options:
        if key not in names:
            hint = nearest(key, names) if names else "this kind takes no options"
            raise GoldimaskError(f"{where}.{key}: unknown key; {hint}")
    try:
        checked = model(**options)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(x) for x in (where, *first["loc"]))
        raise GoldimaskError(f"{path}: {first['msg']} (got {first['input']!r})") from error
    return {key: getattr(checked, key) for key in options}


@cache
def _signature_model(factory: Callable[..., Any]) -> tuple[type, frozenset[str]]:
    target = factory.__init__ if inspect.isclass(factory) else factory
    hints = get_type_hints(target)
    fields: dict[str, Any] = {
        name: (hints.get(name, Any), ... if p.default is p.empty else p.default)
        for name, p in inspect.signature(factory).parameters.items()
    }
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
    return create_model("Options", __config__=config, **fields), frozenset(fields)
