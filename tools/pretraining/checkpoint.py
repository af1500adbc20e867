"""Checkpoints of a pretraining run: weights and optimiser moments as safetensors, the rest as JSON.

Tensors are stored bit by bit, so that a resumed run continues as if it had never stopped. A
checkpoint is a folder that appears whole or not at all.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from goldimask.errors import GoldimaskError
from goldimask.files import new_folder, write_json
from pretraining.optimisers import Optimisers

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def save_checkpoint(folder: Path, optimisers: Optimisers, facts: dict[str, Any]) -> None:
    """Write `state.safetensors` and `state.json` (`facts`) into a fresh folder."""
    tensors = {}
    for name, parameter in optimisers.named.items():
        tensors[f"weight.{name}"] = parameter.detach()
        if name in optimisers.momenta:
            tensors[f"momentum.{name}"] = optimisers.momenta[name]
        else:
            for moment in MOMENTS:
                tensors[f"{moment}.{name}"] = optimisers.adam.state[parameter][moment].detach()
    with new_folder(folder) as temporary:
        save_file({k: v.contiguous() for k, v in tensors.items()}, temporary / "state.safetensors")
        write_json(temporary / "state.json", facts)


@torch.no_grad()
def load_checkpoint(folder: Path, optimisers: Optimisers, moments: bool = True) -> None:
    """Restore weights, and unless a new stage begins here the moments, in place."""
    tensors = load_file(folder / "state.safetensors")
    for name, parameter in optimisers.named.items():
        if f"weight.{name}" not in tensors:
            raise GoldimaskError(f"{folder}: holds no weight '{name}'; was the model changed?")
        parameter.copy_(tensors[f"weight.{name}"])
        if not moments:
            continue
        if name in optimisers.momenta:
            optimisers.momenta[name].copy_(tensors[f"momentum.{name}"])
        else:
            state = {m: tensors[f"{m}.{name}"].clone() for m in MOMENTS}
            optimisers.adam.state[parameter] = state


def read_facts(folder: Path) -> dict[str, Any]:
    """`state.json` of a checkpoint."""
    try:
        return json.loads((folder / "state.json").read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise GoldimaskError(
            f"{folder}: no checkpoint to resume from; leave out --resume to begin a new run"
        ) from error
    except json.JSONDecodeError as error:
        raise GoldimaskError(
            f"{folder / 'state.json'}: not valid JSON; delete the folder"
        ) from error
