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
from torch import nn

from goldimask.errors import GoldimaskError
from goldimask.files import new_folder, write_json

MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def save_checkpoint(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer, facts: dict[str, Any]
) -> None:
    """Write `state.safetensors` and `state.json` (`facts`) into a fresh folder."""
    tensors = {f"weight.{name}": p.detach().clone() for name, p in model.named_parameters()}
    for name, parameter in model.named_parameters():
        for moment in MOMENTS:
            value = optimizer.state[parameter][moment]
            tensors[f"{moment}.{name}"] = value.detach().clone().contiguous()
    with new_folder(folder) as temporary:
        save_file(tensors, temporary / "state.safetensors")
        write_json(temporary / "state.json", facts)


def load_checkpoint(
    folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, Any]:
    """Restore weights and moments in place; returns the facts."""
    facts = read_facts(folder)
    tensors = load_file(folder / "state.safetensors")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if f"weight.{name}" not in tensors:
                raise GoldimaskError(f"{folder}: holds no weight '{name}'; was the model changed?")
            parameter.copy_(tensors[f"weight.{name}"])
            optimizer.state[parameter] = {m: tensors[f"{m}.{name}"].clone() for m in MOMENTS}
    return facts


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
