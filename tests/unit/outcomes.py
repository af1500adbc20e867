"""Outcomes for tests of what is computed and shown from them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from goldimask.records import Decoding, Outcome


def outcome(item: int, correct: bool = True, tau: float | None = 0.9, **changes: Any) -> Outcome:
    """One answer to problem `item` of a small task."""
    options = {} if tau is None else {"tau": tau}
    values = {
        **{"task": "tiny-sort", "version": "1", "protocol": "fixed", "item": f"p{item}"},
        **{"index": item, "length": 64, "seed": 0, "prompt": "h", "output": "out"},
        **{"decoding": Decoding(decoder="threshold", options=options), "extracted": "4"},
        **{"correct": correct, "detail": "", "hits": 0.0, "of": 0.0, "steps": 10 + item},
        "seconds": 0.1,
    }
    return Outcome(**{**values, **changes})


def outcomes(verdicts: Iterable[bool], **changes: Any) -> list[Outcome]:
    """Answers to problems 0, 1, ... that are right or wrong."""
    return [outcome(i, bool(ok), **changes) for i, ok in enumerate(verdicts)]
