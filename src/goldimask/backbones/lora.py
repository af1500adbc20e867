"""LoRA adapters through PEFT: made from a seed, kept in float32, stored under both sets of names.

    W' = W + (alpha / r) B A,    A ~ U(-1/sqrt(d_in), 1/sqrt(d_in)),  B = 0

A is drawn from our own generator, in the order of the module names, so that an adapter depends on
its seed alone; the constructor's draws from the global generator are undone. Adapters stay
float32 on a lower precision base (D13, docs/decisions.md): in bfloat16 an update at a small
learning rate rounds away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from goldimask.backbones.base import Backbone, Family
from goldimask.backbones.checkpoint import check_finite, complain
from goldimask.backbones.lookup import BACKBONES
from goldimask.errors import GoldimaskError, nearest, short
from goldimask.files import new_folder, read_object, write_json
from goldimask.keys import Stream, torch_seed

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
HUB_FOLDER = "hub"  # inside an adapter folder: the same adapter under the published names
ADAPTER_COUNTER = 1  # keeps these draws apart from those of a model made from scratch
TARGETS = ("q_proj", "k_proj", "v_proj")  # the paper's, as are the defaults of `add_lora`
UNSUPPORTED = ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "lora_bias")


def add_lora(
    backbone: Backbone,
    seed: int,
    *,
    r: int = 128,
    alpha: float = 256.0,
    dropout: float = 0.05,
    targets: Sequence[str] = TARGETS,
) -> Backbone:
    """The backbone with a fresh trainable adapter; everything else is frozen."""
    if hasattr(backbone.model, "peft_config"):
        raise GoldimaskError(f"{backbone.name}: carries an adapter already; merge it first")
    if r < 1:
        raise GoldimaskError(f"lora.r: {r} must be at least 1")
    if not 0.0 <= dropout < 1.0:
        raise GoldimaskError(f"lora.dropout: {dropout} must lie in [0, 1)")
    target_modules(backbone.model, backbone.family, targets)
    config = LoraConfig(
        r=r,
        lora_alpha=int(alpha) if float(alpha).is_integer() else alpha,  # type: ignore[arg-type]
        lora_dropout=dropout,
        target_modules=list(targets),
        bias="none",
    )
    made = attach(backbone, config)
    draw_adapter(made.model, seed)
    return made


def attach(backbone: Backbone, config: LoraConfig) -> Backbone:
    """Wrap the model; the mode of the base decides the mode of the adapter's dropout."""
    training = backbone.model.training
    with torch.random.fork_rng(devices=[]):
        model = get_peft_model(backbone.model, config)  # type: ignore[arg-type]
    model.train(training)
    return replace(backbone, model=model)


@torch.no_grad()
def draw_adapter(model: nn.Module, seed: int) -> None:
    """Draw every A from one generator; every B stays zero."""
    generator = torch.Generator().manual_seed(torch_seed(seed, Stream.INIT, ADAPTER_COUNTER))
    for name, p in sorted(adapter_parameters(model).items()):
        if ".lora_A." in name:
            bound = p.shape[1] ** -0.5
            p.copy_((torch.rand(p.shape, generator=generator) * 2 - 1) * bound)


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Name without the adapter's label -> parameter."""
    return {
        name.replace(".default.", "."): p
        for name, p in model.named_parameters()
        if ".lora_A." in name or ".lora_B." in name
    }


def linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Path -> every plain or quantised linear layer."""
    found: dict[str, Any] = dict(model.named_modules())
    return {k: m for k, m in found.items() if hasattr(m, "in_features")}


def target_modules(
    model: nn.Module, family: Family, targets: Iterable[str]
) -> dict[str, nn.Linear]:
    """The layers that an adapter goes on; a target that matches none would train nothing."""
    layers = linear_layers(model)
    known = {leaf(path) for path in layers}
    names = list(targets)
    if not names:
        raise GoldimaskError(f"lora.targets: empty; valid: {', '.join(sorted(known))}")
    for name in names:
        if name in known:
            continue
        ours = family.layers.get(name)
        if ours in known:
            raise GoldimaskError(
                f"lora.targets: the published name '{name}' is called '{ours}' here"
            )
        raise GoldimaskError(
            f"lora.targets: '{name}' matches no linear layer; {nearest(name, known)}"
        )
    return {path: layer for path, layer in layers.items() if leaf(path) in names}


def leaf(path: str) -> str:
    """The last name of a module's path."""
    return path.rsplit(".", 1)[-1]


