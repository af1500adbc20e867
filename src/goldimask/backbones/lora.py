"""LoRA adapters through PEFT: made from a seed, kept in float32, stored under both sets of names.

    W' = W + (alpha / r) B A,    A ~ U(-1/sqrt(d_in), 1/sqrt(d_in)),  B = 0

A is drawn from our own generator, in the order of the module names, so that an adapter depends on
its seed alone; the constructor's draws from the global generator are undone. Adapters stay
float32 on a lower precision base (D13): in bfloat16 an update at a small learning rate rounds
away.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from peft import LoraConfig, get_peft_model
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from goldimask.backbones.base import BACKBONES, Backbone
from goldimask.backbones.checkpoint import complain
from goldimask.backbones.llada import BLOCK_NAMES, to_hub, to_native
from goldimask.errors import GoldimaskError, nearest
from goldimask.files import new_folder, write_json
from goldimask.keys import Stream, torch_seed

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"
HUB_FOLDER = "hub"  # inside an adapter folder: the same adapter under LLaDA's published names
ADAPTER_COUNTER = 1  # keeps these draws apart from those of a model made from scratch


@dataclass(frozen=True)
class LoraSettings:
    """Size and place of an adapter; the defaults are the paper's."""

    r: int = 128
    alpha: float = 256.0
    dropout: float = 0.05
    targets: Sequence[str] = ("q_proj", "k_proj", "v_proj")


def add_lora(backbone: Backbone, settings: LoraSettings, seed: int) -> Backbone:
    """The backbone with a fresh trainable adapter; everything else is frozen."""
    if settings.r < 1:
        raise GoldimaskError(f"lora.r: {settings.r} must be at least 1")
    if not 0.0 <= settings.dropout < 1.0:
        raise GoldimaskError(f"lora.dropout: {settings.dropout} must lie in [0, 1)")
    check_targets(backbone, settings.targets)
    alpha = int(settings.alpha) if float(settings.alpha).is_integer() else settings.alpha
    config = LoraConfig(
        r=settings.r,
        lora_alpha=alpha,  # type: ignore[arg-type]  # PEFT only divides by it
        lora_dropout=settings.dropout,
        target_modules=list(settings.targets),
        bias="none",
    )
    return init_adapter(attach(backbone, config), seed)


def attach(backbone: Backbone, config: LoraConfig) -> Backbone:
    """Wrap the model; the mode of the base decides the mode of the adapter's dropout."""
    training = backbone.model.training
    with torch.random.fork_rng(devices=[]):
        model = get_peft_model(backbone.model, config)  # type: ignore[arg-type]
    model.train(training)
    return replace(backbone, model=model)


@torch.no_grad()
def init_adapter(backbone: Backbone, seed: int) -> Backbone:
    """Draw every A from one generator; every B stays zero."""
    generator = torch.Generator().manual_seed(torch_seed(seed, Stream.INIT, ADAPTER_COUNTER))
    for name, p in sorted(adapter_parameters(backbone.model).items()):
        if ".lora_A." in name:
            bound = p.shape[1] ** -0.5
            p.copy_((torch.rand(p.shape, generator=generator) * 2 - 1) * bound)
    return backbone


def adapter_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """Name without the adapter's label -> parameter."""
    return {
        name.replace(".default.", "."): p
        for name, p in model.named_parameters()
        if ".lora_A." in name or ".lora_B." in name
    }


def check_targets(backbone: Backbone, targets: Iterable[str]) -> None:
    """Every target must be the name of a linear layer: one that matches nothing trains nothing."""
    leaves = {n.rsplit(".", 1)[-1] for n, m in backbone.model.named_modules() if is_linear(m)}
    names = list(targets)
    if not names:
        raise GoldimaskError(f"lora.targets: empty; valid: {', '.join(sorted(leaves))}")
    for target in names:
        if target in leaves:
            continue
        ours = BLOCK_NAMES.get(target, "").rsplit(".", 1)[-1]
        if backbone.family == "llada" and ours in leaves:
            raise GoldimaskError(f"lora.targets: LLaDA's '{target}' is called '{ours}' here")
        raise GoldimaskError(
            f"lora.targets: '{target}' matches no linear layer of {backbone.name}; "
            f"{nearest(target, leaves)}"
        )


def is_linear(module: nn.Module) -> bool:
    """A plain or quantised linear layer."""
    return hasattr(module, "in_features") and hasattr(module, "out_features")


