"""Trackers by name: tensorboard (default), trackio, wandb, or none.

`metrics.jsonl` is written whatever is chosen here.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError, nearest

PACKAGES = {"tensorboard": "tensorboard", "trackio": "trackio", "wandb": "wandb"}


def tracker_names(value: Any) -> list[str]:
    """`trainer.report_to` as a list; unknown names and missing packages are errors."""
    if value is None:
        value = ["tensorboard"]
    names = [value] if isinstance(value, str) else list(value)
    if names == ["none"]:
        return []
    for name in names:
        if name not in PACKAGES:
            raise GoldimaskError(
                f"trainer.report_to: unknown '{name}'; {nearest(str(name), [*PACKAGES, 'none'])}"
            )
        if find_spec(PACKAGES[name]) is None:
            raise GoldimaskError(
                f"trainer.report_to: '{name}' is not installed; pip install 'goldimask[track]' "
                "or choose tensorboard"
            )
    return names


def tracker_callbacks(value: Any, folder: Path, run_name: str) -> list[Any]:
    """One callback per tracker; files go into the run's folder."""
    from transformers.integrations import integration_utils as integrations

    made: list[Any] = []
    for name in tracker_names(value):
        if name == "tensorboard":
            made.append(integrations.TensorBoardCallback(_writer(folder / "tensorboard")))
        elif name == "wandb":
            import os

            os.environ.setdefault("WANDB_DIR", str(folder))
            os.environ.setdefault("WANDB_NAME", run_name)
            made.append(integrations.WandbCallback())
        else:
            made.append(integrations.TrackioCallback())
    return made


def _writer(folder: Path) -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
