"""How long and how fast a model is tuned in a study or a grid; part of the lab's recipe."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ConfigDict

from goldimask.errors import GoldimaskError


@dataclass(frozen=True)
class Tuning:
    """AdamW with linear warm-up and linear decay."""

    steps: int = 150
    batch_size: int = 16
    learning_rate: float = 3.0e-4
    weight_decay: float = 0.01
    warmup: int = 10
    clip: float = 1.0
    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        if self.steps < 0 or self.batch_size < 1 or not self.learning_rate > 0:
            raise GoldimaskError(
                "tuning: steps must be at least 0, batch_size at least 1, learning_rate positive"
            )


def rate(step: int, tuning: Tuning) -> float:
    """Linear warm-up, then linear decay to zero after the last step."""
    if step < tuning.warmup:
        return (step + 1) / tuning.warmup
    return (tuning.steps - step) / max(1, tuning.steps - tuning.warmup)
