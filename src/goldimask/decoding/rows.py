"""The state of one example while it is decoded: its own block, step count and stream."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from goldimask.decoding.plan import Quota, block_steps
from goldimask.decoding.rules import Decoder, Table
from goldimask.decoding.scores import WindowScores
from goldimask.decoding.types import Commit, Settings, first_end


@dataclass(eq=False)
class RowState:
    """One row of the running batch. Mutable: the loop writes commits into the canvas."""

    index: int  # place in the caller's list
    sample: int  # id of the random stream
    prompt: int  # length of the prompt
    canvas: np.ndarray  # [P + length] int64
    open_: np.ndarray  # [length] bool, the masked response positions
    rng: np.random.Generator
    block: int = 0
    step: int = 0
    quotas: list[Quota] | None = None  # what is left of the current block's plan
    to_eos: int | None = None
    commits: list[Commit] = field(default_factory=list)
    cached_block: int = -1  # the block a cache was filled for

    @property
    def length(self) -> int:
        return len(self.canvas)

    def response(self) -> np.ndarray:
        return self.canvas[self.prompt :]


def new_row(
    index: int,
    sample: int,
    prompt: np.ndarray,
    settings: Settings,
    mask_id: int,
    rng: np.random.Generator,
) -> RowState:
    masks = np.full(settings.length, mask_id, dtype=np.int64)
    return RowState(
        index=index,
        sample=sample,
        prompt=len(prompt),
        canvas=np.concatenate([np.asarray(prompt, dtype=np.int64), masks]),
        open_=np.ones(settings.length, dtype=bool),
        rng=rng,
    )


def block_range(row: RowState, settings: Settings) -> tuple[int, int]:
    start = row.block * settings.block
    return start, min(start + settings.block, settings.length)


def window(row: RowState, settings: Settings) -> np.ndarray:
    """Masked positions before the end of the current block, ascending. [n]"""
    return np.flatnonzero(row.open_[: block_range(row, settings)[1]])


def prepare(row: RowState, decoder: Decoder, settings: Settings) -> None:
    """Plan the block that begins, for decoders that plan."""
    if decoder.plan is not None and row.quotas is None:
        start, end = block_range(row, settings)
        steps = block_steps(end - start, settings, decoder.rate)
        row.quotas = decoder.plan(window(row, settings), steps, settings, row.rng)


def commit(
    row: RowState,
    where: np.ndarray,
    scores: WindowScores,
    decoder: Decoder,
    settings: Settings,
    mask_id: int,
) -> Commit:
    """Apply the rule to the window `where` and write what it chose."""
    quota = row.quotas.pop(0) if row.quotas else None
    chosen = decoder.rule(Table(where, scores.score, quota, row.rng), settings)
    positions, tokens = where[chosen], scores.token[chosen]
    row.response()[positions] = tokens
    row.open_[positions] = tokens == mask_id  # only with allow_mask: it stays masked
    row.step += 1
    plain = decoder.measure == "confidence"
    made = Commit(
        step=row.step,
        block=row.block,
        positions=tuple(positions.tolist()),
        tokens=tuple(tokens.tolist()),
        confidence=tuple(scores.confidence[chosen].tolist()),
        score=() if plain else tuple(scores.score[chosen].tolist()),
    )
    row.commits.append(made)
    return made


def advance(row: RowState, settings: Settings, end_ids: frozenset[int], fill_id: int) -> bool:
    """Move past finished blocks; true when the example has nothing more to do."""
    while True:
        start, end = block_range(row, settings)
        planned_out = row.quotas is not None and not row.quotas
        if row.open_[start:end].any() and not planned_out:
            break
        if row.to_eos is None and first_end(row.response()[:end].tolist(), end_ids) is not None:
            row.to_eos = row.step
            if settings.eos_stop:
                row.response()[end:] = fill_id
                row.open_[end:] = False
                return True
        if end == settings.length:
            return True
        row.block += 1
        row.quotas = None
    cap = settings.length if settings.max_steps is None else settings.max_steps
    return row.step >= cap
