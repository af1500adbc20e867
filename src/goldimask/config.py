"""Recipes: one YAML file says everything about a run.

    seed, output, backbone, lora, data, method, global_batch_size, trainer, evaluation

A recipe is read, overridden by `key.path=value` words from the command line, and checked strictly:
an unknown key or a wrong type is an error that names the key and the nearest valid one. The classes
here hold values and nothing else; builders elsewhere turn them into objects.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

import yaml
from pydantic import ConfigDict, TypeAdapter, ValidationError

from goldimask.errors import GoldimaskError, nearest

_STRICT = ConfigDict(extra="forbid")


@dataclass(frozen=True)
class BackboneSection:
    """Which model, and how it is held."""

    name: str = "tiny"  # a shortcut of `goldimask list backbones`, a folder, or a Hub id
    path: str | None = None  # a folder or Hub id that replaces what the name stands for
    dtype: Literal["auto", "float32", "bfloat16"] = (
        "auto"  # auto: bfloat16 on a GPU, float32 on a CPU
    )
    attn: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    quant: Literal["nf4"] | None = None
    kernel: Literal["torch", "liger"] = "torch"  # scoring; liger: fused, with the extra `liger`
    attention_rows: Literal["token", "predictor"] = (
        "token"  # predictor: Dream's row before the token (D10); the same for LLaDA
    )
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class LoraSection:
    """Low-rank adapters; leave the section out for full fine-tuning."""

    r: int = 128
    alpha: float = 256.0
    dropout: float = 0.05
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class MixtureItem:
    """One source of a mixture; its share is its weight over the sum of all."""

    corpus: str | None = None
    path: str | None = None
    split: str | None = None
    subset: str | None = None
    weight: float = 1.0
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class DataSection:
    """Which examples, and how they become tokens (D1, D12, D20)."""

    corpus: str | None = None  # a named corpus; with `path`, its formatting of that file or folder
    path: str | None = None  # a .jsonl, .json, .csv or .parquet file, a folder, or a Hub id
    split: str | None = None  # of a Hub id or a saved dataset; train unless the corpus says so
    subset: str | None = None  # configuration of a Hub id
    mixture: tuple[MixtureItem, ...] = ()  # several sources instead of one
    mixture_size: int | None = None  # rows in all; default: as many as repeat no row
    limit: int | None = None  # use only the first rows of each source
    max_length: int = 4096
    overlength: Literal["truncate", "drop", "error"] = "truncate"
    validation: float = 0.01  # a share of the examples below 1, a number of examples from 1 on
    supervise: Literal["response_no_pad", "all_after_prompt"] = "response_no_pad"
    supervise_turn_end: bool = False
    skip_bad_rows: bool = False
    group_by_length: bool = True
    pad_to_multiple: int = 8
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class ProbeSection:
    """Pass 1."""

    mode: Literal["eval", "train"] | None = None  # eval: dropout off, the default (D9)
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class MethodSection:
    """A preset and what differs from it; see `goldimask list methods`."""

    preset: str = "goldimask-d"
    noise: dict[str, Any] = field(default_factory=dict)
    select: dict[str, Any] = field(default_factory=dict)
    weigh: dict[str, Any] = field(default_factory=dict)
    attention_layer: int | float | str | None = None  # last | index | fraction of depth | probe
    probe: ProbeSection = field(default_factory=ProbeSection)
    protocol: Literal["goldimask", "lift"] = "goldimask"
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class EvaluationSection:
    """How a checkpoint is judged (D14)."""

    objective: Literal["vanilla", "method", "lift"] = "vanilla"  # lift: as released, noisy
    t_grid: int = 16  # noise levels of the fixed bank
    batch_size: int = 16
    patience: int | None = None  # stop after so many evaluations without a better one
    __pydantic_config__ = _STRICT


@dataclass(frozen=True)
class Recipe:
    """A whole run."""

    seed: int = 42
    output: str = "runs/run"
    backbone: BackboneSection = field(default_factory=BackboneSection)
    lora: LoraSection | None = None
    data: DataSection = field(default_factory=DataSection)
    method: MethodSection = field(default_factory=MethodSection)
    global_batch_size: int = 8
    trainer: dict[str, Any] = field(default_factory=dict)  # transformers.TrainingArguments
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    __pydantic_config__ = _STRICT


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read, override and check a recipe: a file, a packaged one or one of the paper's by name."""
    made = paper_recipe(path)
    values = yaml.safe_load(made) if made is not None else read_yaml(find_recipe(path))
    return parse_recipe(apply_overrides(values, overrides), str(path))


def paper_recipe(path: str | Path) -> str | None:
    """The text of a generated recipe that is named without a file, such as
    `llada8b-s1k-goldimask-d`.
    """
    if Path(path).is_file():
        return None
    from goldimask.train.recipes import all_recipes

    return all_recipes().get(Path(path).name.removesuffix(".yaml"))


