"""The records of decoding: what was asked for, what was committed at which step, what came out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Cache = Literal["none", "prefix", "dual"]
PaddingSide = Literal["right", "left"]


@dataclass(frozen=True)
class Settings:
    """Everything a decoder is told besides the model and the prompts."""

    decoder: str = "threshold"
    length: int = 128  # response positions, all of them masked at the start
    block: int = 32  # positions per block; blocks are decoded left to right
    tau: float = 0.9  # confidence (threshold) or entropy in nats (entropy)
    factor: float = 1.0  # f of the factor rule
    steps: int | None = None  # model calls over the whole response, for rules with a step quota
    temperature: float = 0.0  # 0 is greedy
    top_p: float = 1.0
    top_k: int = 0  # 0 keeps every token
    alg_temp: float = 0.0  # draw the committed positions instead of taking the best; 0 is off
    eps: float = 1e-3  # Dream: the last time of the schedule
    cfg: float = 0.0  # classifier-free guidance w; 0 is off
    suppress: tuple[int, ...] = ()  # token ids that are never chosen
    allow_mask: bool = False  # as released: the mask token may be predicted (and stays masked)
    eos_stop: bool = False  # leave once a finished block holds an end token
    max_steps: int | None = None  # cap on model calls per example; `length` when None
    cache: Cache = "none"  # prefix | dual: approximate
    padding_side: PaddingSide = "right"
    seed: int = 0


@dataclass(frozen=True)
class Commit:
    """What one step wrote. Positions count from the start of the response."""

    step: int  # 1-based
    block: int  # 0-based
    positions: tuple[int, ...]
    tokens: tuple[int, ...]
    confidence: tuple[float, ...]  # probability of each committed token, untempered
    score: tuple[float, ...] = ()  # what the rule ranked by, where that is not the confidence


@dataclass(frozen=True)
class Decoded:
    """One decoded response. `steps` is the number of model calls this example took part in."""

    text: str  # up to the first end token, special tokens removed
    tokens: list[int]  # the whole canvas of `length` tokens
    steps: int
    trace: tuple[Commit, ...]
    steps_to_eos: int | None  # steps until every block up to the first end token was finished
    complete: bool  # false when the step cap or the as-released mask left positions open
    prompt_ids: list[int] = field(default_factory=list, repr=False)
    sample: int = 0  # id of this example's random stream
    exact: bool = True  # false when a cache made the scores approximate
    settings: Settings = field(default_factory=Settings, repr=False)

    def record(self, trace: bool = False) -> dict[str, object]:
        """Plain data for a JSON line."""
        row: dict[str, object] = {
            "text": self.text,
            "tokens": self.tokens,
            "steps": self.steps,
            "steps_to_eos": self.steps_to_eos,
            "complete": self.complete,
            "exact": self.exact,
            "sample": self.sample,
        }
        if trace:
            row["trace"] = [commit_record(c) for c in self.trace]
        return row


def commit_record(commit: Commit) -> dict[str, object]:
    return {
        "step": commit.step,
        "block": commit.block,
        "positions": list(commit.positions),
        "tokens": list(commit.tokens),
        "confidence": [round(c, 6) for c in commit.confidence],
    }


def first_end(tokens: Sequence[int], end_ids: frozenset[int]) -> int | None:
    """Index of the first end token."""
    return next((i for i, token in enumerate(tokens) if token in end_ids), None)
