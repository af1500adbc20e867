"""Recipes: one YAML file says everything about a run.

    seed, output, backbone, lora, data, method, global_batch_size, trainer, evaluation

A recipe is read, overridden by `key.path=value` words from the command line, and checked strictly
(`goldimask.settings`). The classes here hold values and nothing else; `train/prepare.py` turns them
into objects, and everything behind it takes plain arguments.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import TypeAdapter

from goldimask.errors import GoldimaskError, nearest, short
from goldimask.files import check_plain, parse_yaml
from goldimask.settings import STRICT, make

OF_CORPUS = ("options", "split", "subset", "columns", "limit")  # what else `data` says of its rows


@dataclass(frozen=True)
class BackboneSection:
    """Which model, and how it is held."""

    name: str = "tiny"  # a shortcut of `goldimask list backbones`, a folder, or a Hub id
    path: str | None = None  # a folder or Hub id that replaces what the name stands for
    # auto: bfloat16 on a GPU, float32 on a CPU
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    attn: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"  # transformers' attention
    quant: Literal["nf4"] | None = None  # base in 4 bits, with the extra `quant`
    kernel: Literal["torch", "liger"] = "torch"  # scoring; liger: fused, with the extra `liger`
    compile: Literal["blocks"] | None = None  # training passes through torch.compile
    # predictor: Dream's row before the token (D10, docs/decisions.md); the same for LLaDA
    attention_rows: Literal["token", "predictor"] = "token"
    # what a checkpoint that is not known by name does not say (known.py)
    layout: str | None = None  # llada, dream, llama, qwen2, qwen3, qwen3_moe, diffullama
    shift: bool | None = None  # true: row i predicts token i + 1
    mask_id: int | None = None  # where neither config nor tokenizer names the mask token
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class LoraSection:
    """Low-rank adapters; leave the section out for full fine-tuning."""

    r: int = 128  # rank
    alpha: float = 256.0  # the adapter is scaled by alpha / r
    dropout: float = 0.05  # on the adapter's input, while training
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj")  # layers that get one
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class MixtureItem:
    """One source of a mixture; its share is its weight over the sum of all."""

    corpus: str | None = None
    path: str | None = None
    split: str | None = None
    subset: str | None = None
    options: dict[str, Any] = field(default_factory=dict)  # of a generated corpus
    columns: dict[str, str] = field(default_factory=dict)
    weight: float = 1.0  # its share is this over the sum of all
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class DataSection:
    """Which examples, and how they become tokens (D1, D12, D20, docs/decisions.md)."""

    corpus: str | None = None  # a named corpus; with `path`, its formatting of that file or folder
    path: str | None = None  # a .jsonl, .json, .csv or .parquet file, a folder, or a Hub id
    split: str | None = None  # of a Hub id or a saved dataset; train unless the corpus says so
    subset: str | None = None  # configuration of a Hub id
    options: dict[str, Any] = field(default_factory=dict)  # of a generated corpus: eta, seed, ...
    columns: dict[str, str] = field(default_factory=dict)  # {prompt: name, response: name} of path
    turns: Literal["last", "all"] = "last"  # which assistant turns of a conversation are trained
    mixture: tuple[MixtureItem, ...] = ()  # several sources instead of one
    mixture_size: int | None = None  # rows in all; default: as many as repeat no row
    limit: int | None = None  # rows of each source: the first ones, or so many generated ones
    max_length: int | None = None  # default: 4,096, or the positions of the model if fewer
    overlength: Literal["truncate", "drop", "error"] = "truncate"  # of longer examples
    validation: float = 0.01  # a share of the examples below 1, a number of examples from 1 on
    # the response without special tokens, or with them
    supervise: Literal["response_no_pad", "all_after_prompt"] = "response_no_pad"
    supervise_turn_end: bool = False  # the token that ends the turn is a target too
    skip_bad_rows: bool = False  # count rows that cannot be used instead of stopping
    group_by_length: bool = True  # examples of like length share a batch
    pad_to_multiple: int = 8  # batches are padded to a multiple of so many tokens
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class ProbeSection:
    """Pass 1."""

    # eval: dropout off, the default (D9, docs/decisions.md)
    mode: Literal["eval", "train"] | None = None
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class MethodSection:
    """A preset and what differs from it; see `goldimask list methods`."""

    preset: str = "goldimask-d"  # the method that the other keys change
    noise: dict[str, Any] = field(default_factory=dict)  # which tokens are masked: kind, options
    select: dict[str, Any] = field(default_factory=dict)  # which of them are revealed
    weigh: dict[str, Any] = field(default_factory=dict)  # how much each remaining target counts
    attention_layer: int | float | str | None = None  # last | index | fraction of depth | probe
    probe: ProbeSection = field(default_factory=ProbeSection)
    protocol: Literal["goldimask", "lift"] = "goldimask"  # lift: as its released code does
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class EvaluationSection:
    """How a checkpoint is judged (D14, docs/decisions.md)."""

    objective: Literal["vanilla", "method", "lift"] = "vanilla"  # lift: as released, noisy
    t_grid: int = 16  # noise levels of the fixed bank
    pairs: int = 128  # least number of (example, level) pairs in it
    batch_size: int = 16  # (example, level) pairs scored at a time
    patience: int | None = None  # stop after so many evaluations without a better one
    __pydantic_config__ = STRICT


@dataclass(frozen=True)
class Recipe:
    """A whole run."""

    seed: int = 42  # of the split, the order, the noise and fresh adapters
    output: str = "runs/run"  # `{data.corpus}`: the value of that key
    backbone: BackboneSection = field(default_factory=BackboneSection)
    lora: LoraSection | None = None  # null: all weights are trained
    data: DataSection = field(default_factory=DataSection)
    method: MethodSection = field(default_factory=MethodSection)
    global_batch_size: int = 8  # examples of an optimiser step, over all processes
    trainer: dict[str, Any] = field(default_factory=dict)  # transformers.TrainingArguments
    evaluation: EvaluationSection = field(default_factory=EvaluationSection)
    __pydantic_config__ = STRICT


def load_recipe(path: str | Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read, override and check a recipe: a file, or one that ships with the package by name."""
    values = apply_overrides(read_yaml(find_recipe(path)), overrides)
    return parse_recipe(without_replaced(values, overrides), str(path))