def save_adapter(backbone: Backbone, folder: Path | str) -> Path:
    """Write the adapter for PEFT on our models and, for LLaDA, in `hub/` for the published code.

    Dream's published names are the ones we use, so one copy serves both.
    """
    model: Any = backbone.model
    if not hasattr(model, "peft_config"):
        raise GoldimaskError(f"{folder}: the model carries no adapter; use save_backbone")
    state = {k: p.detach().cpu().contiguous() for k, p in adapter_parameters(model).items()}
    config = adapter_config(backbone, model.peft_config["default"])
    folder = Path(folder)
    with new_folder(folder) as temporary:
        write_adapter(temporary, state, config)
        if backbone.family == "llada":
            theirs = {to_hub(k): v for k, v in state.items()}
            targets = hub_targets(config["target_modules"])
            write_adapter(temporary / HUB_FOLDER, theirs, {**config, "target_modules": targets})
    return folder


def write_adapter(folder: Path, state: dict[str, Tensor], config: Mapping[str, Any]) -> None:
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


def hub_targets(targets: Sequence[str] | str) -> list[str] | str:
    """Target names in LLaDA's words; a pattern where `ff_out` would also match the head."""
    theirs = {ours.rsplit(".", 1)[-1]: name for name, ours in BLOCK_NAMES.items()}
    if isinstance(targets, str):
        return targets
    if any("." in t for t in targets):  # full paths
        return sorted(to_hub(t) for t in targets)
    if "down_proj" not in targets and "lm_head" not in targets:
        return sorted(theirs.get(t, t) for t in targets)
    blocks = "|".join(sorted(theirs[t] for t in targets if t in theirs))
    parts = [rf".*\.blocks\.\d+\.({blocks})"] if blocks else []
    return "|".join(parts + [r".*transformer\.ff_out"] * ("lm_head" in targets))


def load_adapter(backbone: Backbone, folder: Path | str, trainable: bool = False) -> Backbone:
    """Put a stored adapter on a backbone; reads our names and LLaDA's published ones."""
    folder = Path(folder)
    config, state = read_adapter(folder)
    state = {to_native(k): v for k, v in state.items()} if backbone.family == "llada" else state
    modules = {m for key in state if (m := module_of(key))}
    stray = sorted(key for key in state if not module_of(key))
    linear = {n for n, m in backbone.model.named_modules() if is_linear(m)}
    where = str(folder / WEIGHTS)
    complain(where, backbone.name, unexpected=stray + sorted(modules - linear))
    out = attach(backbone, replace_targets(config, compact_targets(modules, linear)))
    parameters = adapter_parameters(out.model)
    wrong = [
        f"{k} is {list(state[k].shape)}, expected {list(p.shape)}"
        for k, p in parameters.items()
        if k in state and state[k].shape != p.shape
    ]
    missing = sorted(parameters.keys() - state.keys())
    complain(where, backbone.name, missing=missing, wrong=wrong)
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
        why = (
            "only a pickle (adapter_model.bin); convert it to safetensors"
            if pickle
            else "no weights"
        )
        raise GoldimaskError(f"{folder}: {why}; expected {WEIGHTS}")
    try:
        fields = json.loads(path.read_text("utf-8"))
        state = load_file(folder / WEIGHTS)
    except (ValueError, OSError, SafetensorError) as error:
        raise GoldimaskError(f"{folder}: not a readable adapter ({error})") from error
    if fields.get("peft_type") != "LORA":
        raise GoldimaskError(f"{path}: peft_type is '{fields.get('peft_type')}'; only LORA is read")
    unsupported = ("use_dora", "rank_pattern", "alpha_pattern", "modules_to_save", "lora_bias")
    for key in unsupported:
        if fields.get(key):
            raise GoldimaskError(f"{path}: {key}={fields[key]!r} is not supported")
    if fields.get("bias", "none") != "none":
        raise GoldimaskError(f"{path}: bias={fields['bias']!r} is not supported")
    kept = ("r", "lora_alpha", "lora_dropout", "use_rslora", "target_modules")
    return LoraConfig(**{k: fields[k] for k in kept if k in fields}), state


def replace_targets(config: LoraConfig, targets: list[str]) -> LoraConfig:
    return LoraConfig(
        r=config.r,
        lora_alpha=config.lora_alpha,
        lora_dropout=config.lora_dropout,
        use_rslora=config.use_rslora,
        target_modules=targets,
        bias="none",
    )


def module_of(key: str) -> str | None:
    """`base_model.model.a.b.lora_A.weight` -> `a.b`; None when it is not a LoRA tensor."""
    path, dot, rest = key.removeprefix("base_model.model.").partition(".lora_")
    return path if dot and rest in ("A.weight", "B.weight") else None


def compact_targets(modules: set[str], linear: set[str]) -> list[str]:
    """Leaf names when they stand for exactly these modules, full paths otherwise."""
    leaves = {m.rsplit(".", 1)[-1] for m in modules}
    covered = {m for m in linear if m.rsplit(".", 1)[-1] in leaves}
    return sorted(leaves if covered == modules else modules)
