"""Shared-state diagnostics (paper, appendix "Evaluation setup", paragraph of that name).

Models are asked about the *same* partially completed references, so that the prediction is
separated from the states a model would visit. A state is what the block decoder sees: the reference
up to a block, a random part of that block still masked, everything after it masked. With x the
reference, c_i the confidence and y_i the prediction at the masked positions M of the block:

    eligible          E = { i in M : c_i >= tau }
    oracle-safe parallelism        |{ i in E : y_i = x_i }|, mean over states
    threshold precision            sum |{ i in E : y_i = x_i }| / sum |E|
    change of correct eligibility  gained - lost, per state, between two models

The last comes with a 95 % percentile interval from resampling *examples* (states of one example are
not independent). Correct means equal to the reference token; another right answer counts as wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from goldimask.bootstrap import interval, weights
from goldimask.decoding.forward import Decodable, exact_logits
from goldimask.decoding.options import make_settings
from goldimask.decoding.rows import RowState, new_row, window
from goldimask.decoding.scores import score_rows
from goldimask.errors import GoldimaskError
from goldimask.keys import Keys, Stream, content_id
from goldimask.step import module_mode
from goldimask.studies.examples import BATCH, Advance, quiet
from goldimask.studies.shards import Arrays, Gather, everything

TAUS = (0.7, 0.8, 0.9, 0.95)  # of the paper's sweep
Asked = tuple[str | Sequence[Mapping[str, str]], str]  # a prompt or its turns, and the response


@dataclass(frozen=True)
class Reference:
    """A prompt and its reference response as token ids."""

    prompt: tuple[int, ...]
    response: tuple[int, ...]


@dataclass(frozen=True)
class State:
    """A partially completed reference."""

    example: int
    block: int
    masked: tuple[int, ...]  # positions of the response, within the block


@dataclass(frozen=True)
class Predictions:
    """What one model says in one state, at the masked positions."""

    correct: np.ndarray  # [m] bool
    confidence: np.ndarray  # [m] float64


def references(backbone: Decodable, pairs: Sequence[Asked]) -> list[Reference]:
    """Tokenised pairs; those that do not fit the backbone are an error naming the pair."""
    out = []
    for i, (prompt, response) in enumerate(pairs):
        found = Reference(
            tuple(backbone.prompt_ids(prompt)), tuple(backbone.response_ids(response))
        )
        if len(found.prompt) + len(found.response) > backbone.max_length:
            raise GoldimaskError(
                f"reference {i}: longer than the backbone's {backbone.max_length} tokens; "
                "leave it out"
            )
        out.append(found)
    return out


def draw_states(
    references: Sequence[Reference], per_example: int = 4, block: int = 32, seed: int = 0
) -> list[State]:
    """Block and number of masked positions uniform, then which ones; from the content alone."""
    states = []
    for i, ref in enumerate(references):
        rng = Keys(seed).rng(content_id(repr(ref.prompt), repr(ref.response)), Stream.STUDY)
        blocks = -(-len(ref.response) // block)
        for _ in range(per_example):
            b = int(rng.integers(blocks))
            positions = np.arange(b * block, min((b + 1) * block, len(ref.response)))
            count = int(rng.integers(1, len(positions) + 1))
            chosen = np.sort(rng.choice(positions, size=count, replace=False))
            states.append(State(i, b, tuple(chosen.tolist())))
    return states


@torch.inference_mode()
def predict(
    backbone: Decodable, references: Sequence[Reference], states: Sequence[State], block: int = 32
) -> list[Predictions]:
    """The model's greedy predictions in the states of one batch."""
    longest = max(len(references[s.example].response) for s in states)
    settings = make_settings("threshold", length=longest, block=block)
    rows = [to_row(backbone, references[s.example], s, i, block) for i, s in enumerate(states)]
    windows = [window(row, settings) for row in rows]
    with module_mode(backbone.model, train=False):
        logits = exact_logits(backbone, rows, windows, settings)
    scores = score_rows(logits, "confidence", banned=(backbone.mask_id,))
    out, start = [], 0
    for state, where in zip(states, windows, strict=True):
        assert tuple(where.tolist()) == state.masked
        part = slice(start, start + len(where))
        truth = np.array(references[state.example].response)[where]
        out.append(Predictions(scores.token[part] == truth, scores.confidence[part]))
        start += len(where)
    return out


def to_row(backbone: Decodable, ref: Reference, state: State, index: int, block: int) -> RowState:
    """The canvas of a state, as the decoder would hold it."""
    settings = make_settings("threshold", length=len(ref.response), block=block)
    rng = np.random.Generator(np.random.Philox(0))  # nothing is drawn
    row = new_row(index, 0, np.array(ref.prompt), settings, backbone.mask_id, rng)
    end = min((state.block + 1) * block, len(ref.response))
    known = np.ones(end, dtype=bool)
    known[list(state.masked)] = False
    row.response()[:end][known] = np.array(ref.response)[:end][known]
    row.open_[:end] = ~known
    row.block = state.block
    return row


