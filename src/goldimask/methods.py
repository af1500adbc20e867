"""A method is a composition: noise x select x weigh, and how the probe pass runs.

Every baseline and every ablation is a row of `goldimask.presets.PRESETS`; a recipe starts from a
row and overrides any part of it:

    method: {preset: goldimask-d, weigh: {cap: 5}, attention_layer: 2}

`protocol: lift` is LIFT as released where the project departs from it: LIFT's own budget, one
component per micro-batch, dropout in the scoring pass (D3, D5, D9, docs/decisions.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from torch import Tensor

import goldimask.baselines  # noqa: F401  registers the methods of others
from goldimask.baselines.adaptive import Memory
from goldimask.errors import GoldimaskError, nearest
from goldimask.noise import NOISES, Noise
from goldimask.presets import PRESETS as PRESETS
from goldimask.presets import Preset as Preset
from goldimask.registry import Registry
from goldimask.select import SELECTOR_NAMES, warmup  # registers the selectors
from goldimask.select.base import SELECTORS, Select
from goldimask.settings import make
from goldimask.types import Batch, Overlapping, Signal, Signals, StepOutput
from goldimask.weighting import WEIGHERS, Weigh

Protocols = Literal["goldimask", "lift"]


@runtime_checkable
class Stateful(Protocol):
    """A part that learns from training steps. State is tensors only, and saved by the trainer.

    State belongs to the process; sharing it between ranks is the trainer's business.
    """

    def observe(self, out: StepOutput, batch: Batch, trained: Signals) -> None: ...
    def state_dict(self) -> dict[str, Tensor]: ...
    def load_state_dict(self, state: Mapping[str, Tensor]) -> None: ...


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
        """Signals of the probe pass; empty means that there is none."""
        return self.select.needs | self.weigh.needs

    @property
    def passes(self) -> int:
        """Forward passes of one step, whatever the data."""
        return 1 + bool(self.needs)

    @property
    def memory(self) -> Memory | None:
        """Signals kept from earlier visits instead of a probe pass (goldimask-a)."""
        return getattr(self.select, "memory", None)

    @property
    def overlaps(self) -> bool:
        """May a step be begun before the one before it is finished, with the same results?

        Not where the probe reads what earlier steps left (a memory) or draws dropout, and not
        without a selection that can wait, which is all there is to gain.
        """
        if (
            self.memory is not None
            or self.probe_mode != "eval"
            or isinstance(self.select, Stateful)
        ):
            return False
        return isinstance(self.select, Overlapping)

    @property
    def shown(self) -> dict[str, Any]:
        """What logs and pages need to know about the selection: F's two curves, the maximiser."""
        inner = getattr(self.select, "maximiser", None)
        select = self.select if isinstance(inner, str) or inner is None else inner
        curves = getattr(select, "priority", None), getattr(select, "support", None)
        known = None not in curves
        return {
            "objective": curves if known else None,
            "maximiser": getattr(select, "maximiser", None),
        }

    @property
    def captures(self) -> frozenset[Signal]:
        """Signals of the training pass."""
        extra = {Signal.ATTENTION} if self.memory is not None else ()
        return frozenset({Signal.LOGP, *extra})

    def observe(self, out: StepOutput, batch: Batch, trained: Signals) -> None:
        """Let stateful parts learn from a training step."""
        for _, part in self._stateful():
            part.observe(out, batch, trained)

    def state_dict(self) -> dict[str, Tensor]:
        """What a checkpoint must hold besides model and optimiser; empty for most methods."""
        return {
            f"{name}.{key}": value
            for name, part in self._stateful()
            for key, value in part.state_dict().items()
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore exactly; a state of another method is an error."""
        left = dict(state)
        for name, part in self._stateful():
            own = {k: left.pop(k) for k in list(left) if k.startswith(f"{name}.")}
            part.load_state_dict({k.removeprefix(f"{name}."): v for k, v in own.items()})
        if left:
            raise GoldimaskError(
                f"saved method state holds '{sorted(left)[0]}', which method '{self.name}' does "
                "not have; resume with the recipe that wrote it"
            )

    def _stateful(self) -> Iterator[tuple[str, Stateful]]:
        parts = {"select": self.select, "weigh": self.weigh, "memory": self.memory}
        for name, part in parts.items():
            if isinstance(part, Stateful):
                yield name, part


def method(
    preset: str = "goldimask-d",
    *,
    noise: Mapping[str, Any] | None = None,
    select: Mapping[str, Any] | None = None,
    weigh: Mapping[str, Any] | None = None,
    protocol: Protocols = "goldimask",
    attention_layer: int | float | str | None = None,
    probe_mode: Literal["eval", "train"] | None = None,
) -> Method:
    """Build a method from a preset and overrides, e.g. `method("goldimask-d", weigh={"cap": 5})`.

    A section that names another `kind` than the preset starts from that kind's own defaults.
    `protocol="lift"` sets what LIFT's released code does, beneath explicit overrides of the
    sections; it always scores with dropout on.
    """
    row = PRESETS.get(preset, "method.preset")
    if not isinstance(row, Preset):
        raise GoldimaskError(f"method.preset: '{preset}' is a {type(row).__name__}, not a Preset")
    given = {"attention_layer": attention_layer, "probe_mode": probe_mode}
    options = {**row.options, **{k: v for k, v in given.items() if v is not None}}
    _check_method_options(options)
    sections = {
        "noise": merge(row.noise, noise),
        "select": merge(row.select, select),
        "weigh": merge(row.weigh, weigh),
    }
    if protocol == "lift":
        sections, options = as_released(sections, options)
    elif protocol != "goldimask":
        raise GoldimaskError(
            f"method.protocol: '{protocol}'; {nearest(protocol, ('goldimask', 'lift'))}"
        )
    built = Method(
        noise=build(NOISES, sections["noise"], "method.noise"),
        select=build(SELECTORS, sections["select"], "method.select"),
        weigh=build(WEIGHERS, sections["weigh"], "method.weigh"),
        name=preset,
        **options,
    )
    if built.memory is not None and built.weigh.needs:
        raise GoldimaskError(
            f"method.weigh.kind: '{sections['weigh']['kind']}' needs a scoring pass, which "
            "select.kind 'recall' does without; use weigh.kind 'recall' or 'uniform'"
        )
    return built


def as_released(
    sections: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any]
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """LIFT's released behaviour where it departs from ours (D3, D5, D9, docs/decisions.md)."""
    new = {name: dict(section) for name, section in sections.items()}
    if new["noise"]["kind"] == "overmask":
        new["noise"].setdefault("budget", "lift")
    if new["select"]["kind"] == "confidence":
        new["select"].setdefault("choice", "batch")
    return new, {**options, "probe_mode": "train"}


def _check_method_options(options: Mapping[str, Any]) -> None:
    valid = ("preset", "noise", "select", "weigh", "protocol", "attention_layer", "probe_mode")
    for name in options:
        if name not in ("attention_layer", "probe_mode"):
            raise GoldimaskError(f"method.{name}: unknown key; {nearest(name, valid)}")
    mode = options.get("probe_mode", "eval")
    if mode not in ("eval", "train"):
        raise GoldimaskError(f"method.probe.mode: '{mode}'; {nearest(mode, ('eval', 'train'))}")
    layer = options.get("attention_layer", "last")
    named = layer in ("last", "probe")
    index = isinstance(layer, int) and not isinstance(layer, bool)
    fraction = isinstance(layer, float) and math.isfinite(layer) and 0.0 <= layer <= 1.0
    if not (named or index or fraction):
        raise GoldimaskError(
            f"method.attention_layer: {layer!r} must be 'last', 'probe', a block index, or a "
            "fraction of the depth between 0.0 and 1.0"
        )


def merge(base: Mapping[str, Any], override: Mapping[str, Any] | None) -> dict[str, Any]:
    """Overrides on top of a preset's section; a new `kind` drops the old kind's options."""
    override = dict(override or {})
    if override.get("kind", base.get("kind")) != base.get("kind"):
        return override
    merged = dict(base)
    for key, value in override.items():
        nested = isinstance(merged.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = merge(merged[key], value) if nested else value
    return merged


def build(registry: Registry[Callable[..., Any]], section: Mapping[str, Any], where: str) -> Any:
    """Call the registered factory with a section's options, checked against its signature."""
    options = {k: v for k, v in section.items() if k != "kind"}
    return make(registry.get(section["kind"], f"{where}.kind"), options, where)


def warm_up(method: Method) -> tuple[str, ...]:
    """Compile (or read from numba's cache) what the method's steps will run; names of maximisers.

    The metric `value_vs_greedy` runs greedy beside every other maximiser.
    """
    maximiser = method.shown["maximiser"]
    if maximiser not in SELECTOR_NAMES:
        return ()
    names = tuple(dict.fromkeys(("greedy", maximiser)))
    warmup(names)
    return names