def find_recipe(path: str | Path) -> Path:
    """A file, or a recipe that ships with the package: `tiny-goldimask-d` or `recipes/x.yaml`."""
    file = Path(path)
    if file.is_file():
        return file
    packaged = packaged_recipes()
    name = file.name.removesuffix(".yaml").removesuffix(".yml")
    if name in packaged and file.parent in (Path(), Path("recipes")):
        return packaged[name]
    from goldimask.train.recipes import all_recipes

    known = [*packaged, *all_recipes()]
    close = nearest(name, known)
    hint = close.partition(" (valid")[0] if "did you mean" in close else nearest(name, packaged)
    raise GoldimaskError(f"recipe '{path}': no such file; packaged: {hint}")


def packaged_recipes() -> dict[str, Path]:
    """Recipes inside the package, by name."""
    folder = Path(__file__).parent / "assets" / "recipes"
    return {file.stem: file for file in sorted(folder.glob("*.yaml"))}


def read_yaml(file: Path) -> dict[str, Any]:
    """One YAML mapping, with the place of any mistake."""
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{file}:{mark.line + 1}:{mark.column + 1}" if mark else str(file)
        raise GoldimaskError(
            f"{place}: not valid YAML: {error.problem or error.context}"
        ) from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise GoldimaskError(f"{file}: not valid YAML: {error}") from error
    if loaded is None:
        return {}
    if not isinstance(loaded, dict):
        raise GoldimaskError(
            f"{file}: a recipe is a mapping of keys, not a {type(loaded).__name__}"
        )
    return loaded


def apply_overrides(values: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Apply words such as `seed=2` or `method.weigh.cap=5`; values are YAML."""
    result = _copy(values)
    for word in overrides:
        path, sign, text = word.partition("=")
        if not sign or not path:
            raise GoldimaskError(f"override '{word}': write key=value, such as method.weigh.cap=5")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise GoldimaskError(f"override '{word}': the value is not valid YAML") from error
        *parents, last = path.split(".")
        section = result
        for parent in parents:
            inner = section.get(parent)
            if inner is not None and not isinstance(inner, dict):
                raise GoldimaskError(f"override '{word}': '{parent}' is not a section")
            section = (
                section.setdefault(parent, {}) if inner is not None else _open(section, parent)
            )
        section[last] = value
    return result


def _open(section: dict[str, Any], key: str) -> dict[str, Any]:
    section[key] = {}
    return section[key]


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in values.items()}


def parse_recipe(values: Mapping[str, Any], source: str = "recipe") -> Recipe:
    """Check a mapping against the sections above."""
    return parse(Recipe, values, source)


def parse(kind: type[Any], values: Mapping[str, Any], source: str) -> Any:
    """Check a mapping against a dataclass: unknown keys and wrong types name the key."""
    unknown = _unknown_key(kind, values)
    if unknown:
        path, choices = unknown
        raise GoldimaskError(
            f"{source}: {path}: unknown key; {nearest(path.split('.')[-1], choices)}"
        )
    try:
        return TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(x) for x in first["loc"]) or "recipe"
        raise GoldimaskError(
            f"{source}: {path}: {first['msg']} (got {first['input']!r})"
        ) from error


def _unknown_key(
    kind: type[Any], values: Mapping[str, Any], at: str = ""
) -> tuple[str, list[str]] | None:
    """The first key that no section has, with the valid ones beside it."""
    hints = get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind)]
    for key, value in values.items():
        if key not in names:
            return f"{at}{key}", names
        inner = next(
            (t for t in (hints[key], *get_args(hints[key])) if dataclasses.is_dataclass(t)), None
        )
        if inner is None:
            continue
        items = [(f"{at}{key}.", value)]
        if isinstance(value, Sequence):
            items = [(f"{at}{key}[{i}].", item) for i, item in enumerate(value)]
        for place, item in items:
            found = _unknown_key(inner, item, place) if isinstance(item, Mapping) else None  # type: ignore[arg-type]
            if found:
                return found
    return None


def recipe_dict(recipe: Recipe) -> dict[str, Any]:
    """Plain values, ready for YAML and for comparison."""
    return TypeAdapter(Recipe).dump_python(recipe, mode="json")


def recipe_yaml(recipe: Recipe) -> str:
    """The resolved recipe as YAML; reading it back gives the same recipe."""
    return yaml.safe_dump(recipe_dict(recipe), sort_keys=False, allow_unicode=True)


def recipe_schema() -> dict[str, Any]:
    """JSON schema of a recipe, for editors."""
    return TypeAdapter(Recipe).json_schema()
