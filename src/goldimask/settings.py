"""Settings are checked here and nowhere else: recipes, options of parts, fields of the Trainer.

A target is a dataclass or a factory; its signature says which keys there are and of which types.
Values are coerced by those types (`"5e-6"` is a number where a number is meant). A mistake names
the key, with the nearest valid one, and the source it stands in.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from goldimask.errors import GoldimaskError, nearest, short

# `__pydantic_config__` of a dataclass that is a section; the text "1e999" is no number either
STRICT = ConfigDict(extra="forbid", allow_inf_nan=False)
UNKNOWN = ("extra_forbidden", "unexpected_keyword_argument")  # pydantic's names for such a key
T = TypeVar("T")
SAID = {  # our key -> what other programs call it
    "trainer.learning_rate": "lr learning_rate",
    "trainer.num_train_epochs": "epochs num_epochs num_train_epochs n_epochs",
    "trainer.max_steps": "steps num_steps max_steps",
    "trainer.per_device_train_batch_size": "micro_batch_size per_device_batch_size",
    "global_batch_size": "batch_size train_batch_size grad_accum gradient_accumulation_steps",
    "trainer.warmup_steps": "warmup warmup_steps",
    "trainer.lr_scheduler_type": "scheduler lr_scheduler",
    "trainer.optim": "optimizer optimiser",
    "lora.r": "rank lora_r lora_rank",
    "lora.alpha": "lora_alpha",
    "lora.dropout": "lora_dropout",
    "lora.targets": "target_modules lora_target_modules",
    "backbone.name": "model base_model model_name model_name_or_path",
    "backbone.dtype": "torch_dtype dtype precision",
    "backbone.quant": "load_in_4bit quantization",
    "data.max_length": "max_seq_length max_seq_len sequence_len cutoff_len max_length",
    "data.path": "dataset datasets dataset_name dataset_path train_file",
    "data.validation": "val_set_size validation_split test_size",
    "method.preset": "preset objective",
    "output": "output_dir out",
    "seed": "random_seed",
}
MEANT = {word: key for key, words in SAID.items() for word in words.split()}


def make(target: Callable[..., T], values: Any, where: str = "", source: str = "") -> T:
    """Call a dataclass or a factory with checked values."""
    return target(**check(target, values, where, source))


def check(
    target: Callable[..., Any], values: Any, where: str = "", source: str = ""
) -> dict[str, Any]:
    """The values, coerced by the target's signature; `where` is their key, `source` their file."""
    at = Place(where, source)
    if not isinstance(values, Mapping):
        raise at.error((), f"expected a section with keys (got {short(values)})")
    names = parameters(target)
    for key in values:
        if key not in names:
            raise at.unknown((short(key),), names)
    model = _model(target, tuple(values))
    try:
        checked = model(**values)
    except ValidationError as error:
        found = error.errors()
        first = next((e for e in found if e["type"] in UNKNOWN), found[0])
        path = first["loc"]
        if first["type"] in UNKNOWN:
            raise at.unknown(path, _names_at(target, path[:-1])) from error
        got = short(first["input"])
        raise at.error(path, f"{short(first['msg'])} (got {got})") from error
    return {key: getattr(checked, key) for key in values}


@dataclasses.dataclass(frozen=True)
class Place:
    """What an error message starts with: `r.yaml: data.mixture[1].weight`."""

    where: str
    source: str

    def error(self, path: Iterable[str | int], message: str) -> GoldimaskError:
        key = self.where
        for part in path:
            key += (
                f"[{part}]" if isinstance(part, int) else f".{short(part)}" if key else short(part)
            )
        return GoldimaskError(": ".join(x for x in (self.source, key, message) if x))

    def unknown(self, path: Iterable[str | int], names: Iterable[str]) -> GoldimaskError:
        path, names = tuple(path), tuple(names)
        hint = nearest(str(path[-1]), names) if names else "this kind takes no options"
        meant = MEANT.get(str(path[-1]).lower().replace("-", "_"))
        section = (meant or "").partition(".")[0]
        whole = not self.where and section in (path[0], *names)  # the key of a recipe
        if meant and (whole or self.where == "trainer"):
            hint = f"did you mean '{meant}'?"
        return self.error(path, f"unknown key; {hint}")


def parameters(target: Callable[..., Any]) -> tuple[str, ...]:
    """Names of the settings that a target takes."""
    return tuple(inspect.signature(target).parameters)


@cache
def _model(target: Callable[..., Any], given: tuple[str, ...]) -> type[BaseModel]:
    """A model of the given keys, and of those that must be there."""
    hints = _hints(target)
    fields: dict[str, Any] = {
        name: (hints.get(name, Any), ... if p.default is p.empty else p.default)
        for name, p in inspect.signature(target).parameters.items()
        if name in given or p.default is p.empty
    }
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, allow_inf_nan=False)
    return create_model("Options", __config__=config, **fields)


def _hints(target: Callable[..., Any]) -> dict[str, Any]:
    if inspect.isclass(target) and not dataclasses.is_dataclass(target):
        return get_type_hints(target.__init__)
    return get_type_hints(target)


def _names_at(target: Any, path: Iterable[str | int]) -> tuple[str, ...]:
    """Valid keys of the section that a path inside a target leads to."""
    for part in path:
        if isinstance(part, str):
            target = _section(_hints(target).get(part, target))
    return parameters(target)


def _section(hint: Any) -> Any:
    """The dataclass inside a type such as `tuple[MixtureItem, ...]` or `LoraSection | None`."""
    return next((t for t in (hint, *get_args(hint)) if dataclasses.is_dataclass(t)), hint)
