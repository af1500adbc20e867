"""How long a run takes on a card, by arithmetic; `cards.json` is the table, with its source.

P parameters that multiply a token, a = 4 T q FLOP of a token's attention in all blocks together
(T length, q width of the queries), per token:

    forward 2P + a      backward 4P + 2.5 a, with frozen weights 2P + 2.5 a (flash recomputes)
    recomputed blocks 2P + a more      a probe pass 2P + a, and 2 T q for the attention it keeps
    seconds of a step = FLOP / (processes x SHARE x peak) + 28 bytes of a trained weight
                        / bandwidth + selection, where nothing hides it

Selection: what the host engine takes for N candidates, 2.8e-8 N^2 seconds (218 ms at N = 2,800 on a
busy core; `goldimask selftest` measures it); with accumulation it runs beside the next probe pass
and costs nothing here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goldimask.errors import GoldimaskError, nearest
from goldimask.files import read_object

SHARE = 0.4  # of its peak that a card sustains in training; measure it with `goldimask selftest`
SELECTION = 2.8e-8  # seconds per candidate squared, one core
DEFAULT = "A100 80GB"


@dataclass(frozen=True)
class Card:
    """One row of the table."""

    name: str
    memory_gb: float
    tflops: float  # bfloat16, peak
    bandwidth_gb: float


def cards() -> list[Card]:
    return [Card(*row) for row in read_object(Path(__file__).with_name("cards.json"))["cards"]]


def card_named(name: str) -> Card:
    """The first row whose words are all in the name that was given or reported."""
    spoken = name.lower().replace("-", " ").split()
    for card in cards():
        if all(word in spoken for word in card.name.lower().replace("-", " ").split()):
            return card
    names = [c.name for c in cards()]
    raise GoldimaskError(f"--card: unknown '{name}'; {nearest(name, names)}")


def own_card() -> Card | None:
    """The card of this process, if there is one and the table has it; its memory is asked."""
    import torch

    from goldimask.processes import own_device

    device = own_device()
    ask = getattr(torch.get_device_module(device), "get_device_properties", None)
    if device.type == "cpu" or ask is None:
        return None
    found: Any = ask(device.index or 0)
    try:
        card = card_named(str(found.name))
    except GoldimaskError:
        return None
    return Card(str(found.name), found.total_memory / 1e9, card.tflops, card.bandwidth_gb)


@dataclass(frozen=True)
class Work:
    """FLOP of a token, by what it is for."""

    forward: float
    backward: float
    recomputed: float
    probe: float

    @property
    def total(self) -> float:
        return self.forward + self.backward + self.recomputed + self.probe


def work(model: Any, length: float, passes: int, frozen: bool, checkpointed: bool) -> Work:
    """By the formulas at the top; `length` is the mean length of an example."""
    from goldimask.backbones.summary import active_parameters

    c = model.config
    tied = c.tie_word_embeddings
    weights = active_parameters(model) - (
        0 if tied else model.get_input_embeddings().weight.numel()
    )
    wide = (getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads) * (
        c.num_attention_heads
    )
    return token_work(weights, wide, c.num_hidden_layers, length, passes, frozen, checkpointed)


def token_work(
    weights: float,
    wide: int,
    blocks: int,
    length: float,
    passes: int,
    frozen: bool,
    checkpointed: bool,
) -> Work:
    """The same from plain sizes: weights that multiply a token, width of the queries."""
    attention = 4.0 * length * wide * blocks
    forward = 2 * weights + attention
    return Work(
        forward,
        (2 if frozen else 4) * weights + 2.5 * attention,
        forward * checkpointed,
        (passes - 1) * (forward + 2 * length * wide),
    )


def step_seconds(
    flop: float, card: Card, processes: int, trained: float, candidates: float, alone: bool
) -> dict[str, float]:
    """Seconds of one optimiser step: passes, update, and selection where it stands alone."""
    return {
        "passes": flop / (processes * SHARE * card.tflops * 1e12),
        "update": 28 * trained / (card.bandwidth_gb * 1e9),
        "selection": SELECTION * candidates**2 if alone else 0.0,
    }