def save_adapter(backbone: Backbone, folder: Path | str) -> Path:
    """Write the adapter for PEFT on our models and, in `hub/`, for the family's published code.

    There is no `hub/` where the published names are the ones we use; one copy serves both.
    """
    model: Any = backbone.model
    if not hasattr(model, "peft_config"):
        raise GoldimaskError(f"{folder}: the model carries no adapter; use save_backbone")
    state = {k: p.detach().cpu().contiguous() for k, p in adapter_parameters(model).items()}
    config = adapter_config(backbone, model.peft_config["default"])
    family = backbone.family
    folder = Path(folder)
    with new_folder(folder) as temporary:
        write_adapter(temporary, state, config)
        if family.hub_targets is not None:
            theirs = {family.to_hub(k): v for k, v in state.items()}
            targets = family.hub_targets(config["target_modules"])
            write_adapter(temporary / HUB_FOLDER, theirs, {**config, "target_modules": targets})
    return folder


def write_adapter(folder: Path, state: dict[str, Tensor], config: Mapping[str, Any]) -> None:
    """One adapter in PEFT's two files."""
    folder.mkdir(exist_ok=True)
    save_file(state, folder / WEIGHTS, {"format": "pt"})
    write_json(folder / CONFIG, config)


def adapter_config(backbone: Backbone, config: LoraConfig) -> dict[str, Any]:
    """adapter_config.json as PEFT reads it; the base is named by its Hub id where it has one."""
    fields = {k: v for k, v in config.to_dict().items() if not isinstance(v, type)}
    fields = json.loads(json.dumps(fields, default=lambda x: sorted(x)))  # sets -> sorted lists
    base = backbone.path
    if backbone.name in BACKBONES:
        base = BACKBONES.get(backbone.name).hub or backbone.name
    return {**fields, "base_model_name_or_path": base, "inference_mode": True}


def load_adapter(backbone: Backbone, folder: Path | str, trainable: bool = False) -> Backbone:
    """Put a stored adapter on a backbone; reads our names and the family's published ones."""
    folder = Path(folder)
    config, stored = read_adapter(folder)
    state = {backbone.family.to_native(k): v for k, v in stored.items()}
    modules = {m for key in state if (m := module_of(key))}
    stray = sorted(key for key in state if not module_of(key))
    linear = linear_layers(backbone.model).keys()
    where, against = str(folder / WEIGHTS), backbone.path or backbone.name
    complain(where, against, unexpected=stray + sorted(modules - linear))
    config.target_modules = compact_targets(modules, linear)  # type: ignore[assignment]
    out = attach(backbone, config)
    parameters = adapter_parameters(out.model)
    wrong = [
        f"{k} is {list(state[k].shape)}, expected {list(p.shape)}"
        for k, p in parameters.items()
        if k in state and state[k].shape != p.shape
    ]
    complain(where, against, missing=sorted(parameters.keys() - state.keys()), wrong=wrong)
    with torch.no_grad():
        for key, p in parameters.items():
            p.copy_(state[key])
            p.requires_grad_(trainable)
    return out


def read_adapter(folder: Path) -> tuple[LoraConfig, dict[str, Tensor]]:
    """adapter_config.json and the weights; what we cannot honour is refused, not dropped."""
    path = folder / CONFIG
    if not path.is_file():
        raise GoldimaskError(f"{folder}: no {CONFIG}; is this an adapter folder?")
    if not (folder / WEIGHTS).is_file():
        pickle = (folder / "adapter_model.bin").is_file()
        why = "only a pickle (adapter_model.bin); convert it to safetensors"
        raise GoldimaskError(f"{folder}: {why if pickle else 'no weights'}; expected {WEIGHTS}")
    try:
        fields = read_object(path)
        state = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise GoldimaskError(f"{folder}: not a readable adapter ({error})") from error
    check_finite(state.items(), str(folder / WEIGHTS))
    if fields.get("peft_type") != "LORA":
        raise GoldimaskError(f"{path}: peft_type is '{fields.get('peft_type')}'; only LORA is read")
    refused = [key for key in UNSUPPORTED if fields.get(key)]
    refused += ["bias"] * (fields.get("bias", "none") != "none")
    if refused:
        raise GoldimaskError(f"{path}: {refused[0]}={short(fields[refused[0]])} is not supported")
    kept = ("r", "lora_alpha", "lora_dropout", "use_rslora")
    try:
        return LoraConfig(**{k: fields[k] for k in kept if k in fields}), state
    except (TypeError, ValueError) as error:
        raise GoldimaskError(f"{path}: {error}") from error


def module_of(key: str) -> str | None:
    """`base_model.model.a.b.lora_A.weight` -> `a.b`; None when it is not a LoRA tensor."""
    path, dot, rest = key.removeprefix("base_model.model.").partition(".lora_")
    return path if dot and rest in ("A.weight", "B.weight") else None


def compact_targets(modules: set[str], linear: Iterable[str]) -> list[str]:
    """Leaf names when they stand for exactly these modules, full paths otherwise."""
    leaves = {leaf(m) for m in modules}
    covered = {m for m in linear if leaf(m) in leaves}
    return sorted(leaves if covered == modules else modules)