def summarise(found: Sequence[Predictions], taus: Sequence[float] = TAUS) -> list[dict[str, Any]]:
    """One row per threshold."""
    masked = sum(len(p.correct) for p in found)
    rows = []
    for tau in taus:
        eligible = sum(int((p.confidence >= tau).sum()) for p in found)
        safe = sum(int((p.correct & (p.confidence >= tau)).sum()) for p in found)
        rows.append(
            {
                "tau": tau,
                "states": len(found),
                "masked": masked / len(found),
                "eligible": eligible / len(found),
                "oracle_safe": safe / len(found),
                "precision": safe / eligible if eligible else None,
                "share": safe / masked if masked else None,
            }
        )
    return rows


def change(
    before: Sequence[Predictions],
    after: Sequence[Predictions],
    states: Sequence[State],
    taus: Sequence[float] = TAUS,
    seed: int = 0,
    draws: int = 2000,
) -> list[dict[str, Any]]:
    """Correct eligibility gained and lost from one model to the other, per state."""
    example = np.array([s.example for s in states])
    kinds, where = np.unique(example, return_inverse=True)
    picks = weights(len(kinds), draws, seed)
    rows = []
    for tau in taus:
        was = [p.correct & (p.confidence >= tau) for p in before]
        now = [p.correct & (p.confidence >= tau) for p in after]
        gained = np.array([int((b & ~a).sum()) for a, b in zip(was, now, strict=True)])
        lost = np.array([int((a & ~b).sum()) for a, b in zip(was, now, strict=True)])
        per_example = np.bincount(where, gained - lost, len(kinds))
        counts = np.bincount(where, minlength=len(kinds))
        low, high = interval((picks @ per_example) / (picks @ counts))
        rows.append(
            {
                "tau": tau,
                "gained": float(gained.mean()),
                "lost": float(lost.mean()),
                "net": float((gained - lost).mean()),
                "low": low,
                "high": high,
            }
        )
    return rows


def study_eligibility(
    models: Sequence[tuple[str, Callable[[], Decodable]]],
    pairs: Sequence[Asked],
    *,
    taus: Sequence[float] = TAUS,
    per_example: int = 4,
    block: int = 32,
    seed: int = 0,
    batch_size: int = BATCH,
    gather: Gather = everything,
    advance: Advance = quiet,
) -> dict[str, Any]:
    """Diagnostics of each model, and the change from the first to each other one.

    A unit is one model on one batch of states; a model is loaded when its first unit comes.
    """
    if not pairs:
        raise GoldimaskError("study eligibility: no references; give at least one pair")
    loaders = dict(models)
    loaded: dict[str, tuple[Decodable, list[Reference]]] = {}

    def model(name: str) -> tuple[Decodable, list[Reference]]:
        if name not in loaded:
            loaded.clear()  # one model at a time
            backbone = loaders[name]()
            loaded[name] = backbone, references(backbone, pairs)
        return loaded[name]

    shared = model(models[0][0])[1]
    states = draw_states(shared, per_example, block, seed)

    def one(unit: tuple[str, int]) -> Arrays:
        name, start = unit
        backbone, mine = model(name)
        if mine != shared:
            raise GoldimaskError(
                f"study eligibility: '{name}' tokenises the references differently from "
                f"'{models[0][0]}'; states can only be shared within one tokenizer"
            )
        part = states[start : start + batch_size]
        made = predict(backbone, shared, part, block)
        advance(len(part))
        return {
            "correct": np.concatenate([p.correct for p in made]),
            "confidence": np.concatenate([p.confidence for p in made]),
            "ends": np.cumsum([len(p.correct) for p in made]),
        }

    units = [(name, i) for name in loaders for i in range(0, len(states), batch_size)]
    found: dict[str, list[Predictions]] = {name: [] for name in loaders}
    for (name, _), piece in zip(units, gather(units, one), strict=True):
        ends = piece["ends"][:-1]
        parts = (np.split(piece[key], ends) for key in ("correct", "confidence"))
        found[name] += [Predictions(*p) for p in zip(*parts, strict=True)]
    first, *others = found
    return {
        "study": "eligibility",
        "references": len(pairs),
        "states": len(states),
        "block": block,
        "seed": seed,
        "models": {name: summarise(p, taus) for name, p in found.items()},
        "changes": {n: change(found[first], found[n], states, taus, seed) for n in others},
    }