def without_replaced(values: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """What words take the place of: a path that of the corpus, epochs that of steps, steps of
    epochs.
    """
    given = {word.partition("=")[0] for word in overrides}
    data, trainer = values.get("data"), values.get("trainer")
    if isinstance(data, dict) and data.get("path") is not None:
        # with a corpus beside it, the path is read in the format of the corpus
        replaced = "data.path" in given and "data.corpus" not in given
        for key in ("corpus", "mixture", *OF_CORPUS) if replaced else ():
            if not any(f"{word}.".startswith(f"data.{key}.") for word in given):
                data.pop(key, None)
    lengths = {"trainer.max_steps": "max_steps", "trainer.num_train_epochs": "num_train_epochs"}
    if isinstance(trainer, dict) and len(given & lengths.keys()) == 1:
        (asked,) = given & lengths.keys()
        other = next(key for word, key in lengths.items() if word != asked)
        trainer.pop(other, None)
    return values


def find_recipe(path: str | Path) -> Path:
    """A file, or a recipe that ships with the package: `llada8b` (or `recipes/llada8b.yaml`)."""
    file = Path(path)
    with suppress(OSError, ValueError):  # a name that no file can have
        if file.is_file():
            return file
    packaged = packaged_recipes()
    name = file.name.removesuffix(".yaml")
    if name in packaged and file.parent in (Path(), Path("recipes")):
        return packaged[name]
    raise GoldimaskError(
        f"recipe '{short(str(path))}': no such file; packaged: {nearest(name, packaged)}"
    )


def packaged_recipes() -> dict[str, Path]:
    """Recipes inside the package, by name."""
    root = Path(__file__).parent
    return {file.stem: file for file in sorted((root / "recipes").glob("*.yaml"))}


def read_yaml(file: Path) -> dict[str, Any]:
    """One YAML mapping, with the place of any mistake."""
    try:
        loaded = parse_yaml(file.read_text(encoding="utf-8-sig"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise GoldimaskError(f"{file}: cannot be read as text ({error})") from error
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
        where = f"override '{short(word)}'"
        if not sign or not path:
            raise GoldimaskError(f"{where}: write key=value, such as method.weigh.cap=5")
        value = parse_yaml(text, where)
        *parents, last = path.split(".")
        section = result
        for parent in parents:
            inner = section.get(parent)
            if inner is not None and not isinstance(inner, dict):
                raise GoldimaskError(f"{where}: '{short(parent)}' is not a section")
            section = inner if inner is not None else _open(section, parent)
        section[last] = value
    check_plain(result, "overrides")
    return result


def _open(section: dict[str, Any], key: str) -> dict[str, Any]:
    section[key] = {}
    return section[key]


def _copy(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in values.items()}


def parse_recipe(values: Mapping[str, Any], source: str = "recipe") -> Recipe:
    """Check a mapping against the sections above, and name the output."""
    recipe = make(Recipe, values, source=source)
    return replace(recipe, output=_named(recipe, source))


def _named(recipe: Recipe, source: str) -> str:
    """The output, where `{data.corpus}` stands for the value of that key."""
    values = recipe_dict(recipe)

    def value(found: re.Match[str]) -> str:
        inner: Any = values
        for part in found[1].split("."):
            if not isinstance(inner, dict) or part not in inner:
                raise GoldimaskError(f"{source}: output: '{found[0]}' is not a key of the recipe")
            inner = inner[part]
        if inner is None and found[1] == "data.corpus" and recipe.data.path:
            inner = Path(recipe.data.path).name.partition(".")[0]
        return "none" if inner is None else str(inner).replace("/", "-")

    return re.sub(r"\{([^{}]*)\}", value, recipe.output)


def recipe_dict(recipe: Recipe) -> dict[str, Any]:
    """Plain values, ready for YAML and for comparison."""
    return _adapter().dump_python(recipe, mode="json")


@cache
def _adapter() -> TypeAdapter[Recipe]:
    return TypeAdapter(Recipe)  # takes a tenth of a second to make


def recipe_yaml(recipe: Recipe) -> str:
    """The resolved recipe as YAML; reading it back gives the same recipe."""
    return yaml.safe_dump(recipe_dict(recipe), sort_keys=False, allow_unicode=True)
